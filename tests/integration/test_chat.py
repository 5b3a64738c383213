"""A retry asked for in a chat: how it is asked for and settled, by whom, and what is seen of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.chats import ACME, ANN, CODER, FAILED, PROCESSED, asked, failed, settle, settled
from tests.command_line import CommandLine
from tests.conftest import Listener
from tests.passes import admission, admit, end, row, runs, start
from tests.rows import audits, request, say, wake_of

from wakeful import explain, listings, producers
from wakeful.admission import PassResult
from wakeful.errors import Conflict, InvalidInput, NotFound
from wakeful.producers import Statement
from wakeful.testing import Database, expect_blocked

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("web")


# ── asking ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chats_retry_is_saved_with_its_action_under_one_id_and_signals_nothing(
    conn: Conn, listener: Listener
) -> None:
    source = failed(conn, payload={"a": 1}, priority=4)
    listener.heard()
    before = audits(conn)
    wake = asked(conn, source)
    saved = wake_of(conn, wake)
    assert (saved.kind, saved.agent, saved.issue, saved.payload, saved.priority) == (
        *("task_retry", CODER, "I-1", {"a": 1}, 4),
    )
    assert (saved.actor_kind, saved.actor, saved.certified_run, saved.certified_generation) == (
        "user",
        "ann",
        source,
        1,
    )
    assert (saved.owner, saved.chat_action, saved.chat_outcome) == ("settlement", str(wake), None)
    assert (saved.wait_gate, saved.wait_key, saved.wait_reason) == ("chat", str(wake), "chat.unsettled")
    assert (saved.due_at, saved.grace_from) == (None, None)
    action = conn.execute(
        "SELECT kind, state, agent, issue, source_run, actor FROM wakeful.chat_action WHERE id = %s", (wake,)
    ).fetchone()
    assert action == ("failed_run_retry", "pending", CODER, "I-1", source, ANN)
    assert audits(conn) == before + 1
    assert listener.heard() == []
    why = explain.why(conn, ACME, wake)
    assert (why.gate, why.key, why.reason) == ("chat", str(wake), "chat.unsettled")
    assert why.opens_on == f"the chat's own settlement: wakeful chat settle {wake}"
    assert why.next_look is None


def test_its_own_payload_and_key_are_kept(conn: Conn) -> None:
    source = failed(conn)
    wake = asked(conn, source, payload={"b": 2}, key="click")
    assert row(conn, wake, "payload", "key") == ({"b": 2}, "click")
    other = failed(conn, "I-2")
    again = producers.run(conn, producers.open_chat_action(ACME, other, ANN, key="click"))
    assert (again.outcome, again.wake) == ("existing", wake)


def test_it_repeats_the_comments_that_its_source_was_given(conn: Conn) -> None:
    say(conn, producers.save_comment(ACME, "I-1", "please", ANN, id="C-1", agent=CODER))
    (saved,) = conn.execute("SELECT id FROM wakeful.wake WHERE kind = 'saved_comments'").fetchone() or (None,)
    assert isinstance(saved, UUID)
    run = admit(conn, saved).runs[saved]
    (key,) = start(conn)
    end(conn, key)
    wake = asked(conn, run)
    settled(conn, wake)
    settle(conn, wake)
    again = admit(conn, wake).runs[wake]
    assert conn.execute("SELECT comments, retry_of FROM wakeful.run WHERE id = %s", (again,)).fetchone() == (
        ["C-1"],
        run,
    )


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_run_that_has_not_ended_is_not_retried_in_a_chat(conn: Conn, state: str) -> None:
    wake = request(conn)
    run = admit(conn, wake).runs[wake]
    if state == "running":
        start(conn)
    with pytest.raises(Conflict, match="has not ended"):
        producers.run(conn, producers.open_chat_action(ACME, run, ANN))


def test_what_cannot_be_retried_in_a_chat_is_refused(conn: Conn) -> None:
    source = failed(conn)
    for actor in ("agent:coder", "system:cron"):
        with pytest.raises(InvalidInput, match="by a person"):
            producers.run(conn, producers.open_chat_action(ACME, source, actor))
    with pytest.raises(NotFound, match="does not exist"):
        producers.run(conn, producers.open_chat_action(ACME, uuid4(), ANN))
    conn.execute("INSERT INTO wakeful.run (company, agent, kind) VALUES ('acme', 'coder', 'supervisor')")
    (walk,) = runs(conn, "kind = 'supervisor'")
    with pytest.raises(Conflict, match="supervisor"):
        producers.run(conn, producers.open_chat_action(ACME, walk, ANN))
    done = request(conn, "I-2")
    run = admit(conn, done).runs[done]
    (key,) = start(conn)
    end(conn, key, "succeeded")
    with pytest.raises(Conflict, match="succeeded"):
        producers.run(conn, producers.open_chat_action(ACME, run, ANN))
    assert conn.execute("SELECT count(*) FROM wakeful.chat_action").fetchone() == (0,)


@pytest.mark.parametrize("first", ["chat", "plain"])
@pytest.mark.parametrize("second", ["chat", "plain"])
def test_a_second_retry_of_one_run_is_existing_whichever_way_it_is_asked_for(
    conn: Conn, first: str, second: str
) -> None:
    source = failed(conn)
    ways: dict[str, Callable[[str], Statement]] = {
        "chat": lambda key: producers.open_chat_action(ACME, source, ANN, key=key),
        "plain": lambda key: producers.request_retry(ACME, source, key=key, actor=ANN),
    }
    made = producers.run(conn, ways[first]("a"))
    again = producers.run(conn, ways[second]("b"))
    assert (again.outcome, again.wake) == ("existing", made.wake)
    assert conn.execute("SELECT count(*) FROM wakeful.chat_action").fetchone() == (first == "chat",)
    assert conn.execute("SELECT count(*) FROM wakeful.wake_key WHERE key = 'b'").fetchone() == (0,)


def test_a_second_click_waits_for_the_firsts_fate(conn: Conn, database: Database) -> None:
    source = failed(conn)
    first, second = database.connect(autocommit=False), database.connect()
    made = producers.run(first, producers.open_chat_action(ACME, source, ANN))
    click = producers.open_chat_action(ACME, source, "user:bob")
    with expect_blocked(lambda: producers.run(second, click), behind=first, watcher=conn) as blocked:
        first.commit()
        answer = blocked.result()
    assert (answer.outcome, answer.wake) == ("existing", made.wake)
    assert conn.execute("SELECT count(*) FROM wakeful.chat_action").fetchone() == (1,)


# ── the action's own states ─────────────────────────────────────────────────────────────────────────────


def test_an_action_is_begun_once_and_settled_once(conn: Conn, listener: Listener) -> None:
    wake = asked(conn, failed(conn))
    listener.heard()
    begun = [producers.run(conn, producers.begin_chat_action(ACME, wake, actor="system:chat")) for _ in range(2)]
    assert [(one.outcome, one.wake, one.state) for one in begun] == [
        ("merged", wake, "processing"),
        ("existing", wake, "processing"),
    ]
    assert listener.heard() == []
    before = audits(conn)
    first = settled(conn, wake, FAILED, error="the chat is gone", actor="system:chat")
    assert (first.outcome, first.wake, first.state, first.run) == ("merged", wake, FAILED, None)
    assert listener.heard() == [{"t": "settlement", "c": ACME, "w": str(wake)}]
    again = settled(conn, wake, FAILED, error="in other words")
    assert (again.outcome, again.state) == ("existing", FAILED)
    for state, how in ((PROCESSED, {}), (PROCESSED, {"run": runs(conn)[0]})):
        with pytest.raises(Conflict, match="settled already: failed"):
            settled(conn, wake, state, **how)
    with pytest.raises(Conflict, match="is settled"):
        producers.run(conn, producers.begin_chat_action(ACME, wake))
    assert listener.heard() == []
    assert audits(conn) == before + 1
    kept = conn.execute("SELECT state, error, settled_by FROM wakeful.chat_action WHERE id = %s", (wake,)).fetchone()
    assert kept == (FAILED, "the chat is gone", "system:chat")


def test_an_action_settled_by_one_run_is_not_settled_by_another(conn: Conn) -> None:
    wake = asked(conn, failed(conn))
    one, two = failed(conn, "I-2"), failed(conn, "I-3")
    assert settled(conn, wake, run=one).run == one
    assert settled(conn, wake, run=one).outcome == "existing"
    with pytest.raises(Conflict, match=str(one)):
        settled(conn, wake, run=two)


@pytest.mark.parametrize(
    ("state", "how", "error"),
    [
        ("done", {}, InvalidInput),
        (FAILED, {"run": uuid4()}, InvalidInput),
        (PROCESSED, {"error": "x"}, InvalidInput),
        (PROCESSED, {"run": uuid4()}, NotFound),
        (FAILED, {"error": "é" * 32769}, InvalidInput),
    ],
)
def test_an_outcome_that_is_none_is_refused(conn: Conn, state: str, how: Any, error: type[Exception]) -> None:
    wake = asked(conn, failed(conn))
    with pytest.raises(error):
        settled(conn, wake, state, **how)
    assert conn.execute("SELECT state FROM wakeful.chat_action").fetchone() == ("pending",)


def test_an_unknown_action_is_said_to_be_unknown(conn: Conn) -> None:
    for statement in (
        producers.begin_chat_action(ACME, uuid4()),
        producers.settle_chat_action(ACME, uuid4(), PROCESSED),
    ):
        with pytest.raises(NotFound, match="chat action"):
            producers.run(conn, statement)


def test_the_database_keeps_an_actions_outcome(conn: Conn) -> None:
    wake = asked(conn, failed(conn))
    producers.run(conn, producers.begin_chat_action(ACME, wake))
    with pytest.raises(psycopg.Error, match="cannot take that step"):
        conn.execute("UPDATE wakeful.chat_action SET state = 'pending' WHERE id = %s", (wake,))
    settled(conn, wake, FAILED)
    for change in ("state = 'processed'", "settled_by = 'user:eve'", "state = 'pending', settled_at = NULL"):
        with pytest.raises(psycopg.Error, match="is final"):
            conn.execute(f"UPDATE wakeful.chat_action SET {change} WHERE id = %s", (wake,))  # noqa: S608 - a test's own words


# ── roles and tenants ───────────────────────────────────────────────────────────────────────────────────


def test_a_host_asks_and_settles_and_a_scheduler_folds_with_the_rights_they_have(
    conn: Conn, database: Database
) -> None:
    host, scheduler = database.connect_as("wakeful_host"), database.connect_as("wakeful_scheduler")
    wake = asked(host, failed(conn))
    producers.run(host, producers.begin_chat_action(ACME, wake))
    settled(host, wake)
    assert settle(scheduler, wake).reopened == {wake}
    assert set(admit(scheduler, wake).runs) == {wake}
    for verb in ("SELECT FROM", "DELETE FROM"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            host.execute(f"{verb} wakeful.chat_action")


def test_another_tenants_actions_do_not_exist(conn: Conn) -> None:
    source = failed(conn)
    wake = asked(conn, source)
    say(conn, producers.add_company("b"))
    for statement in (
        producers.open_chat_action("b", source, ANN),
        producers.begin_chat_action("b", wake),
        producers.settle_chat_action("b", wake, PROCESSED),
    ):
        with pytest.raises(NotFound):
            producers.run(conn, statement)
    assert admission().settle(conn, "b", [wake]) == PassResult()


# ── a company's data; the command line ──────────────────────────────────────────────────────────────────


def test_erasing_a_company_takes_the_chats_words_and_keeps_their_hash(conn: Conn) -> None:
    wake = asked(conn, failed(conn))
    settled(conn, wake, FAILED, error="ann said no")
    settle(conn, wake)
    say(conn, producers.archive_company(ACME), producers.erase_company(ACME))
    action = conn.execute("SELECT error FROM wakeful.chat_action WHERE id = %s", (wake,)).fetchone()
    for text in (*(action or ()), *row(conn, wake, "wait_message")):
        assert text.startswith("erased sha256:")


def test_an_expired_wake_takes_its_action_along(conn: Conn) -> None:
    wake = asked(conn, failed(conn))
    settled(conn, wake, FAILED)
    settle(conn, wake)
    conn.execute("DELETE FROM wakeful.wake WHERE id = %s", (wake,))
    assert conn.execute("SELECT count(*) FROM wakeful.chat_action").fetchone() == (0,)


def test_chat_actions_are_listed_newest_first_in_pages(conn: Conn) -> None:
    wakes = [asked(conn, failed(conn, f"C-{n}")) for n in range(5)]
    settled(conn, wakes[2], FAILED)
    found, after = [], None
    while True:
        page = listings.page(conn, "chats", company=ACME, limit=2, after=after)
        found += [line["id"] for line in page.rows]
        if (after := page.after) is None:
            break
    assert found == wakes[::-1]
    (one,) = listings.page(conn, "chats", company=ACME, states=["failed"]).rows
    assert one["id"] == wakes[2]
    with pytest.raises(NotFound, match="chat action"):
        listings.chat(conn, ACME, uuid4())


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "data", database.dsn, {"WAKEFUL_COMPANY": ACME})


def test_the_command_line_asks_begins_settles_lists_and_shows(cli: CommandLine, conn: Conn) -> None:
    source = failed(conn)
    assert "by a person" in cli("chat", "retry", str(source), "--as", "system:cron").err
    made = cli("chat", "retry", str(source), "--as", ANN, "--payload", '{"b": 2}', "--json").json
    assert (made["outcome"], made["retry_of"], made["state"]) == ("inserted", str(source), "deferred")
    action = made["wake"]
    assert "exists already, deferred" in cli("chat", "retry", str(source), "--as", ANN).out
    assert cli("chat", "begin", action).out == f"chat action {action}: processing\n"
    assert cli("chat", "begin", action[:13]).out == f"chat action {action}: processing, as before\n"
    assert [line["id"] for line in cli("chat", "list", "--state", "processing", "--json").json["rows"]] == [action]
    assert "chat.unsettled" in cli("why", action, "--json").out
    unsaid = cli("chat", "settle", action)
    assert (unsaid.code, "--processed or --failed" in unsaid.err) == (2, True)
    assert cli("chat", "settle", action, "--failed", "--error", "no").out == f"chat action {action}: failed\n"
    assert cli("chat", "settle", action, "--failed").out == f"chat action {action}: failed, as before\n"
    assert cli("chat", "settle", action, "--processed", "--run", str(source)).code == 4
    shown = cli("chat", "show", action, "--json").json
    assert (shown["state"], shown["error"], shown["source_run"]) == ("failed", "no", str(source))
    assert "failed" in cli("chat", "show", action).out
    assert cli("chat", "show", "0199aaaa").code == 1
