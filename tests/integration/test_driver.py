"""The driver: silent while nothing can run, awake when a deadline, a gate or a start says so, and nothing lost."""

from __future__ import annotations

import threading
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conditions import wait_until
from tests.gatekeeper import Gatekeeper
from tests.passes import row, runs
from tests.rows import after, request, say
from tests.schedulers import InstantExecutor, Schedulers, WatchedClock
from tests.silence import silence

from wakeful import control, hookimpl, producers, store
from wakeful.control import Pace
from wakeful.outcomes import Proceed
from wakeful.producers import Statement
from wakeful.scheduler import Tuning
from wakeful.testing import Database, HoldAt, Statements
from wakeful.window import Window

Conn = psycopg.Connection[Any]
ACME, CODER = "acme", "coder"

pytestmark = pytest.mark.usefixtures("web")
BRISK = Pace(keep_alive=timedelta(seconds=0.1), contend=timedelta(seconds=0.1))


def ended(conn: Conn, wake: UUID) -> int:
    """How many runs the wake has had, all of them ended."""
    return len(runs(conn, "wake = %s AND ended_at IS NOT NULL", wake))


def wait_ended(conn: Conn, *wakes: UUID) -> None:
    for wake in wakes:
        wait_until(lambda wake=wake: ended(conn, wake) == 1, what=f"the run of {row(conn, wake, *SEEN)}")  # type: ignore[misc]  # mypy cannot infer such a lambda


def wait_parked(conn: Conn, wake: UUID, reason: str) -> None:
    wait_until(lambda: row(conn, wake, "wait_reason") == (reason,), what=f"{reason} of {row(conn, wake, *SEEN)}")


SEEN = ("state", "wait_reason", "due_at", "error")
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


def count(conn: Conn, where: str) -> int:
    (found,) = conn.execute(f"SELECT count(*) FROM wakeful.wake WHERE {where}").fetchone() or (0,)  # noqa: S608 - a test's own words
    return int(found)


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


# ── warm release: the real clock, no restart ────────────────────────────────────────────────────────────

PANIC = "panic"
PAUSE_WEB = producers.pause_project(ACME, "web")
WARM: list[tuple[str, list[Statement], list[Statement], str]] = [
    ("company", [producers.pause_company(ACME)], [producers.resume_company(ACME)], "company.paused"),
    ("panic", [producers.panic_company(ACME)], [producers.resume_company(ACME)], "company.panic"),
    ("instance panic", [producers.set_setting(PANIC, True)], [producers.set_setting(PANIC, False)], "company.panic"),
    ("agent", [producers.pause_agent(ACME, CODER)], [producers.resume_agent(ACME, CODER)], "agent.paused_manual"),
    ("project", [PAUSE_WEB], [producers.resume_project(ACME, "web")], "project.paused_manual"),
    *(
        (
            f"budget of {policy}",
            [producers.set_budget(ACME, policy, 10), producers.add_spend(ACME, 10, agent=CODER, project="web")],
            [producers.raise_budget(ACME, policy, by_amount=1)],
            "budget.exhausted",
        )
        for policy in ("company", "agent:coder", "project:web")
    ),
    (
        "issue",
        [producers.assign_issue(ACME, "I-1", "user:ann")],
        [producers.assign_issue(ACME, "I-1", None)],
        "issue.assignee",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("close", "open_", "reason"), [case[1:] for case in WARM], ids=[case[0] for case in WARM])
def test_a_parked_wake_runs_once_when_its_gate_opens(
    conn: Conn, fleet: Schedulers, close: list[Statement], open_: list[Statement], reason: str
) -> None:
    executor = InstantExecutor()
    fleet.start(executor=executor)
    say(conn, *close)
    wake = request(conn)
    wait_parked(conn, wake, reason)
    say(conn, *open_)
    wait_ended(conn, wake)
    assert len(executor.submitted) == 1


@pytest.mark.parametrize("gate", ["execution", "concurrency"])
def test_the_end_of_a_run_lets_the_next_one_start(conn: Conn, fleet: Schedulers, gate: str) -> None:
    executor = InstantExecutor()
    executor.holding = True
    fleet.start(executor=executor)
    if gate == "concurrency":
        say(conn, producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=1))
    first = request(conn, "I-1")
    wait_until(lambda: runs(conn, "state = 'running'"), what="the first run")
    second = request(conn, "I-1" if gate == "execution" else "I-2")
    wait_parked(conn, second, "execution.live_run" if gate == "execution" else "concurrency.agent")
    executor.let_go()
    wait_ended(conn, first, second)
    assert len(executor.submitted) == 2


def test_a_queue_behind_one_slot_is_worked_off_one_by_one(conn: Conn, fleet: Schedulers) -> None:
    say(conn, producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=1))
    wakes = [request(conn, None) for _ in range(30)]
    fleet.start()
    wait_ended(conn, *wakes)
    overlaps = conn.execute(
        "SELECT count(*) FROM wakeful.run a JOIN wakeful.run b ON a.id < b.id AND b.created_at < a.ended_at"
    ).fetchone()
    assert overlaps == (0,)


def test_a_slot_that_the_first_page_cannot_use_goes_to_the_next(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    executor.holding = True
    fleet.start(executor=executor)
    say(conn, producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=1))
    request(conn, None)
    wait_until(lambda: runs(conn, "state = 'running'"), what="the first run")
    for n in range(100):
        say(conn, producers.create_issue(ACME, f"W-{n}", project="web"))
        request(conn, f"W-{n}")
    last = request(conn, None)
    wait_until(lambda: count(conn, "wait_reason = 'concurrency.agent'") == 101, what="all parked behind the one slot")
    say(conn, producers.pause_project(ACME, "web"))
    executor.let_go()
    wait_ended(conn, last)
    assert count(conn, "wait_reason = 'project.paused_manual'") == 100


def test_a_parked_row_that_somebody_held_when_its_gate_opened_comes_back(
    conn: Conn, database: Database, fleet: Schedulers, watched: WatchedClock
) -> None:
    scheduler = fleet.start(Tuning(clock=watched))
    say(conn, producers.pause_company(ACME))
    wake = request(conn)
    wait_parked(conn, wake, "company.paused")
    watched.settle()
    watched.step(31)
    with database.connect(autocommit=False) as holding:
        holding.execute("SELECT FROM wakeful.wake WHERE id = %s FOR UPDATE", (wake,))
        passes = scheduler.driver.passes
        say(conn, producers.resume_company(ACME))
        wait_until(lambda: scheduler.driver.passes > passes, what="a look at the held row")
        watched.settle()
        assert scheduler.driver.passes == passes + 1, "no hot loop"
        watched.step(1.5)
        assert scheduler.driver.passes == passes + 2
        holding.rollback()
    watched.step(1.5)
    wait_ended(conn, wake)


def test_a_gate_that_opened_before_the_park_was_committed_needs_no_signal(conn: Conn, fleet: Schedulers) -> None:
    hold = HoldAt("admission_before_commit")
    fleet.start(Tuning(crash=hold))
    say(conn, producers.pause_agent(ACME, CODER))
    wake = request(conn)
    hold.wait_reached()
    conn.execute("UPDATE wakeful.agent SET state = 'active', pause_reason = NULL, paused_at = NULL")
    hold.release()
    wait_ended(conn, wake)


def test_one_companys_backlog_delays_anothers_wake_by_a_pass(conn: Conn, fleet: Schedulers) -> None:
    for _ in range(450):
        request(conn, None)
    say(conn, producers.add_company("zeta"), producers.add_agent("zeta", "a", ["true"]))
    producers.run(conn, producers.request_wake("zeta", "a"))
    fleet.start(Tuning(window=200))
    wait_until(lambda: len(runs(conn)) == 451, what="all admitted")
    before = conn.execute(
        "SELECT count(*) FROM wakeful.run WHERE id < (SELECT id FROM wakeful.run WHERE company = 'zeta')"
    ).fetchone()
    assert before is not None
    assert before[0] <= 100


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
