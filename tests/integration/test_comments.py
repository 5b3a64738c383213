"""Comments saved for an agent: one receipt waits for each (agent, issue, actor), and every word reaches one run."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.conftest import Listener
from tests.passes import row
from tests.rows import audits

import wakeful
from wakeful.errors import Conflict, InvalidInput, NotFound
from wakeful.producers import ProducerResult
from wakeful.testing import Database, expect_blocked

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("web")


def save(conn: Conn, id: str, *, issue: str = "I-1", author: str = "user:ann", body: str = "words", **more: Any) -> Any:
    return wakeful.run(conn, wakeful.save_comment("acme", issue, body, author, id=id, **more))


@pytest.fixture(autouse=True)
def assigned(conn: Conn, web: None) -> None:
    """The issue is the agent's, and nothing waits on it."""
    conn.execute("UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = 'coder' WHERE id = 'I-1'")


# ── saving ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_comment_wakes_the_assignee_at_once(conn: Conn, listener: Listener) -> None:
    saved = save(conn, "c-1", author="user:ann")
    assert (saved.outcome, saved.state, saved.run) == ("inserted", "deferred", None)
    kind, owner, agent, source, actor, comments = row(
        conn, saved.wake, "kind", "owner", "agent", "source", "actor_kind || ':' || actor", "comments"
    )
    assert (kind, owner, agent, source, actor, comments) == (
        *("saved_comments", "saved_comments", "coder", "on_demand", "user:ann", ["c-1"]),
    )
    assert row(conn, saved.wake, "due_at <= wakeful.now()", "wait_reason", "project") == (True, None, "web")
    [signal] = listener.heard()
    assert (signal["t"], signal["w"], signal["o"]) == ("eligibility", str(saved.wake), "saved_comments")


def test_new_ids_join_the_receipt_in_order_and_known_ones_change_nothing(conn: Conn, listener: Listener) -> None:
    first = save(conn, "c-1")
    second = save(conn, "c-2")
    assert second == ProducerResult("merged", first.wake, "deferred", None)
    assert row(conn, first.wake, "comments", "version") == (["c-1", "c-2"], 2)
    before = (row(conn, first.wake, "w.*::text" if False else "to_jsonb(wake)"), audits(conn))
    listener.heard()
    assert save(conn, "c-1", body="other words") == ProducerResult("existing", first.wake, "deferred", None)
    assert (row(conn, first.wake, "to_jsonb(wake)"), audits(conn)) == before
    assert listener.heard() == []
    assert conn.execute("SELECT body FROM wakeful.comment WHERE id = 'c-1'").fetchone() == ("words",)
