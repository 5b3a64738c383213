"""The driver: silent while nothing can run, awake when a deadline, a gate or a start says so, and nothing lost."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest
from tests.conditions import wait_until
from tests.passes import row, runs
from tests.rows import after, count, request, say
from tests.schedulers import BRISK, InstantExecutor, Schedulers, WatchedClock, wait_ended, wait_parked
from tests.silence import silence

from wakeful import producers
from wakeful.scheduler import Tuning
from wakeful.testing import Database, Statements

Conn = psycopg.Connection[Any]
ACME, CODER = "acme", "coder"

pytestmark = pytest.mark.usefixtures("web")


# ── silence ─────────────────────────────────────────────────────────────────────────────────────────────


def test_25_minutes_with_200_parked_and_200_sleeping_wakes_are_silent(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    executor = InstantExecutor()
    scheduler = fleet.start(Tuning(clock=watched, pace=BRISK), executor=executor)
    say(conn, producers.pause_agent(ACME, CODER))
    parked = [request(conn, None) for _ in range(200)]
    tomorrow = after(conn, 86400)
    for _ in range(200):
        request(conn, None, agent="other", at=tomorrow)
    wait_until(lambda: count(conn, "wait_reason IS NOT NULL") == 200, what="200 parked")
    watched.settle()
    watched.step(31)  # the one revalidation after the one grace
    assert count(conn, "wait_reason IS NOT NULL AND due_at IS NULL") == 200
    passes = scheduler.driver.passes
    silence(statements, watched, minutes=25)
    assert (executor.submitted, scheduler.driver.passes) == ([], passes)
    say(conn, producers.resume_agent(ACME, CODER))
    wait_until(lambda: len(executor.submitted) == 200, what="200 runs")
    wait_until(lambda: len(runs(conn, "ended_at IS NOT NULL")) == 200, what="200 ends")
    assert sorted(w for (w,) in conn.execute("SELECT wake FROM wakeful.run")) == sorted(parked)


def test_a_retry_behind_its_projects_budget_is_silent_after_its_one_grace(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    executor = InstantExecutor()
    executor.exit_code = 3
    fleet.start(Tuning(clock=watched, pace=BRISK), executor=executor)
    wait_ended(conn, request(conn))
    (source,) = runs(conn, "state = 'failed'")
    say(
        conn,
        producers.set_budget(ACME, "project:web", 10, period="lifetime"),
        producers.add_spend(ACME, 12, project="web"),
    )
    retry = producers.run(conn, producers.request_retry(ACME, source)).wake
    assert retry is not None
    wait_parked(conn, retry, "budget.exhausted")
    (version,) = row(conn, retry, "version")
    watched.settle()
    watched.step(31)
    silence(statements, watched, minutes=25)
    assert row(conn, retry, "version", "due_at", "wait_reason") == (version, None, "budget.exhausted")
    say(conn, producers.raise_budget(ACME, "project:web", amount=100))
    wait_ended(conn, retry)
    assert len(executor.submitted) == 2


# ── deadlines ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_wake_at_a_time_runs_then_and_not_before(conn: Conn, fleet: Schedulers, watched: WatchedClock) -> None:
    fleet.start(Tuning(clock=watched))
    wake = request(conn, at=after(conn, 600))
    watched.step(595)
    assert row(conn, wake, "state") == ("deferred",)
    watched.step(6)
    wait_ended(conn, wake)


def test_a_deadline_moved_while_in_memory_makes_no_early_run(
    conn: Conn, fleet: Schedulers, watched: WatchedClock
) -> None:
    """D1: the row is read again at its deadline."""
    scheduler = fleet.start(Tuning(clock=watched))
    wake = request(conn, at=after(conn, 60))
    watched.settle()
    conn.execute("UPDATE wakeful.wake SET due_at = due_at + interval '1 hour' WHERE id = %s", (wake,))
    passes = scheduler.driver.passes
    watched.step(70)
    assert scheduler.driver.passes == passes + 1, "it was looked at"
    assert row(conn, wake, "state", "version") == ("deferred", 1)
    watched.step(3500)
    assert row(conn, wake, "state") == ("deferred",)
    watched.step(100)
    wait_ended(conn, wake)
    assert scheduler.driver.passes == passes + 2


def test_a_deadline_that_its_producer_moves_forward_or_back_is_kept(
    conn: Conn, fleet: Schedulers, watched: WatchedClock
) -> None:
    fleet.start(Tuning(clock=watched))
    sooner, later = request(conn, None, at=after(conn, 3600)), request(conn, None, at=after(conn, 60))
    for wake, seconds in ((sooner, 30), (later, 7200)):
        conn.execute(
            "UPDATE wakeful.wake SET due_at = %s WHERE id = %s"
            " RETURNING wakeful.notify_wake(company, id, owner, due_at)",
            (after(conn, seconds), wake),
        )
    watched.step(31)
    wait_ended(conn, sooner)
    watched.step(3600)
    assert row(conn, later, "state") == ("deferred",)
    watched.step(3600)
    wait_ended(conn, later)


def test_deadlines_behind_the_horizon_are_read_when_it_passes(
    conn: Conn, fleet: Schedulers, watched: WatchedClock
) -> None:
    """A window of 2 holds 2 deadlines; wakes that come later fall behind or before its horizon."""
    scheduler = fleet.start(Tuning(clock=watched, window=2))
    flat = 2 * 2 * len(scheduler.driver._memory.windows)
    assert flat < 49, "or it would not be seen to be flat"
    wakes = {n: request(conn, None, at=after(conn, 60 * n)) for n in (*range(10, 60, 2), *range(59, 10, -2))}
    watched.settle()
    assert len(scheduler.driver._memory._deadlines) <= flat, "memory stays flat"
    for n in range(10, 60):
        watched.step(60 if n > 10 else 600)
        wait_ended(conn, *[wakes[m] for m in wakes if m <= n - 1])
        assert all(row(conn, wakes[m], "state") == ("deferred",) for m in wakes if m > n)
    assert len(scheduler.driver._memory._deadlines) <= flat


class FastHost(WatchedClock):
    """A host whose monotonic clock has run ahead of the database's."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def test_a_host_whose_clock_runs_ahead_neither_runs_early_nor_loops(
    conn: Conn, fleet: Schedulers, database: Database, statements: Statements
) -> None:
    clock = FastHost(database.connect(purpose="test clock"))
    scheduler = fleet.start(Tuning(clock=clock))
    wake = request(conn, at=after(conn, 300))
    clock.settle()
    clock.ahead, passes = 600.0, scheduler.driver.passes
    clock.step(1)
    wait_until(lambda: scheduler.driver.passes > passes, what="a look at the row")
    clock.settle()
    assert row(conn, wake, "state") == ("deferred",)
    clock.step(200)
    assert scheduler.driver.passes == passes + 1
    clock.step(100)
    wait_ended(conn, wake)


# ── start ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_start_finds_what_was_due_and_what_opened_while_nobody_listened(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    say(conn, producers.pause_agent(ACME, "other"), producers.pause_company(ACME))
    say(conn, producers.add_company("b"), producers.add_agent("b", CODER, ["true"]), producers.pause_agent("b", CODER))
    first = fleet.start(executor=executor)
    behind_company = [request(conn, None) for _ in range(3)]
    elsewhere = producers.run(conn, producers.request_wake("b", CODER)).wake
    assert elsewhere is not None
    for wake in behind_company:
        wait_parked(conn, wake, "company.paused")
    wait_parked(conn, elsewhere, "agent.paused_manual")
    assert first.stop()
    overdue = request(conn)
    stays = request(conn, None, agent="other")
    say(conn, producers.resume_company(ACME), producers.resume_agent("b", CODER))
    fleet.start(executor=executor)
    wait_ended(conn, overdue, elsewhere, *behind_company)
    wait_parked(conn, stays, "agent.paused_manual")
    assert len(executor.submitted) == 5


def test_300_wakes_behind_one_closed_gate_cost_a_start_one_look(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    say(conn, producers.pause_agent(ACME, CODER))
    first = fleet.start(Tuning(clock=watched))
    for _ in range(300):
        request(conn, None)
    wait_until(lambda: count(conn, "wait_reason IS NOT NULL") == 300, what="300 parked")
    watched.settle()
    watched.step(31)
    assert count(conn, "due_at IS NULL AND wait_reason IS NOT NULL") == 300
    assert first.stop()
    versions = conn.execute("SELECT id, version, examined_at FROM wakeful.wake ORDER BY id").fetchall()
    statements.reset()
    scheduler = fleet.start(Tuning(clock=watched))
    watched.settle()
    assert scheduler.driver.passes == 1
    assert statements.count() < 150  # a few for each owner, and none for each receipt
    assert conn.execute("SELECT id, version, examined_at FROM wakeful.wake ORDER BY id").fetchall() == versions


@pytest.mark.parametrize("case", ["issue", "budget"])
def test_the_look_behind_a_gate_is_through_whom_it_lets_in_first(conn: Conn, fleet: Schedulers, case: str) -> None:
    """The oldest receipt is refused by the very gate that is open for another one."""
    first = fleet.start()
    if case == "issue":
        say(conn, producers.assign_issue(ACME, "I-1", "user:ann"))
        refused, passes = request(conn), request(conn, agent="other")
        reason = "issue.assignee"
    else:
        say(
            conn,
            producers.set_budget(ACME, "company", 10, period="lifetime", estimate=9),
            producers.add_spend(ACME, 10),
        )
        refused, passes = request(conn, None), request(conn, None, estimate=Decimal("0.5"))
        reason = "budget.exhausted"
    for wake in (refused, passes):
        wait_parked(conn, wake, reason)
    assert first.stop()
    if case == "issue":
        conn.execute("UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = 'other' WHERE id = 'I-1'")
    else:
        say(conn, producers.raise_budget(ACME, "company", amount=11))
    fleet.start()
    wait_ended(conn, passes)
    assert row(conn, refused, "state", "wait_reason") == ("deferred", reason)


# ── settings ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("setting", "off", "on"),
    [("draining", True, False), ("owners_enabled", False, True), ("scheduler_enabled", False, True)],
)
def test_a_setting_stops_admission_and_its_return_finds_everything(
    conn: Conn, fleet: Schedulers, setting: str, off: bool, on: bool, statements: Statements
) -> None:
    scheduler = fleet.start()
    say(conn, producers.pause_agent(ACME, "other"))
    parked = request(conn, None, agent="other")
    wait_parked(conn, parked, "agent.paused_manual")
    wait_until(lambda: scheduler.driver.passes == 1, what="the end of that pass")
    say(conn, producers.set_setting(setting, off))
    wait_until(lambda: not scheduler.driver._enabled, what="the setting")
    passes = scheduler.driver.passes
    fresh = request(conn, None)
    say(conn, producers.resume_agent(ACME, "other"))
    conn.execute("SELECT pg_notify('wakeful', 'mark')")
    wait_until(lambda: scheduler.control.strange == 1, what="all signals heard")
    assert scheduler.driver.passes == passes
    assert (row(conn, fresh, "state"), row(conn, parked, "state")) == (("deferred",), ("deferred",))
    say(conn, producers.set_setting(setting, on))
    wait_ended(conn, fresh, parked)
