"""Failures and locks: what cannot be read, judged or locked rests alone, and everybody else goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from psycopg import errors
from tests.conditions import wait_until
from tests.gatekeeper import Calls
from tests.passes import row, runs
from tests.rows import request, say
from tests.schedulers import InstantExecutor, Schedulers, WatchedClock

from wakeful import hookimpl, memory, producers, store
from wakeful.admission import Admission, PassResult
from wakeful.outcomes import Proceed, Refusal, Verdict
from wakeful.receipts import Fact
from wakeful.scheduler import Tuning
from wakeful.testing import Database, Statements

Conn = psycopg.Connection[Any]
ACME, CODER = "acme", "coder"

pytestmark = pytest.mark.usefixtures("web")


class Plugin:
    """Contributes what it is given."""

    def __init__(self, owner: Any = None, gate: Any = None) -> None:
        self._owner, self._gate = owner, gate

    @hookimpl
    def register_owners(self) -> Any:
        return [self._owner] if self._owner else []

    @hookimpl
    def register_gates(self) -> Any:
        return [self._gate] if self._gate else []


class Odd:
    """Owner of the kind ``odd``; raises for ever, or never."""

    name = "odd"
    kinds = frozenset({"odd"})

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked = 0

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return [Proceed() for _ in facts]


class OddGate:
    """A host's gate that raises for ever on receipts of one kind."""

    kind = "odd"
    opens_on = "a better day"

    def __init__(self, error: Exception) -> None:
        self._error = error

    def judge(self, conn: Conn, facts: Sequence[Fact]) -> Sequence[Refusal | None]:
        if any(fact.kind == "odd" for fact in facts):
            raise self._error
        return [None for _ in facts]


def fails(monkeypatch: pytest.MonkeyPatch, block: str, error: Exception, **parameters: Any) -> list[Any]:
    """Have one block fail for ever, where its parameters are these; return the list of its tries."""
    run, tried = store.run, []

    def failing(conn: Conn, name: str, given: Any = None, **how: Any) -> Any:
        if name == block and all(given[key] == value for key, value in parameters.items()):
            tried.append(given)
            raise error
        return run(conn, name, given, **how)

    monkeypatch.setattr(store, "run", failing)
    return tried


def wait_linked(conn: Conn, *wakes: Any) -> None:
    for wake in wakes:
        wait_until(lambda wake=wake: row(conn, wake, "state") == ("linked",), what="its run")  # type: ignore[misc]  # mypy cannot infer such a lambda


# ── one fails, the others go on ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [errors.DeadlockDetected("40P01"), RuntimeError("not today")], ids=["40P01", "a bug"])
@pytest.mark.parametrize("block", ["window.overdue", "window.upcoming"])
def test_a_window_that_can_never_be_read_stops_no_other_owner(
    conn: Conn, fleet: Schedulers, monkeypatch: pytest.MonkeyPatch, block: str, error: Exception
) -> None:
    overdue = request(conn, None)
    tried = fails(monkeypatch, block, error, owner="odd")
    scheduler = fleet.start(more=[Plugin(Odd())])
    later = request(conn, None)
    wait_linked(conn, overdue, later)
    wait_until(lambda: len(tried) >= 2, what="another try")
    assert scheduler.driver._failures == 0, "it is no failure of the connection"
    say(conn, producers.pause_agent(ACME, CODER))
    parked = request(conn, None)
    wait_until(lambda: row(conn, parked, "wait_reason") == ("agent.paused_manual",), what="the park")
    say(conn, producers.resume_agent(ACME, CODER))
    wait_linked(conn, parked)


@pytest.mark.parametrize("error", [RuntimeError("not today"), errors.LockNotAvailable("not now")])
def test_a_judge_or_gate_that_fails_for_ever_delays_its_own_receipts_only(
    conn: Conn, fleet: Schedulers, error: Exception
) -> None:
    owner = Odd(error)
    odd = [request(conn, None, kind="odd") for _ in range(3)]
    plain = [request(conn, None) for _ in range(3)]
    fleet.start(more=[Plugin(owner)])
    later = request(conn, None)
    wait_linked(conn, *plain, later)
    asked = owner.asked
    wait_until(lambda: owner.asked > asked, what="another try")
    assert {row(conn, wake, "state") for wake in odd} == {("deferred",)}
    owner.error = None
    wait_linked(conn, *odd)


def test_a_gate_that_fails_for_ever_on_one_receipt_lets_go_of_those_it_shares_a_pass_with(
    conn: Conn, fleet: Schedulers
) -> None:
    """40P01, 40001 and the like do not halve a pass at once: what comes back comes in halves."""
    odd = request(conn, None, kind="odd")
    plain = [request(conn, None) for _ in range(7)]
    fleet.start(more=[Plugin(Odd(), OddGate(errors.SerializationFailure("40001")))])
    wait_linked(conn, *plain)
    assert row(conn, odd, "state", "failures") == ("deferred", 0)


def test_a_company_whose_passes_fail_for_ever_delays_no_other(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit, tried = Admission.admit, []

    def failing(self: Admission, conn: Conn, company: str, wanted: Any) -> PassResult:
        if company == ACME:
            tried.append(watched.monotonic())
            raise errors.DeadlockDetected("40P01")
        return admit(self, conn, company, wanted)

    say(conn, producers.add_company("zeta"), producers.add_agent("zeta", "a", ["true"]))
    monkeypatch.setattr(Admission, "admit", failing)
    stuck = request(conn, None)
    fleet.start(Tuning(clock=watched))
    for _ in range(3):
        made = producers.run(conn, producers.request_wake("zeta", "a")).wake
        wait_until(lambda made=made: len(runs(conn, "wake = %s", made)) == 1, what="zeta's run")  # type: ignore[misc]  # mypy cannot infer such a lambda
    watched.settle()
    for _ in range(200):
        watched.step(6)
    assert 20 <= len(tried) <= 80, "at most every minute in the end, and at least that"
    monkeypatch.setattr(Admission, "admit", admit)
    watched.step(61)
    wait_linked(conn, stuck)


def test_a_page_that_can_never_be_read_stops_no_other_walk(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.start(Tuning(clock=watched))
    say(conn, producers.pause_project(ACME, "web"))
    behind_project = request(conn)
    say(conn, producers.pause_agent(ACME, "other"))
    behind_agent = request(conn, None, agent="other")
    for wake in (behind_project, behind_agent):
        wait_until(lambda wake=wake: row(conn, wake, "wait_gate") != (None,), what="the park")  # type: ignore[misc]  # mypy cannot infer such a lambda
    watched.settle()
    watched.step(31)
    with monkeypatch.context() as patch:
        tried = fails(patch, "window.parked", errors.QueryCanceled("57014"), gate="project")
        say(conn, producers.resume_project(ACME, "web"), producers.resume_agent(ACME, "other"))
        wait_linked(conn, behind_agent)
        wait_until(lambda: tried, what="a try")
        watched.settle()
    watched.step(1.1)
    wait_linked(conn, behind_project)


# ── rows that somebody else holds ───────────────────────────────────────────────────────────────────────


def test_a_window_full_of_rows_that_somebody_holds_is_no_hot_loop_and_hides_nothing(
    conn: Conn, database: Database, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    held = [request(conn, None) for _ in range(250)]
    say(conn, producers.add_company("zeta"), producers.add_agent("zeta", "a", ["true"]))
    executor = InstantExecutor()
    with database.connect(autocommit=False) as holding:
        holding.execute("SET idle_in_transaction_session_timeout = 0")
        holding.execute("SELECT FROM wakeful.wake WHERE id = ANY (%s) FOR UPDATE", (held,))
        free = request(conn, None)
        elsewhere = producers.run(conn, producers.request_wake("zeta", "a")).wake
        scheduler = fleet.start(Tuning(clock=watched, window=50), executor=executor)
        wait_linked(conn, free, elsewhere)
        watched.settle()
        passes = scheduler.driver.passes
        statements.reset()
        watched.settle()
        assert scheduler.driver.passes == passes
        for n in range(1, 4):
            watched.step(1.1)
            assert scheduler.driver.passes <= passes + 3 * n, "each held row once a second"
        reads = sum(one.calls for one in statements.executed() if "WITH RECURSIVE pair" in one.text)
        assert reads <= 3 * 8, "and as many reads at most"
        late = request(conn, None)
        wait_linked(conn, late)
        holding.rollback()
    watched.step(1.1)
    wait_until(lambda: len(executor.submitted) == 253, what="all runs")


def test_a_company_of_which_very_many_rows_are_held_is_not_read_before_some_are_free_and_nothing_of_it_is_lost(
    conn: Conn, database: Database, fleet: Schedulers, watched: WatchedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "HELD", 60)
    held = [request(conn, None) for _ in range(150)]
    (soon,) = conn.execute("SELECT wakeful.wall() + interval '20 seconds'").fetchone() or (None,)
    later = request(conn, None, at=soon)
    say(conn, producers.add_company("zeta"), producers.add_agent("zeta", "a", ["true"]))
    for _ in range(70):
        producers.run(conn, producers.request_wake("zeta", "a"))
    with database.connect(autocommit=False) as holding:
        holding.execute("SET idle_in_transaction_session_timeout = 0")
        holding.execute("SELECT FROM wakeful.wake WHERE id = ANY (%s) FOR UPDATE", (held,))
        scheduler = fleet.start(Tuning(clock=watched, window=50))
        wait_until(lambda: len(runs(conn, "company = 'zeta'")) == 70, what="zeta's runs")
        watched.settle()
        passes = scheduler.driver.passes
        for n in range(1, 4):
            watched.step(1.1)
            assert scheduler.driver.passes <= passes + 3 * n, "of so many rows once a second"
        holding.rollback()
    for _ in range(5):
        watched.step(1.1)
    wait_until(lambda: len(runs(conn, "company = 'acme'")) == 150, what="acme's runs")
    assert row(conn, later, "state") == ("deferred",)
    watched.step(20)
    wait_linked(conn, later)


def test_a_full_page_of_rows_that_a_look_leaves_as_they_are_is_no_hot_loop(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        request(conn, None)
    with monkeypatch.context() as patch:
        patch.setattr(Admission, "admit", lambda self, conn, company, wanted: PassResult())
        scheduler = fleet.start(Tuning(clock=watched, window=10))
        watched.settle()
        passes = scheduler.driver.passes
        for n in range(1, 5):
            watched.step(1.1)
            assert scheduler.driver.passes <= passes + 2 * n
    watched.step(1.1)
    watched.step(1.1)
    wait_until(lambda: len(runs(conn)) == 30, what="all runs")


# ── kinds that nobody here looks after ──────────────────────────────────────────────────────────────────


def test_a_wake_of_a_kind_that_no_plugin_here_owns_costs_nothing_until_one_does(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays due, and `why` says what it lacks; the scheduler that loads the plugin finds it at its start."""
    odd = request(conn, None, kind="odd")
    first = fleet.start(Tuning(clock=watched))
    late = request(conn, None, kind="odd")
    watched.settle()
    wait_until(lambda: "no loaded plugin times wakes of owner odd" in caplog.text, what="a warning")
    statements.reset()
    passes = first.driver.passes
    for _ in range(5):
        watched.step(60)
    assert first.driver.passes == passes
    assert not [one.text for one in statements.executed() if "wakeful.wake" in one.text]
    assert row(conn, odd, "state", "wait_reason") == ("deferred", None)
    assert first.stop()
    fleet.start(Tuning(clock=watched), more=[Plugin(Odd())])
    wait_linked(conn, odd, late)


def test_a_session_that_a_receipt_breaks_each_time_is_not_lost_to_the_others(
    conn: Conn, fleet: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = Admission.admit

    def breaking(self: Admission, own: Conn, company: str, wanted: Any) -> PassResult:
        if poison in wanted:
            conn.execute("SELECT pg_terminate_backend(%s)", (own.info.backend_pid,))
            own.execute("SELECT 1")
        return admit(self, own, company, wanted)

    poison, plain = request(conn, None), [request(conn, None) for _ in range(5)]
    monkeypatch.setattr(Admission, "admit", breaking)
    passes = Calls(monkeypatch, Admission, "admit")
    fleet.start()
    wait_linked(conn, *plain, request(conn, None))
    assert row(conn, poison, "state") == ("deferred",)
    assert passes.made
