"""The dispatcher's own work: what it must not lose, must not do twice, and must not let hold up anything else."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conditions import wait_until
from tests.integration import scripted
from tests.integration.scripted import ScriptedExecutor
from tests.schedulers import running

from wakeful.crash_points import CrashPoint
from wakeful.errors import DatabaseUnavailable, ExecutorError
from wakeful.executions import EndClass, Grade, RunKey, Uncertain, Vanished
from wakeful.signals import Signal
from wakeful.testing import Database, HoldAt, Statements, VirtualClock

Conn = psycopg.Connection[Any]


def wake(conn: Conn, number: int = 1, agent: str = "coder") -> None:
    conn.execute("SELECT wakeful.request_wake('acme', %s) FROM generate_series(1, %s)", (agent, number))


def states(conn: Conn) -> dict[str, int]:
    return dict(conn.execute("SELECT state, count(*)::integer FROM wakeful.run GROUP BY state").fetchall())


def wait_states(conn: Conn, within: float = 30, **wanted: int) -> None:
    try:
        wait_until(lambda: states(conn) == wanted, within=within, what=f"runs {wanted}")
    except AssertionError:
        raise AssertionError(f"runs are {states(conn)}, not {wanted}") from None


def only_run(conn: Conn) -> RunKey:
    (found,) = conn.execute("SELECT company, id, generation FROM wakeful.run").fetchall()
    return RunKey(*found)


class FailOnce:
    """Raises at the first arrival at a crash point: the transaction took effect, its answer was lost."""

    def __init__(self, point: CrashPoint) -> None:
        self._point = point
        self.failed = threading.Event()

    def __call__(self, point: str) -> None:
        if point == self._point and not self.failed.is_set():
            self.failed.set()
            raise DatabaseUnavailable("the answer to the COMMIT was lost")


# ── nothing lost, nothing twice ─────────────────────────────────────────────────────────────────────────


def test_five_hundred_wakes_and_two_schedulers(database: Database, conn: Conn, company: str, tmp_path: Path) -> None:
    executor = ScriptedExecutor()
    first = scripted.scheduler(database, tmp_path / "a", executor, host="a")
    second = scripted.scheduler(database, tmp_path / "b", executor, host="b")
    with running(first, second):
        wake(conn, 500)
        wait_states(conn, within=60, succeeded=500)
    assert len(executor.started) == 500
    assert set(executor.started.values()) == {1}
    assert set(executor.submitted.values()) == {1}
    by_host = dict(conn.execute("SELECT host, count(*) FROM wakeful.run GROUP BY host").fetchall())
    assert set(by_host) == {"a", "b"}
    assert conn.execute("SELECT max(attempt), max(generation) FROM wakeful.run").fetchone() == (1, 1)
    assert conn.execute("SELECT count(*) FROM wakeful.wake WHERE state = 'linked'").fetchone() == (500,)


def test_two_schedulers_of_one_host_share_its_runs(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    executor = ScriptedExecutor()
    both = [scripted.scheduler(database, tmp_path / "data", executor) for _ in range(2)]
    with running(*both):
        wake(conn, 100)
        wait_states(conn, succeeded=100)
    assert set(executor.started.values()) == {1}


def test_a_claim_whose_commit_was_never_answered_is_found_again(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    executor, crash = ScriptedExecutor(), FailOnce(CrashPoint.CLAIM_AFTER_COMMIT)
    with running(scripted.scheduler(database, tmp_path, executor, crash=crash)):
        wake(conn)
        wait_states(conn, succeeded=1)
    assert crash.failed.is_set()
    assert only_run(conn).generation == 1
    assert conn.execute("SELECT attempt FROM wakeful.run").fetchone() == (1,)
    assert set(executor.started.values()) == {1}


def test_an_end_whose_commit_was_never_answered_stays_one_end(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    executor, crash = ScriptedExecutor(), FailOnce(CrashPoint.TERMINAL_AFTER_COMMIT)
    scheduler = scripted.scheduler(database, tmp_path, executor, crash=crash)
    with running(scheduler):
        wake(conn)
        wait_states(conn, succeeded=1)
        wait_until(lambda: not scheduler.dispatcher.children(), what="an empty watch")
    assert crash.failed.is_set()
    assert conn.execute("SELECT count(*) FROM wakeful.refused_report").fetchone() == (0,)
    assert set(executor.started.values()) == {1}


def test_sessions_that_are_cut_off_lose_nothing(database: Database, conn: Conn, company: str, tmp_path: Path) -> None:
    executor = ScriptedExecutor()
    cut = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name ~ 'wakeful (driver|dispatcher|control)'"""
    with running(scripted.scheduler(database, tmp_path, executor)):
        for round_ in range(1, 4):
            wake(conn, 50)
            conn.execute(cut)
            wait_states(conn, within=60, succeeded=50 * round_)
    assert set(executor.started.values()) == {1}


# ── stops ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stop_between_claim_and_start_keeps_it_from_starting(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    executor, crash = ScriptedExecutor(ends=False), HoldAt(CrashPoint.CLAIM_AFTER_COMMIT)
    with running(scripted.scheduler(database, tmp_path, executor, crash=crash)):
        wake(conn)
        crash.wait_reached()
        assert conn.execute("SELECT state FROM wakeful.stop_run('acme', %s)", (only_run(conn).run,)).fetchone() == (
            "stopping",
        )
        crash.release()
        wait_states(conn, cancelled=1)
    assert not executor.started
    assert conn.execute("SELECT end_class FROM wakeful.run").fetchone() == ("stopped",)


def test_a_stop_that_fails_is_tried_again(database: Database, conn: Conn, company: str, tmp_path: Path) -> None:
    executor = ScriptedExecutor(ends=False)
    failures = []

    def full(call: str, key: RunKey) -> None:
        if call == "stop" and len(failures) < 2:
            failures.append(key)
            raise ExecutorError("its disk is full")

    executor.fails = full
    with running(scripted.scheduler(database, tmp_path, executor)):
        wake(conn, 2)
        wait_states(conn, running=2)
        (first, second) = executor.started
        conn.execute("SELECT wakeful.stop_run('acme', %s)", (first.run,))
        wait_until(lambda: first in executor.stopped, what="the third request to stop")
        executor.end(first, ended_by=EndClass.STOPPED, exit_code=None, signal=15)
        executor.end(second)
        wait_states(conn, cancelled=1, succeeded=1)
    assert len(failures) == 2


# ── one bad thing holds up no other ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), SystemExit("No space left")], ids=["error", "exit"]
)
def test_a_run_that_cannot_be_submitted_fails_alone(
    database: Database, conn: Conn, company: str, tmp_path: Path, error: BaseException
) -> None:
    executor = ScriptedExecutor()
    bad: list[RunKey] = []

    def refuse(call: str, key: RunKey) -> None:
        if call == "submit" and (not bad or key in bad):
            bad.append(key)
            raise error

    executor.fails = refuse
    with running(scripted.scheduler(database, tmp_path, executor)):
        wake(conn, 5)
        wait_states(conn, succeeded=4, failed=1)
    reason, message = conn.execute("SELECT reason, message FROM wakeful.run WHERE state = 'failed'").fetchone() or (
        "",
        "",
    )
    assert reason == "run.not_started"
    assert "No space left" in message


def test_an_examination_that_fails_overtakes_nothing(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    """Doubt would end a living run, so what passes by itself is waited out."""
    executor = ScriptedExecutor(ends=False)
    failures = []

    def fail(call: str, key: RunKey) -> None:
        if call == "examine":
            failures.append(key)
            if len(failures) < 3:
                raise OSError(24, "Too many open files")
            executor.statuses[key] = scripted.Running(scripted.MOMENT)

    executor.fails = fail
    with running(scripted.scheduler(database, tmp_path, executor)):
        wake(conn)
        wait_states(conn, running=1)
        executor.say(only_run(conn), Uncertain("its lock is free"))
        wait_until(lambda: len(failures) == 3, what="the third examination")
        executor.end(only_run(conn))
        wait_states(conn, succeeded=1)
    assert only_run(conn).generation == 1
    assert conn.execute("SELECT count(*) FROM wakeful.recovery_action").fetchone() == (0,)


def test_an_executor_that_does_not_answer_is_asked_again(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    executor = ScriptedExecutor()
    failures = []

    def silent(call: str, key: RunKey) -> None:
        if call == "poll" and len(failures) < 3:
            failures.append(key)
            raise ValueError("no answer")

    executor.fails = silent
    with running(scripted.scheduler(database, tmp_path, executor)):
        wake(conn, 3)
        wait_states(conn, succeeded=3)
    assert len(failures) == 3


def test_an_end_that_cannot_be_stored_is_stored_bare_and_holds_up_no_other(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    executor = ScriptedExecutor(ends=False)
    with running(scripted.scheduler(database, tmp_path, executor)):
        wake(conn, 3)
        wait_states(conn, running=3)
        keys = list(executor.started)
        # An exit code that the column cannot hold stands for whatever a database may refuse.
        with executor.lock:
            executor.statuses[keys[0]] = scripted.Ended(scripted.report(keys[0], exit_code=1 << 40))
            for key in keys[1:]:
                executor.statuses[key] = scripted.Ended(scripted.report(key))
        executor.change()
        wait_states(conn, failed=1, succeeded=2)
    found = conn.execute("SELECT end_class, message FROM wakeful.run WHERE state = 'failed'").fetchone()
    assert found == ("bad_result", "what the run gave back cannot be stored")
    assert conn.execute("SELECT count(*) FROM wakeful.wake WHERE source = 'timer'").fetchone() == (0,)


def test_a_death_by_hearsay_replaces_nothing(
    database: Database, conn: Conn, company: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = ScriptedExecutor(ends=False)
    with running(scripted.scheduler(database, tmp_path, executor)):
        wake(conn)
        wait_states(conn, running=1)
        key = only_run(conn)
        executor.say(key, Vanished(Grade.REPORTED))
        wait_until(lambda: only_run(conn).generation == 2, what="doubt")
        assert states(conn) == {"running": 1}
        assert conn.execute("SELECT state FROM wakeful.recovery_action").fetchone() == ("open",)
        assert " died: " not in caplog.text
        executor.ends = True
        executor.say(key, Vanished(Grade.CONTAINED))
        wait_states(conn, succeeded=1)
    assert only_run(conn).generation == 3
    assert f"run {key.run}-2 died: " in caplog.text


def test_the_executor_of_a_claim_stays_its_executor(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    """Its agent is given another one meanwhile; the next scheduler still asks the one that runs it."""
    executor = ScriptedExecutor(ends=False)
    with running(scripted.scheduler(database, tmp_path, executor)):
        wake(conn)
        wait_states(conn, running=1)
    conn.execute("SELECT wakeful.add_agent('acme', 'coder', ARRAY['true'], executor => 'another')")
    with running(scripted.scheduler(database, tmp_path, executor)):
        executor.end(only_run(conn))
        wait_states(conn, succeeded=1)


# ── silence and slots ───────────────────────────────────────────────────────────────────────────────────


def test_after_its_runs_it_is_silent(
    database: Database, conn: Conn, company: str, clock: VirtualClock, statements: Statements, tmp_path: Path
) -> None:
    """Not even the claim it once made, long expired by now, makes it look at anything."""
    executor = ScriptedExecutor()
    scheduler = scripted.scheduler(database, tmp_path, executor, clock=clock)
    with running(scheduler):
        wake(conn)
        wait_states(conn, succeeded=1)
        wait_until(lambda: not scheduler.dispatcher.children(), what="an empty watch")
        settled(conn, statements)
        statements.reset()
        settled(conn, statements)
        sentinel = sorted(one.text for one in statements.executed())
        statements.reset()
        clock.advance(1500)
        settled(conn, statements)
        ran = sorted(one.text for one in statements.executed() if "wakeful.clock SET" not in one.text)
        assert [text for text in ran if "wakeful." in text] == [text for text in sentinel if "wakeful." in text]


def settled(conn: Conn, statements: Statements, company: str = "nobody") -> None:
    """Signal a company (one that does not exist, as a rule), and return when the dispatcher has looked at its queue."""
    before = claims_made(statements)
    conn.execute("SELECT pg_notify('wakeful', %s)", (json.dumps({"t": "dispatch", "c": company}),))
    wait_until(lambda: claims_made(statements) > before, what="a look at the sentinel's queue")


def claims_made(statements: Statements) -> int:
    return sum(one.calls for one in statements.executed() if "FOR NO KEY UPDATE OF r SKIP LOCKED" in one.text)


def test_children_are_renewed_on_time(
    database: Database, conn: Conn, company: str, clock: VirtualClock, tmp_path: Path
) -> None:
    executor = ScriptedExecutor(ends=False)
    with running(scripted.scheduler(database, tmp_path, executor, clock=clock)):
        wake(conn)
        wait_states(conn, running=1)
        for _ in range(3):
            before = conn.execute("SELECT renew_by FROM wakeful.run").fetchone()
            clock.advance(21)
            wait_until(
                lambda before=before: conn.execute("SELECT renew_by FROM wakeful.run").fetchone() > before,
                what="a renewal",
            )
        executor.end(only_run(conn))
        wait_states(conn, succeeded=1)


def test_slots_are_never_exceeded_and_companies_take_turns(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    conn.execute("SELECT wakeful.add_company('other')")
    conn.execute("SELECT wakeful.add_agent('other', 'coder', ARRAY['true'])")
    conn.execute("SELECT wakeful.set_setting('scheduler_enabled', 'false')")
    wake(conn, 20)
    executor = ScriptedExecutor(ends=False)
    scheduler = scripted.scheduler(database, tmp_path, executor, slots=3)
    with running(scheduler):
        conn.execute("SELECT wakeful.set_setting('scheduler_enabled', 'true')")
        wait_states(conn, running=3, queued=17)
        conn.execute("SELECT wakeful.request_wake('other', 'coder')")
        wait_states(conn, running=3, queued=18)
        # Turns are taken by who is in line; on a busy machine the newcomer's signal may still be on its way.
        wait_until(lambda: "other" in scheduler.dispatcher._starts._in_line, what="the other company to be in line")
        ended = 0
        while not any(key.company == "other" for key in executor.started):
            key = next(k for k, s in executor.statuses.items() if isinstance(s, scripted.Running))
            executor.end(key)
            ended += 1
            wait_states(conn, running=3, queued=18 - ended, succeeded=ended)
        assert ended <= 2
        executor.ends = True
        for key in [k for k, s in executor.statuses.items() if isinstance(s, scripted.Running)]:
            executor.end(key)
        wait_states(conn, succeeded=21)


# ── settings and labels ─────────────────────────────────────────────────────────────────────────────────


def test_a_drained_instance_starts_nothing_until_it_is_undrained(
    database: Database, conn: Conn, company: str, statements: Statements, tmp_path: Path
) -> None:
    executor = ScriptedExecutor()
    with running(scripted.scheduler(database, tmp_path, executor)):
        conn.execute("INSERT INTO wakeful.setting VALUES ('draining', 'true', now(), 'test')")  # its signal is late
        conn.execute("INSERT INTO wakeful.run (company, agent) VALUES ('acme', 'coder')")
        settled(conn, statements, "acme")
        settled(conn, statements)
        assert states(conn) == {"queued": 1}
        conn.execute("SELECT wakeful.set_setting('draining', 'false')")
        wait_states(conn, succeeded=1)


def test_a_host_name_used_by_another_machine_is_warned_of(
    database: Database, conn: Conn, company: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    conn.execute("INSERT INTO wakeful.host (id, machine) VALUES ('here', 'another machine')")
    conn.execute("UPDATE wakeful.host SET dead_at = now(), dead_by = 'user:ann'")
    with running(scripted.scheduler(database, tmp_path, ScriptedExecutor())):
        pass
    assert "used by another machine (another machine)" in caplog.text
    assert "was declared dead" in caplog.text
    (machine, dead) = conn.execute("SELECT machine, dead_at FROM wakeful.host").fetchone() or (None, None)
    assert machine not in (None, "another machine")
    assert dead is None


def test_a_signal_of_ones_own_claim_sets_no_timer(database: Database, conn: Conn, company: str, tmp_path: Path) -> None:
    scheduler = scripted.scheduler(database, tmp_path, ScriptedExecutor())
    with running(scheduler):
        inbox = scheduler.dispatcher._inbox
        with inbox.condition:  # so that nobody takes it away
            mine = Signal("renewal", host="here", owner=scheduler.identity.claimer, due=scripted.MOMENT)
            inbox.signalled(mine)
            assert inbox._news.expiry is None
            inbox.signalled(Signal("renewal", host="here", owner="x/y", due=scripted.MOMENT))
            assert inbox._news.expiry == scripted.MOMENT
