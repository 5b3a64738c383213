"""What was said on an issue, for who reads it: pages, queues, viewers, exports; and its erasure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.passes import admit, end
from tests.rows import say
from tests.saved import save, started

import wakeful
import wakeful.errors
from wakeful import company_data, conversations
from wakeful.errors import InvalidInput, NotFound
from wakeful.testing import Database

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("web")


@pytest.fixture
def said(conn: Conn, web: None) -> None:
    """A comment that a run was given and answered, one that waits, and a card with its answer."""
    say(conn, wakeful.create_card("acme", "I-1", "coder", {"text": "secret question"}, id="k-1"))
    say(conn, wakeful.answer_card("acme", "k-1", "secret answer", actor="user:ann"))
    key = started(conn, save(conn, "c-1", body="secret words", agent="coder").wake)
    save(conn, "c-2", body="more secret words", agent="coder")
    end(conn, key)


@pytest.fixture
def viewer(database: Database, said: None) -> Iterator[Conn]:
    """A real login that may only read, for the company."""
    with psycopg.connect(database.login("wakeful_viewer"), autocommit=True) as opened:
        opened.execute("SET wakeful.company = 'acme'")
        yield opened


def test_a_viewer_reads_pages_and_queues_and_changes_nothing(viewer: Conn) -> None:
    page = conversations.comments(viewer, "acme", "I-1")
    assert [(one["id"], one["body"], one["delivered"]) for one in page.rows] == [
        ("c-1", "secret words", True),
        ("c-2", "more secret words", False),
    ]
    [card] = conversations.cards(viewer, "acme", "I-1").rows
    assert (card["question"], card["answer"], card["state"]) == (
        {"text": "secret question"},
        "secret answer",
        "answered",
    )
    [queue] = conversations.queues(viewer, "acme", "I-1")
    assert ([one["id"] for one in queue["comments"]], queue["state"]) == (["c-2"], "deferred")
    assert queue["revision"] == conversations.queue_revision(viewer, "acme", queue["queue"])
    assert conversations.revision(viewer, "acme", "c-2") == 1
    for statement in (wakeful.delete_comment("acme", "c-2", 1), wakeful.withdraw_card("acme", "k-1")):
        with pytest.raises(wakeful.errors.DatabaseUnavailable):
            wakeful.run(viewer, statement)


def test_a_viewer_of_another_company_sees_nothing(viewer: Conn) -> None:
    viewer.execute("SET wakeful.company = 'other'")
    assert conversations.comments(viewer, "acme", "I-1").rows == ()
    assert conversations.queues(viewer, "acme", "I-1") == ()
    assert viewer.execute("SELECT count(*) FROM wakeful.comment").fetchone() == (0,)
    assert viewer.execute("SELECT count(*) FROM wakeful.card").fetchone() == (0,)


@pytest.mark.usefixtures("said")
def test_pages_go_on_after_an_id(conn: Conn) -> None:
    first = conversations.comments(conn, "acme", "I-1", limit=1)
    assert ([one["id"] for one in first.rows], first.after) == (["c-1"], "c-1")
    rest = conversations.comments(conn, "acme", "I-1", limit=1, after=first.after)
    assert ([one["id"] for one in rest.rows], rest.after) == (["c-2"], None)
    for limit in (0, 1001):
        with pytest.raises(InvalidInput):
            conversations.comments(conn, "acme", "I-1", limit=limit)


@pytest.mark.usefixtures("said")
def test_a_queue_that_was_given_away_has_no_revision(conn: Conn) -> None:
    [queue] = conversations.queues(conn, "acme", "I-1")
    wake = queue["queue"]
    admit(conn, wake, signalled=True)
    [queued] = conversations.queues(conn, "acme", "I-1")
    assert (queued["queue"], queued["state"], queued["revision"]) == (wake, "queued", queue["revision"])
    say(conn, wakeful.discard_comment("acme", "c-2", 1))
    with pytest.raises(NotFound, match="no comments wait in queue"):
        conversations.queue_revision(conn, "acme", wake)
    with pytest.raises(NotFound, match="comment 'c-9' does not exist"):
        conversations.revision(conn, "acme", "c-9")


@pytest.mark.usefixtures("said")
def test_an_export_holds_the_words_and_an_erasure_takes_them(conn: Conn) -> None:
    def tables() -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for line in company_data.export(conn, "acme"):
            one = json.loads(line)
            found.setdefault(one["table"], []).append(one["row"])
        return found

    before = tables()
    assert [one["body"] for one in before["comment"]] == ["secret words", "more secret words"]
    assert (before["card"][0]["answer"], before["card"][0]["question"]) == (
        "secret answer",
        {"text": "secret question"},
    )
    say(conn, wakeful.archive_company("acme"))
    say(conn, wakeful.erase_company("acme"))
    after = tables()
    assert "secret" not in json.dumps(after)
    assert [one["body"].startswith("erased sha256:") for one in after["comment"]] == [True, True]
    assert [one["id"] for one in after["comment"]] == ["c-1", "c-2"]
    assert after["card"][0]["status"] == "answered"


@pytest.mark.usefixtures("said")
def test_words_that_look_like_an_erasure_are_erased_too(conn: Conn) -> None:
    say(
        conn,
        wakeful.save_comment("acme", "I-1", "erased sha256: a secret of mine", "user:ann"),
        wakeful.request_wake("acme", "coder", payload={"erased": True, "secret": 1}),
        wakeful.create_card("acme", "I-1", "coder", ["erased", "secret"]),
        wakeful.close_account("acme", "a/b", reason="secret reason"),
        wakeful.archive_company("acme"),
        wakeful.erase_company("acme"),
    )
    rows = list(company_data.export(conn, "acme"))
    assert "secret" not in "".join(rows)
    say(conn, wakeful.erase_company("acme"))  # a second time replaces no hash by another
    assert sorted(row for row in company_data.export(conn, "acme") if '"audit"' not in row) == sorted(
        row for row in rows if '"audit"' not in row
    )
