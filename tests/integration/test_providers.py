"""Providers' limits: what a limited run leaves behind, the silence behind a closed account, the ramp after it."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.integration import local, scripted
from tests.integration.scripted import ScriptedExecutor
from tests.passes import admit, parked, row, start
from tests.schedulers import WatchedClock, running

from wakeful import post_mortem, terminals
from wakeful.crash_points import no_crash
from wakeful.executions import EndClass, Ended, RunKey, RunSpec
from wakeful.explain import why
from wakeful.ramp import Ramp
from wakeful.scheduler import Scheduler
from wakeful.testing import Database, Statements

Conn = psycopg.Connection[Any]
ACCOUNT = "acme-ai/main"
HOURS = timedelta(hours=5)


@pytest.fixture
def company(conn: Conn) -> str:
    """The company ``acme``, whose agent ``coder`` uses the account ``acme-ai/main``."""
    conn.execute("SELECT wakeful.add_company('acme')")
    conn.execute("SELECT wakeful.add_agent('acme', 'coder', ARRAY['true'], provider => 'acme-ai', account => 'main')")
    return "acme"


@pytest.fixture
def clock(database: Database) -> WatchedClock:
    return WatchedClock(database.connect(purpose="test clock"))


def now(conn: Conn) -> datetime:
    return conn.execute("SELECT wakeful.now()").fetchone()[0]


def request(conn: Conn, **given: Any) -> UUID:
    names = "".join(f", {name} => %({name})s" for name in given)
    text = f"SELECT wake FROM wakeful.request_wake('acme', 'coder'{names})"  # noqa: S608 - a test's own names
    return conn.execute(text, given).fetchone()[0]


def ran(conn: Conn, **given: Any) -> RunKey:
    """A wake of the agent that was admitted and claimed."""
    wake = request(conn, **given)
    assert admit(conn, wake).runs
    (key,) = start(conn)
    return key


def limited(until: datetime) -> bytes:
    return json.dumps({"class": "provider_limited", "until": until.isoformat()}).encode()


def end(conn: Conn, *keys: RunKey, result: bytes | None, **changes: Any) -> None:
    endings = [post_mortem.ending(key, scripted.report(key, result=result, **changes)) for key in keys]
    terminals.record(conn, "acme", endings, crash=no_crash)


def successor(conn: Conn, run: RunKey) -> Any:
    cursor = conn.cursor(row_factory=psycopg.rows.namedtuple_row)
    return cursor.execute("SELECT * FROM wakeful.wake WHERE certified_run = %s", (run.run,)).fetchone()


def account(conn: Conn, *columns: str) -> tuple[Any, ...]:
    text = f"SELECT {', '.join(columns)} FROM wakeful.provider_account WHERE id = %s"  # noqa: S608 - a test's own names
    return conn.execute(text, (ACCOUNT,)).fetchone()


# ── one run ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_limited_run_closes_its_account_and_its_input_sleeps_behind_it(conn: Conn, company: str) -> None:
    key = ran(conn, key="daily", payload='{"task": 7}', priority=3, issue="I-1", estimate=2)
    former = conn.execute("SELECT wake FROM wakeful.run WHERE id = %s", (key.run,)).fetchone()[0]
    until = now(conn) + HOURS
    end(conn, key, result=limited(until))
    assert account(conn, "closed_until", "closed_at IS NOT NULL") == (until, True)
    fresh = successor(conn, key)
    assert (fresh.state, fresh.kind, fresh.payload, fresh.priority, fresh.issue, fresh.estimate) == (
        "deferred", "request", {"task": 7}, 3, "I-1", 2,
    )  # fmt: skip
    assert (fresh.rearm_of, fresh.certified_generation, fresh.due_at) == (former, key.generation, until)
    assert fresh.effect_root == row(conn, former, "effect_root")[0]
    told = why(conn, "acme", fresh.id)
    assert (told.gate, told.key, told.reason, told.reopens_at) == ("provider", ACCOUNT, "provider.limited", until)
    assert told.since is not None
    assert told.opens_on == f"wakeful limit clear {ACCOUNT}, or its reset"
    # The key answers with the wake that goes on.
    again = conn.execute("SELECT outcome, wake FROM wakeful.request_wake('acme', 'coder', key => 'daily')").fetchone()
    assert again == ("existing", fresh.id)


def test_attempts_start_anew_and_the_effect_key_stays(conn: Conn, clock: WatchedClock, company: str) -> None:
    key = ran(conn)
    end(conn, key, result=limited(now(conn) + HOURS))
    clock.advance(HOURS + timedelta(seconds=1))
    admit(conn, successor(conn, key).id)
    (second,) = start(conn)
    assert second.run != key.run
    assert conn.execute("SELECT attempt FROM wakeful.run WHERE id = %s", (second.run,)).fetchone() == (1,)
    roots = {row(conn, wake, "effect_root")[0] for (wake,) in conn.execute("SELECT id FROM wakeful.wake")}
    assert len(roots) == 1


def test_it_counts_for_no_circuit(conn: Conn, clock: WatchedClock, company: str) -> None:
    conn.execute("SELECT wakeful.set_setting('circuit_ends', '2')")
    for _ in range(4):
        key = ran(conn)
        end(conn, key, result=limited(now(conn) + timedelta(seconds=1)), exit_code=1)
        clock.advance(300)
        conn.execute("SELECT wakeful.retire_wake('acme', %s)", (successor(conn, key).id,))
    assert conn.execute("SELECT count(*) FROM wakeful.circuit").fetchone() == (0,)


def test_a_run_without_a_wake_gets_a_request(conn: Conn, company: str) -> None:
    conn.execute(
        "INSERT INTO wakeful.run (company, agent, account, priority) VALUES ('acme', 'coder', %s, 2)", (ACCOUNT,)
    )
    (key,) = start(conn)
    until = now(conn) + HOURS
    end(conn, key, result=limited(until))
    fresh = successor(conn, key)
    assert (fresh.kind, fresh.state, fresh.priority, fresh.rearm_of) == ("request", "deferred", 2, None)
    assert (fresh.effect_root, fresh.due_at) == (fresh.id, until)


def test_without_an_account_it_only_waits(conn: Conn, company: str) -> None:
    conn.execute("SELECT wakeful.add_agent('acme', 'coder', ARRAY['true'])")
    key = ran(conn)
    until = now(conn) + HOURS
    end(conn, key, result=limited(until))
    fresh = successor(conn, key)
    assert (fresh.due_at, fresh.wait_gate, fresh.owner) == (until, None, "request")
    assert conn.execute("SELECT count(*) FROM wakeful.provider_account").fetchone() == (0,)


def test_a_limit_that_is_over_closes_nothing_and_does_not_spin(conn: Conn, company: str) -> None:
    key = ran(conn)
    before = now(conn)
    end(conn, key, result=limited(before - timedelta(minutes=1)))
    fresh = successor(conn, key)
    assert fresh.wait_gate is None
    assert fresh.due_at >= before + timedelta(seconds=30)
    assert conn.execute("SELECT count(*) FROM wakeful.provider_account").fetchone() == (0,)


def test_who_was_asked_to_stop_does_not_go_on_by_itself(conn: Conn, company: str) -> None:
    key = ran(conn, issue="I-1")
    conn.execute("SELECT wakeful.stop_run('acme', %s)", (key.run,))
    end(conn, key, result=limited(now(conn) + HOURS))
    assert successor(conn, key) is None
    assert account(conn, "closed_at IS NOT NULL") == (True,)


def test_words_that_a_limit_put_off_go_before_those_saved_meanwhile(conn: Conn, company: str) -> None:
    conn.execute("SELECT wakeful.assign_issue('acme', 'I-1', 'agent:coder')")
    conn.execute("SELECT wakeful.retire_wake('acme', id) FROM wakeful.wake")
    save = "SELECT wake FROM wakeful.save_comment('acme', 'I-1', 'words', 'user:ann', id => %s)"
    first = conn.execute(save, ("first",)).fetchone()[0]
    assert admit(conn, first).runs
    (key,) = start(conn)
    second = conn.execute(save, ("second",)).fetchone()[0]
    end(conn, key, result=limited(now(conn) + HOURS))
    assert parked(admit(conn, second, signalled=True), second) == "provider.limited"
    conn.execute("SELECT wakeful.clear_account('acme', %s)", (ACCOUNT,))
    fresh = successor(conn, key).id
    assert list(admit(conn, second, fresh, signalled=True).runs) == [fresh]


@pytest.mark.parametrize("until", [None, "soon", "2026-05-17T12:00:00", "2199-01-01T00:00:00+00:00", 7])
def test_a_limit_without_a_time_is_a_bad_result(conn: Conn, company: str, until: object) -> None:
    key = ran(conn)
    end(conn, key, result=json.dumps({"class": "provider_limited", "until": until}).encode())
    found = conn.execute("SELECT end_class, message FROM wakeful.run WHERE id = %s", (key.run,)).fetchone()
    assert found is not None
    assert found[0] == EndClass.BAD_RESULT
    assert found[1].startswith("result.json: ")
    assert successor(conn, key) is None


def test_a_retry_that_somebody_asked_for_meanwhile_carries_the_input(conn: Conn, company: str) -> None:
    source = ran(conn, issue="I-1")
    end(conn, source, result=None, exit_code=1)
    conn.execute("SELECT wakeful.request_retry('acme', %s)", (source.run,))
    admit(conn, conn.execute("SELECT id FROM wakeful.wake WHERE kind = 'task_retry'").fetchone()[0])
    (key,) = start(conn)
    asked = conn.execute("SELECT wake FROM wakeful.request_retry('acme', %s)", (key.run,)).fetchone()[0]
    end(conn, key, result=limited(now(conn) + HOURS))
    assert conn.execute("SELECT state FROM wakeful.run WHERE id = %s", (key.run,)).fetchone() == ("failed",)
    assert conn.execute("SELECT id FROM wakeful.wake WHERE state = 'deferred'").fetchall() == [(asked,)]


def test_the_later_reset_counts_and_a_person_s_close_without_one_stays(conn: Conn, company: str) -> None:
    first, second, third = ran(conn), ran(conn), ran(conn)
    later = now(conn) + HOURS
    end(conn, first, second, result=limited(later))
    end(conn, third, result=limited(later - timedelta(hours=2)))
    assert account(conn, "closed_until") == (later,)
    assert successor(conn, third).due_at == later
    conn.execute("SELECT wakeful.clear_account('acme', %s)", (ACCOUNT,))
    conn.execute("SELECT wakeful.set_setting('ramp_starts', '100')")
    fourth = ran(conn)
    conn.execute("SELECT wakeful.close_account('acme', %s, reason => 'unpaid')", (ACCOUNT,))
    end(conn, fourth, result=limited(later))
    assert account(conn, "closed_until") == (None,)
    assert successor(conn, fourth).due_at is None


def test_ask_sleeps_without_a_clock_until_somebody_clears(
    conn: Conn, clock: WatchedClock, company: str, listener: Listener
) -> None:
    conn.execute("SELECT wakeful.set_account('acme', %s, resuming => 'ask')", (ACCOUNT,))
    key = ran(conn)
    listener.heard()
    end(conn, key, result=limited(now(conn) + HOURS))
    fresh = successor(conn, key)
    assert (fresh.due_at, fresh.reopens_at, fresh.wait_gate) == (None, None, "provider")
    assert fresh.opens_on == f"wakeful limit clear {ACCOUNT}"
    # Nobody can act on it, so nobody is told.
    assert [signal for signal in listener.heard() if signal.get("w") == str(fresh.id)] == []
    clock.advance(HOURS * 2)
    assert parked(admit(conn, fresh.id, signalled=True), fresh.id) == "provider.limited"
    conn.execute("SELECT wakeful.clear_account('acme', %s)", (ACCOUNT,))
    assert ("eligibility", "provider", ACCOUNT) in listener.gates()
    assert admit(conn, fresh.id, signalled=True).runs


def test_a_queued_run_waits_behind_its_account_too(conn: Conn, clock: WatchedClock, company: str) -> None:
    key = ran(conn)
    admit(conn, request(conn))
    until = now(conn) + HOURS
    end(conn, key, result=limited(until))
    assert start(conn) == ()
    told = why(conn, "acme", conn.execute("SELECT id FROM wakeful.run WHERE state = 'queued'").fetchone()[0])
    assert (told.gate, told.key, told.reason, told.reopens_at) == ("provider", ACCOUNT, "provider.limited", until)


# ── a thousand ──────────────────────────────────────────────────────────────────────────────────────────


class Provider(ScriptedExecutor):
    """Runs end as they start: well, or on the provider's limit once there is one."""

    until: datetime | None = None

    def submit(self, spec: RunSpec, key: RunKey) -> None:
        super().submit(spec, key)
        if self.until is not None:
            self.say(key, Ended(scripted.report(key, result=limited(self.until))))


def sleepers(conn: Conn, number: int) -> None:
    conn.execute("SELECT count(wakeful.request_wake('acme', 'coder')) FROM generate_series(1, %s)", (number,))


def count(conn: Conn, where: str) -> int:
    return conn.execute(f"SELECT count(*)::integer FROM wakeful.wake WHERE {where}").fetchone()[0]  # noqa: S608 - a test's own words


def settled(conn: Conn) -> bool:
    """Nothing is due, and nothing waits to be started or ended."""
    busy = (
        "SELECT EXISTS (SELECT FROM wakeful.wake WHERE due_at <= wakeful.now() AND state = 'deferred')"
        " OR EXISTS (SELECT FROM wakeful.run WHERE ended_at IS NULL AND wait_gate IS NULL)"
    )
    return not conn.execute(busy).fetchone()[0]


def wait_settled(conn: Conn) -> None:
    wait_until(lambda: settled(conn), within=60, what="everything that is due")


def silence(statements: Statements, clock: WatchedClock, until: datetime) -> None:
    """Let time pass until a minute before; nothing but the clock's own statements may run."""
    clock.settle()
    statements.reset()
    for _ in range(20):
        clock.step((until - clock.now() - timedelta(minutes=1)) / 20)
    ran = {one.text for one in statements.executed()}
    assert ran <= {"UPDATE wakeful.clock SET shift = $1", "SET LOCAL ROLE wakeful_owner", "COMMIT",
                   "BEGIN ISOLATION LEVEL READ COMMITTED"}, ran  # fmt: skip


def run_until(conn: Conn, clock: WatchedClock, seconds: float, step: float) -> None:
    """Let time pass in steps, and everything that falls due be done before the next."""
    begun = clock.monotonic()
    while clock.monotonic() - begun < seconds:
        wait_settled(conn)
        clock.advance(step)
    wait_settled(conn)


def starts_since(conn: Conn, reopened: datetime) -> list[float]:
    """Seconds after the reopening at which runs were admitted."""
    rows = conn.execute(
        "SELECT extract('epoch' FROM created_at - %s)::float8 FROM wakeful.run WHERE created_at > %s ORDER BY 1",
        (reopened, reopened),
    )
    return [seconds for (seconds,) in rows]


def assert_ramped(starts: list[float], ramp: Ramp) -> None:
    for number, seconds in enumerate(starts, 1):
        assert ramp.allowed(seconds + 0.01) >= number, f"start {number} came after {seconds:.3f} s"


def parked_behind_a_closed_account(
    database: Database, conn: Conn, clock: WatchedClock, statements: Statements, scheduler: Scheduler, number: int
) -> datetime:
    """Let wakes go to sleep behind the account for five hours; return when it reopens."""
    until = now(conn) + HOURS
    conn.execute("SELECT wakeful.close_account('acme', %s, %s, 'limit')", (ACCOUNT, until))
    sleepers(conn, number)
    wait_until(lambda: count(conn, "wait_gate = 'provider'") == number, within=60, what="all parked")
    clock.advance(31)  # their grace: one revalidation
    wait_until(lambda: count(conn, "due_at = (SELECT closed_until FROM wakeful.provider_account)") == number, within=60)
    return until


def test_a_thousand_sleepers_are_silent_until_the_reset_and_then_start_on_a_ramp(
    database: Database, conn: Conn, clock: WatchedClock, statements: Statements, company: str, tmp_path: Path
) -> None:
    scheduler = scripted.scheduler(database, tmp_path, Provider(), clock=clock)
    with running(scheduler):
        until = parked_behind_a_closed_account(database, conn, clock, statements, scheduler, 1000)
        clock.settle()
        passes = scheduler.driver.passes
        silence(statements, clock, until)
        assert scheduler.driver.passes == passes
        clock.advance(until - clock.now() + timedelta(milliseconds=1))
        run_until(conn, clock, Ramp().length, 1.0)
        starts = starts_since(conn, until)
        assert len(starts) == 1000
        assert_ramped(starts, Ramp())
        # And it is no slower than the ramp either.
        assert starts[10] < 13
        assert starts[999] < Ramp().slot(1000) + 5
    assert count(conn, "state <> 'linked'") == 0


def test_a_second_limit_during_the_ramp_ends_it_and_the_next_reset_begins_another(
    database: Database, conn: Conn, clock: WatchedClock, statements: Statements, company: str, tmp_path: Path
) -> None:
    provider = Provider()
    with running(scheduler := scripted.scheduler(database, tmp_path, provider, clock=clock)):
        first = parked_behind_a_closed_account(database, conn, clock, statements, scheduler, 120)
        clock.advance(first - clock.now() + timedelta(milliseconds=1))
        run_until(conn, clock, 12, 1.0)
        before = len(starts_since(conn, first))
        assert 8 <= before <= 20
        second = clock.now() + HOURS
        provider.until = second
        run_until(conn, clock, 3, 1.0)
        wait_until(lambda: account(conn, "closed_until") == (second,), what="the second limit")
        provider.until = None
        at_the_limit = len(starts_since(conn, first))
        run_until(conn, clock, 180, 15.0)
        assert len(starts_since(conn, first)) == at_the_limit
        # The real time goes on beside the virtual one, so a start may have come between the two looks above.
        (done,) = conn.execute("SELECT count(*)::integer FROM wakeful.run WHERE state = 'succeeded'").fetchone()
        waiting = 120 - done
        assert before <= done < at_the_limit
        assert count(conn, f"state = 'deferred' AND wait_gate = 'provider' AND due_at = '{second}'") == waiting
        silence(statements, clock, second)
        clock.advance(second - clock.now() + timedelta(milliseconds=1))
        run_until(conn, clock, 60, 1.0)
        starts = starts_since(conn, second)
        assert len(starts) == waiting
        assert_ramped(starts, Ramp())
    assert count(conn, "state = 'deferred'") == 0
    # Each input succeeded once, whatever it took.
    assert conn.execute("SELECT count(*) FROM wakeful.run WHERE state = 'succeeded'").fetchone() == (120,)


def test_clearing_a_limit_ramps_too(
    database: Database, conn: Conn, clock: WatchedClock, statements: Statements, company: str, tmp_path: Path
) -> None:
    conn.execute("SELECT wakeful.set_setting('ramp_starts', '3'), wakeful.set_setting('ramp_doubles', '5')")
    with running(scheduler := scripted.scheduler(database, tmp_path, Provider(), clock=clock)):
        parked_behind_a_closed_account(database, conn, clock, statements, scheduler, 150)
        conn.execute("SELECT wakeful.clear_account('acme', %s)", (ACCOUNT,))
        cleared = account(conn, "ramp_from")[0]
        wait_until(lambda: count(conn, "wait_gate = 'provider' AND state = 'deferred'") == 0, what="the signal's walk")
        run_until(conn, clock, 30, 0.5)
        starts = starts_since(conn, cleared)
        assert len(starts) == 150
        assert_ramped(starts, Ramp(3, 5))


# ── a real child ────────────────────────────────────────────────────────────────────────────────────────

CHILD = """
import json, os, pathlib, sys
given = json.loads(pathlib.Path(os.environ["WAKEFUL_INPUT"]).read_text())
seen = pathlib.Path(sys.argv[1])
first = not seen.exists()
with seen.open("a") as file:
    print(given["wake"]["effect_root"], given["attempt"], given["wake"]["payload"]["task"], file=file)
if first:
    result = {"class": "provider_limited", "until": sys.argv[2]}
    pathlib.Path(os.environ["WAKEFUL_RESULT"]).write_text(json.dumps(result))
"""


def test_a_real_child_meets_its_limit_sleeps_and_goes_on(
    database: Database, conn: Conn, clock: WatchedClock, company: str, tmp_path: Path
) -> None:
    seen, until = tmp_path / "seen", now(conn) + HOURS
    command = [sys.executable, "-I", "-S", "-c", CHILD, str(seen), until.isoformat()]
    conn.execute("SELECT wakeful.add_agent('acme', 'coder', %s, provider => 'acme-ai', account => 'main')", (command,))
    with running(local.scheduler(database, tmp_path / "data", clock=clock)):
        conn.execute("SELECT wakeful.request_wake('acme', 'coder', payload => '{\"task\": 7}')")
        wait_until(lambda: count(conn, "wait_gate = 'provider'") == 1, within=30, what="the sleep")
        clock.advance(until - clock.now() + timedelta(seconds=1))
        wait_until(
            lambda: conn.execute("SELECT count(*) FROM wakeful.run WHERE state = 'succeeded'").fetchone() == (1,),
            within=30,
            what="the second run",
        )
    first, second = seen.read_text().splitlines()
    assert first == second


def test_runs_that_were_queued_before_the_limit_start_on_the_ramp_too(
    database: Database, conn: Conn, clock: WatchedClock, company: str, tmp_path: Path
) -> None:
    # Admitted all at once, since nothing limits yet; then the first ones meet the limit.
    waiting = 200
    admit(conn, *(request(conn) for _ in range(50)))
    for _ in range(3):
        admit(conn, *(request(conn) for _ in range(50)))
    until = now(conn) + HOURS
    conn.execute("SELECT wakeful.close_account('acme', %s, %s, 'limit')", (ACCOUNT, until))
    behind = "SELECT count(*)::integer FROM wakeful.run WHERE wait_gate = %s AND state = 'queued'"
    with running(scripted.scheduler(database, tmp_path, Provider(), clock=clock)):
        wait_until(lambda: conn.execute(behind, ("provider",)).fetchone() == (waiting,), within=30, what="all waiting")
        clock.advance(until - clock.now() + timedelta(milliseconds=1))
        wait_until(lambda: conn.execute(behind, ("provider",)).fetchone() == (0,), within=20, what="the reopening")
        told = why(
            conn, "acme", conn.execute("SELECT id FROM wakeful.run WHERE wait_gate = 'rate' LIMIT 1").fetchone()[0]
        )
        assert (told.gate, told.key, told.reason, told.opens_on) == (
            "rate",
            ACCOUNT,
            "rate.ramp",
            "its turn, by the clock",
        )
        for _ in range(70):
            clock.settle()
            clock.advance(1)
        wait_until(lambda: conn.execute(behind, ("rate",)).fetchone() == (0,), within=20, what="all started")
        claimed = "SELECT extract('epoch' FROM claimed_at - %s)::float8 FROM wakeful.run ORDER BY 1"
        starts = [seconds for (seconds,) in conn.execute(claimed, (until,))]
    assert len(starts) == waiting
    assert_ramped(starts, Ramp())
