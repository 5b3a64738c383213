"""Claims of status intents: deadlines, failures, passes by hand; a claim that is lost writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conftest import Listener
from tests.intents import ACME, Choosy, finish, intent, own, pending, reviewed_issues, state
from tests.passes import Held, admission, admit, row, runs
from tests.rows import say

import wakeful
from wakeful import explain, intents
from wakeful.admission import PASS, PassResult
from wakeful.crash_points import CrashPoint
from wakeful.outcomes import Gone, Moved
from wakeful.receipts import Fact
from wakeful.scopes import dispatch_id
from wakeful.standings import Standing
from wakeful.testing import Database, HoldAt, VirtualClock, expect_blocked
from wakeful_plugins.native_status import StatusIntents

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("board")


@pytest.fixture
def board(conn: Conn, company: str) -> None:
    reviewed_issues(conn)


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
