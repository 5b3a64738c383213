"""The driver through losses and faults, and beside others: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.conditions import wait_until
from tests.gatekeeper import Gatekeeper
from tests.passes import row, runs
from tests.rows import after, request, say
from tests.schedulers import BRISK, InstantExecutor, Schedulers, WatchedClock, wait_ended, wait_parked

from wakeful import control, hookimpl, producers, store
from wakeful.control import Pace
from wakeful.outcomes import Proceed
from wakeful.scheduler import Tuning
from wakeful.testing import Database, HoldAt, Statements
from wakeful.window import Window

Conn = psycopg.Connection[Any]
ACME, CODER = "acme", "coder"

pytestmark = pytest.mark.usefixtures("web")


# ── losses and faults ───────────────────────────────────────────────────────────────────────────────────


def backend(conn: Conn, purpose: str) -> int:
    """The server's process of the scheduler's session for that purpose."""
    found = wait_until(
        lambda: conn.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s",
            (f"wakeful {purpose}",),
        ).fetchone(),
        what=f"the session {purpose}",
    )
    return int(found[0])


def kill(conn: Conn, purpose: str) -> None:
    pid = backend(conn, purpose)
    conn.execute("SELECT pg_terminate_backend(%s)", (pid,))
    gone = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)"
    wait_until(lambda: (conn.execute(gone, (pid,)).fetchone() or (False,))[0], what="the end of the session")


def test_nothing_is_read_before_listen_is_in_force(
    conn: Conn, fleet: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D12: a wake committed before LISTEN has no signal that anybody hears; the read after it must find it."""
    keeper = Gatekeeper(monkeypatch, store, "run", lambda conn, name, *rest, **more: name == "control.listen")
    scheduler = fleet.build()
    scheduler.start()
    assert keeper.reached.wait(10)
    assert not scheduler.driver.ready.wait(0.3), "it read before it listened"
    wake = request(conn)
    keeper.open.set()
    wait_ended(conn, wake)


def test_a_wake_committed_between_listen_and_the_first_window_is_not_lost(
    conn: Conn, database: Database, fleet: Schedulers
) -> None:
    with database.connect(autocommit=False) as holding:
        holding.execute("LOCK TABLE wakeful.wake IN ACCESS EXCLUSIVE MODE")
        fleet.build().start()
        reading = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = 'wakeful.wake'::regclass"
        wait_until(lambda: (conn.execute(reading).fetchone() or (False,))[0], what="the first window's read")
        wake = producers.run(holding, producers.request_wake(ACME, CODER, "I-1")).wake
        later = producers.run(holding, producers.request_wake(ACME, CODER, "I-2", at=after(conn, 0.5))).wake
        holding.commit()
    assert wake is not None
    assert later is not None
    wait_ended(conn, wake, later)


def test_a_signal_that_comes_while_a_window_is_read_is_compared_with_the_new_horizon(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window of 3 was full; the wake that is committed after its read lies before its horizon."""
    for n in (1000, 2000, 3000, 4000):
        request(conn, None, at=after(conn, n))
    keeper = Gatekeeper(monkeypatch, Window, "opened")
    scheduler = fleet.build(Tuning(clock=watched, window=3))
    scheduler.start()
    assert keeper.reached.wait(10)
    soon = request(conn, None, at=after(conn, 60))
    keeper.open.set()
    assert scheduler.wait_ready(30)
    watched.settle()
    watched.step(61)
    wait_ended(conn, soon)
    assert len(runs(conn)) == 1


def test_a_killed_control_session_loses_nothing_that_was_committed_while_deaf(
    conn: Conn, fleet: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = InstantExecutor()
    scheduler = fleet.start(executor=executor)
    say(conn, producers.pause_agent(ACME, CODER))
    parked = request(conn, None)
    wait_parked(conn, parked, "agent.paused_manual")
    keeper = Gatekeeper(monkeypatch, control, "connect")
    kill(conn, "control")
    assert keeper.reached.wait(10)
    assert not scheduler.owner
    say(conn, producers.resume_agent(ACME, CODER))
    fresh = request(conn, None, agent="other")
    assert row(conn, fresh, "state") == ("deferred",)
    keeper.open.set()
    wait_ended(conn, parked, fresh)
    assert scheduler.owner
    assert len(executor.submitted) == 2


@pytest.mark.parametrize("point", ["admission_before_commit", "admission_after_commit"])
def test_a_session_lost_in_the_middle_of_a_pass_costs_a_pause_and_nothing_else(
    conn: Conn, fleet: Schedulers, point: str
) -> None:
    hold, executor = HoldAt(point), InstantExecutor()
    fleet.start(Tuning(crash=hold), executor=executor)
    wake = request(conn)
    hold.wait_reached()
    kill(conn, "driver")
    hold.release()
    wait_ended(conn, wake)
    assert len(executor.submitted) == 1


class StoppedClock(WatchedClock):
    """Stands still from ``stop`` on: no pause ends by itself any more."""

    stopped: float | None = None

    def stop(self) -> None:
        self.stopped = self.monotonic()

    def monotonic(self) -> float:
        return super().monotonic() if self.stopped is None else self.stopped


def test_a_new_connection_ends_the_pause_after_failures(conn: Conn, database: Database, fleet: Schedulers) -> None:
    clock = StoppedClock(database.connect(purpose="test clock"))
    hold, executor = HoldAt("admission_before_commit"), InstantExecutor()
    scheduler = fleet.start(Tuning(clock=clock, crash=hold), executor=executor)
    wake = request(conn)
    hold.wait_reached()
    kill(conn, "driver")
    clock.stop()
    hold.release()
    clock.settle()
    assert executor.submitted == []
    scheduler.driver.connected(owner=True)
    wait_ended(conn, wake)


def test_a_plugin_that_fails_delays_its_own_receipt_only(conn: Conn, fleet: Schedulers) -> None:
    class Failing:
        name, kinds, failures = "odd", frozenset({"odd"}), 2

        def judge(self, facts: Any) -> Any:
            if self.failures:
                self.failures -= 1
                raise RuntimeError("not today")
            return [Proceed() for _ in facts]

    class Plugin:
        @hookimpl
        def register_owners(self) -> Any:
            return [Failing()]

    fleet.start(more=[Plugin()])
    odd, plain = request(conn, None, kind="odd"), request(conn, None)
    wait_ended(conn, plain, odd)


def test_a_serializable_database_changes_nothing(conn: Conn, database: Database, fleet: Schedulers) -> None:
    conn.execute(f'ALTER DATABASE "{database.name}" SET default_transaction_isolation = "serializable"')
    executor = InstantExecutor()
    fleet.start(executor=executor)
    wakes = [request(conn, f"S-{n % 20}") for n in range(60)]
    wait_ended(conn, *wakes)
    assert len(executor.submitted) == 60


def test_what_is_no_signal_is_dropped_and_the_rest_still_heard(
    conn: Conn, fleet: Schedulers, statements: Statements, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = fleet.start()
    wait_until(lambda: scheduler.driver.ready.is_set(), what="the first windows")
    wake = request(conn)
    wait_ended(conn, wake)
    passes, junk = scheduler.driver.passes, [
        "", "hello", "{}", '{"t": "eligibility"}', '{"t": "dispatch"}', '{"t": "eligibility", "c": "acme", "w": 5}',
        '{"t": "eligibility", "c": "a\\u0000", "g": "x", "k": "y"}', '{"t": "settlement", "c": "acme"}', "[" * 5000,
    ]  # fmt: skip
    for payload in junk:
        conn.execute("SELECT pg_notify('wakeful', %s)", (payload,))
    # Of a company, a wake, a gate that do not exist: looked up, found to be nothing.
    conn.execute("SELECT wakeful.notify_gate('nobody', 'company', 'nobody')")
    conn.execute("SELECT wakeful.notify_wake('nobody', gen_random_uuid(), 'request', now())")
    again = request(conn)
    wait_ended(conn, again)
    assert scheduler.control.strange == len(junk)
    assert passes < scheduler.driver.passes <= passes + 2
    assert "failed" not in caplog.text


# ── several schedulers ──────────────────────────────────────────────────────────────────────────────────


def test_a_scheduler_in_standby_works_no_owners_and_takes_over(
    conn: Conn, fleet: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = fleet.start(Tuning(pace=BRISK)), fleet.start(Tuning(pace=BRISK))
    assert (first.owner, second.owner) == (True, False)
    wait_ended(conn, request(conn))
    assert (first.driver.passes > 0, second.driver.passes) == (True, 0)
    say(conn, producers.pause_agent(ACME, "other"))
    parked = request(conn, None, agent="other")
    wait_parked(conn, parked, "agent.paused_manual")
    assert first.stop()
    wait_until(lambda: second.owner, what="the second scheduler's ownership")
    say(conn, producers.resume_agent(ACME, "other"))
    wait_ended(conn, request(conn, "I-2"), parked)


def test_a_standby_is_silent_but_for_its_tries_for_the_lock(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, database: Database, statements: Statements
) -> None:
    held = database.connect()
    held.execute(store.query("control.try_owners_lock"))
    standby = fleet.start(
        Tuning(clock=watched, pace=Pace(keep_alive=timedelta(seconds=0.02), contend=timedelta(seconds=0.02)))
    )
    say(conn, producers.pause_agent(ACME, CODER))
    for _ in range(20):
        request(conn, None)
    conn.execute("SELECT pg_notify('wakeful', 'mark')")
    wait_until(lambda: standby.control.strange == 1, what="all signals heard")
    watched.settle()
    statements.reset()
    wait_until(lambda: sum(one.calls for one in statements.executed()) > 5, what="a few tries")
    assert {one.text for one in statements.executed()} <= {
        "SELECT pg_try_advisory_lock(hashtextextended($1, $2)) AS held"
    }


def test_a_frozen_owner_loses_its_lock_to_another(
    conn: Conn, fleet: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = Pace(keep_alive=timedelta(seconds=0.1), contend=timedelta(seconds=0.1), frozen=timedelta(seconds=0.6))
    first = fleet.start(Tuning(pace=pace))
    frozen = threading.Event()
    hand_on = first.control._hand_on
    monkeypatch.setattr(first.control, "_hand_on", lambda payload: (frozen.wait(20), hand_on(payload)))
    conn.execute("SELECT pg_notify('wakeful', 'mark')")
    second = fleet.start(Tuning(pace=pace))
    wait_until(lambda: second.owner, what="the takeover")
    wake = request(conn)
    wait_ended(conn, wake)
    assert (first.driver.passes, second.driver.passes > 0) == (0, True)
    frozen.set()
    wait_until(lambda: not first.owner, what="the first one's knowledge of its loss")
