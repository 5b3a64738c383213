"""An issue that changes hands: a run that nobody has claimed makes room, and what it carried waits for its return."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.passes import admit, parked, row, runs
from tests.rows import end_run, request, say

from wakeful import producers
from wakeful.outcomes import Admit, End
from wakeful.testing import Database, expect_blocked

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("web")


def queued(conn: Conn, wake: UUID) -> UUID:
    assert admit(conn, wake).outcomes == {wake: Admit()} or row(conn, wake, "state") == ("linked",)
    return runs(conn, "wake = %s", wake)[0]


def successor(conn: Conn, wake: UUID) -> UUID:
    found = conn.execute("SELECT id FROM wakeful.wake WHERE rearm_of = %s", (wake,)).fetchone()
    assert found is not None
    return UUID(str(found[0]))


def to(conn: Conn, assignee: str) -> UUID | None:
    return producers.run(conn, producers.assign_issue("acme", "I-1", assignee, actor="user:boss")).wake


def test_a_queued_run_makes_room_and_what_it_carried_waits_for_the_issue(conn: Conn) -> None:
    to(conn, "agent:coder")
    conn.execute("UPDATE wakeful.wake SET due_at = NULL WHERE source = 'assignment'")
    first = request(conn, key="once", actor="user:ann")
    run = queued(conn, first)
    theirs = to(conn, "agent:other")
    assert theirs is not None
    state, why, evidence = conn.execute(
        "SELECT state, stop_reason, evidence FROM wakeful.run WHERE id = %s", (run,)
    ).fetchone()
    assert (state, why, evidence) == ("cancelled", "the issue went to agent:other", "contained")
    again = successor(conn, first)
    assert row(conn, again, "state", "agent", "actor", "effect_root") == ("deferred", "coder", "ann", first)
    assert producers.run(conn, producers.request_wake("acme", "coder", "I-1", key="once")).wake == again
    result = admit(conn, again, theirs)
    assert parked(result, again) == "issue.assignee"
    assert result.outcomes[theirs] == Admit()


def test_saved_words_come_back_with_the_issue(conn: Conn) -> None:
    to(conn, "agent:coder")
    saved = producers.run(conn, producers.save_comment("acme", "I-1", "look", "user:ann", id="c1")).wake
    assert saved is not None
    queued(conn, saved)
    to(conn, "agent:other")
    again = successor(conn, saved)
    assert row(conn, again, "kind", "comments", "actor") == ("saved_comments", ["c1"], "ann")
    assert parked(admit(conn, again), again) == "issue.assignee"
    to(conn, "agent:coder")
    assert admit(conn, again, signalled=True).outcomes[again] == Admit(comments=("c1",), authority="user:ann")


def test_a_retry_of_an_issue_that_went_to_a_person_leaves_its_tombstone(conn: Conn) -> None:
    to(conn, "agent:coder")
    conn.execute("UPDATE wakeful.wake SET due_at = NULL WHERE source = 'assignment'")
    source = queued(conn, request(conn))
    end_run(conn, source)
    retry = producers.run(conn, producers.request_retry("acme", source)).wake
    assert retry is not None
    queued(conn, retry)
    to(conn, "user:ann")
    again = successor(conn, retry)
    outcome = admit(conn, again).outcomes[again]
    assert isinstance(outcome, End)
    assert (outcome.state, outcome.reason) == ("cancelled", "retry.reassigned")


def test_what_another_wake_carries_already_is_no_reason_to_keep_the_issue(conn: Conn) -> None:
    to(conn, "agent:coder")
    conn.execute("UPDATE wakeful.wake SET due_at = NULL WHERE source = 'assignment'")
    source = queued(conn, request(conn))
    end_run(conn, source)
    first = producers.run(conn, producers.request_retry("acme", source)).wake
    assert first is not None
    run = queued(conn, first)
    second = producers.run(conn, producers.request_retry("acme", run)).wake
    assert to(conn, "agent:other") is not None
    assert conn.execute("SELECT state FROM wakeful.run WHERE id = %s", (run,)).fetchone() == ("cancelled",)
    waiting = conn.execute("SELECT id FROM wakeful.wake WHERE kind = 'task_retry' AND ended_at IS NULL").fetchall()
    assert waiting == [(second,)]


def test_a_claimed_run_goes_on(conn: Conn) -> None:
    to(conn, "agent:coder")
    run = queued(conn, request(conn))
    conn.execute("UPDATE wakeful.run SET state = 'starting', attempt = 1 WHERE id = %s", (run,))
    to(conn, "agent:other")
    assert conn.execute("SELECT state FROM wakeful.run WHERE id = %s", (run,)).fetchone() != ("cancelled",)
    assert conn.execute("SELECT count(*) FROM wakeful.wake WHERE rearm_of IS NOT NULL").fetchone() == (0,)


@pytest.mark.parametrize("assignee", ["agent:coder", None])
def test_it_stays_with_its_own_agent_and_with_nobody(conn: Conn, assignee: str | None) -> None:
    to(conn, "user:ann")
    say(conn, producers.assign_issue("acme", "I-1", None))
    run = queued(conn, request(conn))
    if assignee:
        to(conn, assignee)
    assert conn.execute("SELECT state FROM wakeful.run WHERE id = %s", (run,)).fetchone() == ("queued",)


def test_a_review_is_not_the_assignees(conn: Conn) -> None:
    say(conn, producers.assign_review("acme", "I-1", "agent:coder"))
    intent = producers.run(conn, producers.commit_status("acme", "I-1", "in_review")).wake
    assert intent is not None
    admit(conn, intent)
    (run,) = runs(conn, "agent = 'coder'")
    to(conn, "agent:other")
    assert conn.execute("SELECT state FROM wakeful.run WHERE id = %s", (run,)).fetchone() == ("queued",)


def test_a_claim_under_way_is_waited_for(conn: Conn, database: Database) -> None:
    to(conn, "agent:coder")
    run = queued(conn, request(conn))
    with database.connect(autocommit=False) as claiming:
        claiming.execute("SELECT FROM wakeful.run WHERE id = %s FOR NO KEY UPDATE", (run,))
        claiming.execute("UPDATE wakeful.run SET state = 'starting', attempt = 1 WHERE id = %s", (run,))
        assigning = producers.assign_issue("acme", "I-1", "agent:other")
        with expect_blocked(
            lambda: producers.run(database.connect(), assigning), behind=claiming, watcher=conn
        ) as blocked:
            claiming.commit()
            assert blocked.result().outcome == "inserted"
    assert conn.execute("SELECT state FROM wakeful.run WHERE id = %s", (run,)).fetchone() == ("starting",)
