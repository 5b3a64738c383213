"""The dispatcher of status intents, pass by pass: claims, scopes, gates, failures, and what the next pass finds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conftest import Listener
from tests.passes import Held, admission, admit, end, follow, row, runs, start
from tests.rows import request, say

import wakeful
from wakeful import explain, intents
from wakeful.admission import PASS, PassResult
from wakeful.crash_points import CrashPoint
from wakeful.executions import RunKey
from wakeful.outcomes import Admit, End, Gone, Moved, Park
from wakeful.producers import Statement
from wakeful.receipts import Fact
from wakeful.scopes import dispatch_id
from wakeful.standings import Standing
from wakeful.testing import Database, HoldAt, VirtualClock, expect_blocked
from wakeful_plugins.native_status import StatusIntents

Conn = psycopg.Connection[Any]
ACME = "acme"

pytestmark = pytest.mark.usefixtures("board")


@pytest.fixture
def board(conn: Conn, company: str) -> None:
    """Issues I-1 and I-2 of coder, which critic reviews."""
    say(conn, wakeful.add_agent(ACME, "critic", ["true"]))
    for issue in ("I-1", "I-2"):
        own(conn, issue)
        say(conn, wakeful.assign_review(ACME, issue, "agent:critic"))


def own(conn: Conn, issue: str, company: str = ACME, agent: str = "coder") -> None:
    """Make an issue an agent's without asking for a run."""
    say(conn, wakeful.create_issue(company, issue))
    conn.execute(
        "UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = %s WHERE company = %s AND id = %s",
        (agent, company, issue),
    )


def intent(conn: Conn, issue: str = "I-1", status: str | None = None, company: str = ACME, **given: Any) -> UUID:
    """Commit a change of status that wakes somebody, and return the intent."""
    [now] = conn.execute("SELECT status FROM wakeful.issue WHERE company = %s AND id = %s", (company, issue)).fetchone()
    wanted = status or ("todo" if now == "in_progress" else "in_progress")
    made = wakeful.run(conn, wakeful.commit_status(company, issue, wanted, **given)).wake
    assert made is not None
    return made


def state(conn: Conn, wake: UUID) -> str:
    return row(conn, wake, "state")[0]


def pending(conn: Conn, kind: str = "dispatch") -> list[UUID]:
    found = conn.execute(
        "SELECT id FROM wakeful.wake WHERE kind = %s AND ended_at IS NULL ORDER BY created_at, id", (kind,)
    )
    return [wake for (wake,) in found]


def finish(conn: Conn) -> None:
    """Start what is queued and end all that runs."""
    for (company,) in conn.execute("SELECT company FROM wakeful.company").fetchall():
        start(conn, company)
    found = conn.execute("SELECT company, id, generation FROM wakeful.run WHERE ended_at IS NULL").fetchall()
    for key in found:
        end(conn, RunKey(*key), "succeeded")


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


class Choosy(StatusIntents):
    """Cannot judge one of them."""

    def __init__(self, bad: UUID) -> None:
        self._bad = bad

    def judge(self, facts: Sequence[Fact]) -> Any:
        if self._bad in [fact.id for fact in facts]:
            raise ValueError("this one cannot be judged")
        return super().judge(facts)


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


# ── claims, deadlines, failures ─────────────────────────────────────────────────────────────────────────


def test_a_claim_is_committed_for_sixty_seconds_before_anything_is_dispatched(database: Database, conn: Conn) -> None:
    wake = intent(conn)
    other, held = database.connect(), HoldAt(CrashPoint.INTENT_AFTER_COMMIT)
    work = Held(lambda: admission(crash=held).admit(other, ACME, {wake: False}))
    try:
        held.wait_reached()
        columns = ("state", "due_at - claimed_at", "claimed_by IS NOT NULL")
        assert row(conn, wake, *columns) == ("claimed", timedelta(seconds=60), True)
        assert runs(conn) == []
        # Another dispatcher takes note of the stored deadline, and of nothing else.
        result = admit(conn, wake)
        assert result.outcomes == {wake: Moved(row(conn, wake, "due_at")[0])}
    finally:
        held.release()
    assert list(work.result().runs) == [wake]


def dying(at: CrashPoint) -> Any:
    def crash(point: str) -> None:
        if point == at:
            raise KeyboardInterrupt(point)

    return crash


def abandon(conn: Conn, database: Database, *wakes: UUID) -> None:
    """Let a dispatcher claim and die."""
    with pytest.raises(KeyboardInterrupt):
        admission(crash=dying(CrashPoint.INTENT_AFTER_COMMIT)).admit(
            database.connect(), ACME, dict.fromkeys(wakes, False)
        )


def test_a_dead_dispatchers_claim_is_anothers_after_sixty_seconds_and_makes_one_run(
    database: Database, conn: Conn, clock: VirtualClock
) -> None:
    wakes = [intent(conn), intent(conn)]
    abandon(conn, database, *wakes)
    assert [state(conn, wake) for wake in wakes] == ["claimed"] * 2
    clock.advance(59)
    assert all(isinstance(o, Moved) for o in admit(conn, *wakes).outcomes.values())
    clock.advance(1)
    assert list(admit(conn, *wakes).runs) == wakes[:1]
    assert len(runs(conn)) == 1


def test_a_lost_lease_writes_nothing(database: Database, conn: Conn, clock: VirtualClock) -> None:
    """A dispatcher that slept through its claim finds that another one has it."""
    wake = intent(conn)
    other, held = database.connect(), HoldAt(CrashPoint.INTENT_AFTER_COMMIT)
    work = Held(lambda: admission(crash=held).admit(other, ACME, {wake: False}))
    try:
        held.wait_reached()
        clock.advance(61)
        abandon(conn, database, wake)
        before = row(conn, wake, "xmin::text", "claimed_by", "claimed_at", "due_at")
    finally:
        held.release()
    result = work.result()
    assert result.outcomes == {wake: Moved(before[3])}
    assert row(conn, wake, "xmin::text", "claimed_by", "claimed_at", "due_at") == before
    assert runs(conn) == []


def test_two_dispatchers_at_once_claim_each_intent_once(database: Database, conn: Conn) -> None:
    wakes = [intent(conn), intent(conn)]
    other, held = database.connect(), HoldAt(CrashPoint.INTENT_BEFORE_COMMIT)
    work = Held(lambda: admission(crash=held).admit(other, ACME, dict.fromkeys(wakes, False)))
    try:
        held.wait_reached()
        assert admit(conn, *wakes).busy == set(wakes)
    finally:
        held.release()
    assert list(work.result().runs) == wakes[:1]
    assert len(runs(conn)) == 1


def test_one_bad_intent_fails_alone_for_thirty_seconds(conn: Conn, clock: VirtualClock) -> None:
    wakes = [intent(conn, issue) for issue in ("I-1", "I-2")]
    bad = admission(only=[Choosy(wakes[0])])
    result = admit(conn, *wakes, by=bad)
    assert list(result.runs) == wakes[1:]
    columns = ("state", "due_at - error_at", "failures", "error")
    assert row(conn, wakes[0], *columns) == (
        *("error", timedelta(seconds=30), 1, "ValueError: this one cannot be judged"),
    )
    assert result.set_aside == {wakes[0]: row(conn, wakes[0], "due_at")[0]}
    # However often it fails, the stored thirty seconds are the whole rule.
    for failures in (2, 3, 4):
        clock.advance(30)
        admit(conn, wakes[0], by=bad)
        assert row(conn, wakes[0], *columns[:3]) == ("error", timedelta(seconds=30), failures)
    clock.advance(29)
    assert isinstance(admit(conn, wakes[0]).outcomes[wakes[0]], Moved)
    clock.advance(1)
    assert list(admit(conn, wakes[0]).runs) == wakes[:1]
    assert row(conn, wakes[0], "error", "error_at") == (None, None)


def test_a_deadlock_is_an_error_of_thirty_seconds_and_no_lost_claim(conn: Conn) -> None:
    class Clashing(StatusIntents):
        def judge(self, facts: Sequence[Fact]) -> Any:
            raise psycopg.errors.DeadlockDetected("as if two had met")

    wakes = [intent(conn), intent(conn, "I-2")]
    result = admit(conn, *wakes, by=admission(only=[Clashing()]))
    assert set(result.set_aside) == set(wakes)
    assert [state(conn, wake) for wake in wakes] == ["error"] * 2


def test_what_ended_meanwhile_or_was_never_there_is_gone(conn: Conn) -> None:
    wake = intent(conn)
    dispatcher = admission().dispatcher()
    say(conn, wakeful.retire_wake(ACME, wake))
    assert dispatcher.dispatch(conn, ACME, [wake]).outcomes == {wake: Gone()}


def test_a_deadline_that_moved_is_read_again_under_the_lock(database: Database, conn: Conn) -> None:
    """The claim sees the row as it stands when it gets to it, not as somebody once read it."""
    wake = intent(conn)
    later = datetime.fromisoformat("2100-01-01T00:00:00+00:00")
    conn.execute("UPDATE wakeful.wake SET due_at = %s WHERE id = %s", (later, wake))
    assert admit(conn, wake).outcomes == {wake: Moved(later)}
    assert row(conn, wake, "state", "claimed_at") == ("queued", None)


def test_a_late_intent_belongs_to_the_next_pass_however_old_it_says_it_is(database: Database, conn: Conn) -> None:
    first = intent(conn)
    holder, other, late_writer = database.connect(autocommit=False), database.connect(), database.connect()
    by = admission()
    holder.execute("SELECT FROM wakeful.issue WHERE id = 'I-1' FOR NO KEY UPDATE")
    with expect_blocked(lambda: by.admit(other, ACME, {first: False}), behind=holder, watcher=conn) as blocked:
        # The committer waits for the same lock: its transaction is the one that holds it.
        made = wakeful.run(holder, wakeful.commit_status(ACME, "I-1", "todo"))
        holder.execute("UPDATE wakeful.wake SET requested_at = '2001-01-01' WHERE id = %s", (made.wake,))
        holder.commit()
        result = blocked.result()
    late_writer.close()
    late = made.wake
    assert late is not None
    assert list(result.runs) == [first]
    assert state(conn, late) == "queued"
    admit(conn, late, by=by)
    assert len(runs(conn)) == 1
    finish(conn)
    [receipt] = pending(conn)
    assert list(admit(conn, receipt, signalled=True, by=by).runs) == [receipt]
    assert len(runs(conn)) == 2


def test_an_intent_says_where_it_stands(database: Database, conn: Conn, clock: VirtualClock) -> None:
    wake, other = intent(conn), intent(conn, "I-2")

    def said(one: UUID) -> tuple[Standing, str]:
        found = explain.why(conn, ACME, one)
        return found.standing, found.because

    assert said(wake)[0] is Standing.DUE
    abandon(conn, database, wake)
    assert said(wake)[0] is Standing.DUE
    assert "has taken it" in said(wake)[1]
    clock.advance(61)
    assert "did not come back" in said(wake)[1]
    admit(conn, other, by=admission(only=[Choosy(other)]))
    assert said(other) == (Standing.SLEEPING, "it could not be dispatched, and is tried again")
    assert "cannot be judged" in explain.why(conn, ACME, other).notes[0]
    say(conn, wakeful.pause_agent(ACME, "coder"))
    admit(conn, wake)
    assert said(wake) == (Standing.MERGED, f"another wake or run carries it: {dispatch_id(wake)}")
    assert explain.why(conn, ACME, dispatch_id(wake)).gate == "agent"


# ── by hand ─────────────────────────────────────────────────────────────────────────────────────────────


def by_hand(conn: Conn, company: str | None = None) -> dict[str, PassResult]:
    """A manual pass, as the command line does it."""
    by = admission()
    dispatcher = by.dispatcher(tell=True)
    due = intents.due(conn, company, PASS)
    return {name: by.dispatch(conn, name, ids, dispatcher) for name, ids in due.items()}


def test_a_pass_takes_a_hundred_fairly_and_leaves_the_rest(conn: Conn) -> None:
    say(conn, wakeful.add_company("other"), wakeful.add_agent("other", "coder", ["true"]))
    own(conn, "I-1", "other")
    for number in range(PASS):
        own(conn, f"J-{number}")
        intent(conn, f"J-{number}")
    single = intent(conn, company="other")
    taken = by_hand(conn)
    assert sum(len(result.outcomes) for result in taken.values()) == PASS
    assert list(taken["other"].runs) == [single]
    assert len(runs(conn)) == PASS
    [left] = pending(conn, "native_status")
    assert list(by_hand(conn)) == [ACME]
    assert state(conn, left) == "linked"
    assert by_hand(conn) == {}


def test_unclaimable_ones_take_nobodys_place(database: Database, conn: Conn) -> None:
    for number in range(PASS):
        own(conn, f"J-{number}")
    abandon(conn, database, *(intent(conn, f"J-{number}") for number in range(PASS)))
    single = intent(conn)
    assert [list(result.runs) for result in by_hand(conn).values()] == [[single]]


def test_a_pass_by_hand_tells_the_scheduler_of_the_deadlines_it_stored(conn: Conn, listener: Listener) -> None:
    say(conn, wakeful.pause_agent(ACME, "coder"))
    wake = intent(conn)
    listener.heard()
    by_hand(conn, ACME)
    [signal] = listener.heard()
    assert (signal["w"], signal["o"]) == (str(dispatch_id(wake)), "execution_wait")
    # A scheduler's own bookkeeping tells nobody: it would only hear itself.
    admit(conn, intent(conn, "I-2"))
    assert [s for s in listener.heard() if "w" in s and s["o"] == "execution_wait"] == []


@pytest.mark.parametrize(("name", "value", "back"), [("draining", True, False), ("scheduler_enabled", False, True)])
def test_nothing_is_admitted_while_the_instance_rests_and_the_claim_is_given_back(
    database: Database, conn: Conn, name: str, value: bool, back: bool
) -> None:
    left = intent(conn, "I-2")
    abandon(conn, database, left)
    wake = intent(conn)
    say(conn, wakeful.set_setting(name, value))
    assert admit(conn, wake).busy == {wake}
    assert row(conn, wake, "state", "claimed_at", "claimed_by", "due_at <= wakeful.now()") == (
        *("queued", None, None, True),
    )
    # What a dispatcher has claimed and not come back from is not settled: its claim stands.
    assert state(conn, left) == "claimed"
    assert runs(conn) == []
    say(conn, wakeful.set_setting(name, back))
    assert list(admit(conn, wake).runs) == [wake]
