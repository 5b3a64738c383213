"""The dispatcher of status intents, pass by pass: scopes, targets, gates, and what the next pass finds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.conftest import Listener
from tests.intents import ACME, Choosy, finish, intent, own, pending, reviewed_issues, state
from tests.passes import Held, admission, admit, end, follow, row, runs, start
from tests.rows import request, say

import wakeful
from wakeful.crash_points import CrashPoint
from wakeful.errors import Conflict
from wakeful.outcomes import Admit, End, Park
from wakeful.producers import Statement
from wakeful.scopes import dispatch_id
from wakeful.testing import Database, HoldAt, VirtualClock

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("board")


@pytest.fixture
def board(conn: Conn, company: str) -> None:
    reviewed_issues(conn)


# ── scopes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_intents_of_one_scope_are_one_run_and_the_others_follow_its_leader(conn: Conn) -> None:
    first, second, third = (intent(conn) for _ in range(3))
    result = admit(conn, third, first, second)
    [run] = runs(conn)
    assert result.runs == {first: run}
    assert row(conn, first, "state", "run", "coalesced_into") == ("linked", run, None)
    for follower in (second, third):
        assert row(conn, follower, "state", "run", "coalesced_into", "reason") == (
            *("coalesced", run, first, "intent.same_scope"),
        )
    assert isinstance(result.outcomes[first], Admit)


def test_agent_issue_review_and_company_keep_scopes_apart(conn: Conn) -> None:
    say(conn, wakeful.add_company("other"), wakeful.add_agent("other", "coder", ["true"]))
    own(conn, "I-1", "other")
    one, other_issue, elsewhere = intent(conn), intent(conn, "I-2"), intent(conn, company="other")
    assert len(admit(conn, one, other_issue).runs) == 2
    assert len(admission().admit(conn, "other", {elsewhere: False}).runs) == 1
    assert len(runs(conn)) == 3
    finish(conn)
    reviews = []
    for review in ("R-1", "R-2"):
        conn.execute("UPDATE wakeful.issue SET status = 'backlog' WHERE id = 'I-1'")
        reviews.append(intent(conn, "I-1", "in_review", review=review))
    result = admit(conn, *reviews)
    # Two reviews of one issue are two scopes; the second waits for the first one's run.
    assert list(result.runs) == reviews[:1]
    assert state(conn, reviews[1]) == "coalesced"
    assert len(pending(conn)) == 1


def test_the_next_pass_knows_nothing_of_the_former_scopes(conn: Conn) -> None:
    by = admission()
    first = intent(conn)
    admit(conn, first, by=by)
    second, third = intent(conn), intent(conn)
    admit(conn, second, third, by=by)
    [receipt] = pending(conn)
    assert receipt == dispatch_id(second)
    assert row(conn, second, "state", "coalesced_into", "run") == ("coalesced", receipt, None)
    assert row(conn, third, "state", "coalesced_into", "reason") == ("coalesced", receipt, "intent.same_scope")
    assert len(runs(conn)) == 1


def test_no_intent_joins_a_saved_dispatch_receipt(conn: Conn) -> None:
    say(conn, wakeful.pause_agent(ACME, "coder"))
    first, second = intent(conn), intent(conn)
    admit(conn, first)
    admit(conn, second)
    assert sorted(pending(conn)) == sorted([dispatch_id(first), dispatch_id(second)])


def test_halves_of_one_pass_share_their_scopes(conn: Conn) -> None:
    wakes = [intent(conn, issue) for issue in ("I-1", "I-2", "I-1", "I-1")]
    result = admit(conn, *wakes, by=admission(only=[Choosy(wakes[1])]))
    [run] = runs(conn)
    assert dict(result.runs) == {wakes[0]: run}
    assert [state(conn, wake) for wake in wakes] == ["linked", "error", "coalesced", "coalesced"]
    assert row(conn, wakes[3], "coalesced_into", "run") == (wakes[0], run)


# ── whose target stands no more ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (wakeful.set_issue_status(ACME, "I-1", "done"), "issue.terminal"),
        (wakeful.assign_issue(ACME, "I-1", "user:ann"), "intent.reassigned"),
        (wakeful.assign_issue(ACME, "I-1", "agent:critic"), "intent.reassigned"),
    ],
)
def test_an_intent_whose_target_changed_is_skipped(conn: Conn, change: Statement, reason: str) -> None:
    wake = intent(conn)
    say(conn, change)
    result = admit(conn, wake)
    assert isinstance(result.outcomes[wake], End)
    assert row(conn, wake, "state", "reason", "due_at", "run") == ("skipped", reason, None, None)
    assert row(conn, wake, "ended_at")[0] is not None


def test_a_review_is_its_reviewers_whoever_the_assignee_is(conn: Conn) -> None:
    wake = intent(conn, status="in_review")
    result = admit(conn, wake)
    [run] = runs(conn, "agent = 'critic'")
    assert result.runs == {wake: run}
    assert [key.run for key in start(conn)] == [run]
    finish(conn)
    conn.execute("UPDATE wakeful.issue SET status = 'todo'")
    late = intent(conn, status="in_review")
    say(conn, wakeful.assign_review(ACME, "I-1", "user:ann"))
    admit(conn, late)
    assert row(conn, late, "state", "reason") == ("skipped", "issue.reviewer")


def test_a_review_that_goes_elsewhere_before_its_run_starts_ends_the_run(conn: Conn) -> None:
    admit(conn, intent(conn, status="in_review"))
    say(conn, wakeful.assign_review(ACME, "I-1", None))
    assert start(conn) == ()
    assert conn.execute("SELECT state, reason FROM wakeful.run").fetchall() == [("cancelled", "issue.reviewer")]


def test_whatever_repeats_a_review_is_a_review(conn: Conn) -> None:
    wake = intent(conn, status="in_review", review="R-1")
    admit(conn, wake)
    [key] = start(conn)
    end(conn, key, "failed")
    again = wakeful.run(conn, wakeful.request_retry(ACME, key.run)).wake
    assert again is not None
    assert list(admit(conn, again).runs) == [again]
    [key] = start(conn)
    end(conn, key, "failed")
    third = wakeful.run(conn, wakeful.rearm_wake(ACME, wake)).wake
    assert third is not None
    assert row(conn, third, "kind", "state", "review") == ("native_status", "deferred", "R-1")
    assert list(admit(conn, third).runs) == [third]
    [key] = start(conn)
    [limited] = conn.execute("SELECT wakeful.save_behind_limit('acme', %s, wakeful.now())", (key.run,)).fetchone()
    assert row(conn, limited, "review", "decision") == row(conn, third, "review", "decision")
    end(conn, key, "failed")
    # Of what is no intent any more, a review that went elsewhere is retired.
    chat = wakeful.run(conn, wakeful.open_chat_action(ACME, key.run, actor="user:ann")).wake
    late = chat or wakeful.run(conn, wakeful.request_retry(ACME, key.run)).wake
    assert late is not None
    assert row(conn, late, "review") == ("R-1",)
    say(conn, wakeful.assign_review(ACME, "I-1", None))
    admission().judge_now(conn, ACME, limited)
    assert row(conn, limited, "state", "reason") == ("retired", "issue.reviewer")


def test_an_agent_that_is_no_more_ends_all_intents_of_its_scope(conn: Conn) -> None:
    wakes = [intent(conn), intent(conn)]
    say(conn, wakeful.terminate_agent(ACME, "coder"))
    admit(conn, *wakes)
    assert [row(conn, wake, "state", "reason") for wake in wakes] == [("retired", "agent.terminated")] * 2


# ── closed gates ────────────────────────────────────────────────────────────────────────────────────────


def test_a_closed_gate_saves_a_dispatch_receipt_which_its_opening_admits_once(conn: Conn, listener: Listener) -> None:
    say(conn, wakeful.pause_agent(ACME, "coder"))
    first, second = intent(conn), intent(conn)
    result = admit(conn, first, second)
    receipt = dispatch_id(first)
    assert pending(conn) == [receipt]
    outcome = result.outcomes[receipt]
    assert isinstance(outcome, Park)
    columns = ["kind", "owner", "state", "agent", "issue", "review", "wait_gate", "wait_key", "wait_reason"]
    *plain, grace, due = row(conn, receipt, *columns, "effect_root", "grace_from", "due_at")
    assert plain == [
        *("dispatch", "execution_wait", "deferred", "coder", "I-1", None),
        *("agent", "coder", "agent.paused_manual", receipt),
    ]
    assert timedelta(seconds=29) < due - grace <= timedelta(seconds=30)
    assert [row(conn, wake, "state", "coalesced_into") for wake in (first, second)] == [("coalesced", receipt)] * 2
    assert runs(conn) == []
    listener.heard()
    say(conn, wakeful.resume_agent(ACME, "coder"))
    looked = follow(conn, listener.heard())
    assert looked == [receipt]
    result = admit(conn, *looked, signalled=True)
    [run] = runs(conn)
    assert result.runs == {receipt: run}
    assert row(conn, receipt, "state", "run") == ("linked", run)


def test_the_same_gate_closed_after_its_grace_is_silence(conn: Conn, clock: VirtualClock) -> None:
    say(conn, wakeful.pause_agent(ACME, "coder"))
    admit(conn, intent(conn))
    [receipt] = pending(conn)
    before = row(conn, receipt, "version", "grace_from", "wait_since")
    clock.advance(31)
    admit(conn, receipt)
    assert row(conn, receipt, "version", "grace_from", "wait_since") == before
    assert row(conn, receipt, "due_at") == (None,)


def test_a_dispatch_receipt_whose_target_changed_is_retired(conn: Conn) -> None:
    say(conn, wakeful.pause_agent(ACME, "coder"))
    admit(conn, intent(conn), intent(conn, "I-2"))
    one, two = pending(conn)
    say(conn, wakeful.set_issue_status(ACME, row(conn, one, "issue")[0], "done"))
    say(conn, wakeful.assign_issue(ACME, row(conn, two, "issue")[0], "agent:critic"))
    admit(conn, one, two, signalled=True)
    assert row(conn, one, "state", "reason") == ("retired", "issue.terminal")
    assert row(conn, two, "state", "reason") == ("retired", "intent.reassigned")


def test_limits_hold_among_intents_as_among_all_others(conn: Conn) -> None:
    say(conn, wakeful.add_agent(ACME, "coder", ["true"], max_concurrent_runs=2))
    own(conn, "I-3")
    wakes = [intent(conn, issue) for issue in ("I-1", "I-2", "I-3")]
    result = admit(conn, request(conn, "X-1"), *wakes)
    assert len(result.runs) == 2
    assert len(runs(conn)) == 2
    waiting = conn.execute("SELECT kind, wait_reason FROM wakeful.wake WHERE ended_at IS NULL").fetchall()
    assert waiting == [("dispatch", "concurrency.agent")] * 2


def test_a_gate_that_opens_between_judgement_and_commit_is_looked_at_again(database: Database, conn: Conn) -> None:
    say(conn, wakeful.pause_agent(ACME, "coder"))
    wake = intent(conn)
    other, held = database.connect(), HoldAt(CrashPoint.ADMISSION_AFTER_COMMIT)
    by = admission(crash=held)
    work = Held(lambda: by.dispatch(other, ACME, [wake], by.dispatcher()))
    try:
        held.wait_reached()
        say(conn, wakeful.resume_agent(ACME, "coder"))
    finally:
        held.release()
    assert work.result().reopened == {dispatch_id(wake)}


def test_a_claimed_intent_is_not_taken_back_under_its_dispatchers_hands(conn: Conn) -> None:
    wake = intent(conn)
    conn.execute(
        "UPDATE wakeful.wake SET state = 'claimed', claimed_at = wakeful.now(), claimed_by = 'another' WHERE id = %s",
        (wake,),
    )
    with pytest.raises(Conflict, match="a dispatcher has taken wake"):
        wakeful.run(conn, wakeful.retire_wake(ACME, wake))
    assert state(conn, wake) == "claimed"
