"""What attends runs: asked before an end is written, told afterwards, and no hindrance to anything else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conditions import wait_until
from tests.integration.scripted import ScriptedExecutor
from tests.schedulers import running

import wakeful
from wakeful import config, plugins
from wakeful.attendants import Lend, NotYet
from wakeful.crash_points import CrashPoint
from wakeful.errors import DatabaseUnavailable
from wakeful.executions import EndClass, Grade, RunKey, Vanished
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing import Database
from wakeful.testing.instant import Executors

Conn = psycopg.Connection[Any]


class Witness:
    """An attendant that remembers what it was told, and answers what a test wants."""

    name = "witness"

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers = list(answers)
        self.told: list[tuple[Any, ...]] = []
        self.passing = threading.Event()
        self.passing.set()
        self.asked = threading.Semaphore(0)
        self.lend: Lend | None = None

    @wakeful.hookimpl
    def register_attendants(self, config: config.Config) -> list[Witness]:
        return [self]

    def start(self, lend: Lend) -> None:
        self.lend = lend

    def began(self, key: RunKey) -> None:
        self.told.append(("began", key.generation))

    def ending(self, key: RunKey, outcome: str, reason: str) -> str | None:
        self.asked.release()
        assert self.passing.wait(30)
        self.told.append(("ending", outcome, reason))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ended(self, key: RunKey, *, landed: bool) -> None:
        self.told.append(("ended", landed))

    def stop(self) -> None:
        self.told.append(("stop",))


def scheduler(database: Database, data: Path, executor: ScriptedExecutor, witness: Witness, **how: Any) -> Scheduler:
    given = {"dsn": database.dsn, "data": str(data), "host": "here", "plugins_disabled": "local_executor,coordination"}
    settings = config.load(given, {}, Path("/"))
    hooks = plugins.load(settings, plugins=[Executors(executor), witness])
    return Scheduler(settings, hooks, tuning=Tuning(**how))


def wake(conn: Conn) -> None:
    conn.execute("SELECT wakeful.request_wake('acme', 'coder')")


def ended(conn: Conn, **more: int) -> tuple[Any, ...]:
    found = wait_until(
        lambda: conn.execute(
            "SELECT state, end_class, reason, message, error FROM wakeful.run WHERE ended_at IS NOT NULL"
        ).fetchone(),
        what="the end of the run",
    )
    assert found is not None
    return found


def test_an_end_is_written_after_it_was_attended_and_told_after_it_was_written(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    witness = Witness()
    witness.passing.clear()
    with running(scheduler(database, tmp_path, ScriptedExecutor(), witness)):
        wake(conn)
        assert witness.asked.acquire(timeout=30)
        assert conn.execute("SELECT ended_at FROM wakeful.run").fetchone() == (None,)
        witness.passing.set()
        assert ended(conn)[:3] == ("succeeded", "ok", "run.ok")
        wait_until(lambda: ("ended", True) in witness.told, what="the attendant's news")
    assert witness.told == [("ending", "succeeded", "run.ok"), ("ended", True), ("stop",)]
    assert conn.execute("SELECT count(*) FROM wakeful.refused_report").fetchone() == (0,)


def test_an_attendant_at_work_holds_up_no_other_run(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    witness, executor = Witness(), ScriptedExecutor(ends=False)
    witness.passing.clear()
    with running(scheduler(database, tmp_path, executor, witness)):
        wake(conn)
        wait_until(lambda: executor.started, what="the first run")
        executor.end(next(iter(executor.started)))
        assert witness.asked.acquire(timeout=30)
        wake(conn)
        wait_until(lambda: len(executor.started) == 2, what="the second run")
        witness.passing.set()


def test_what_cannot_be_recorded_is_no_success_and_keeps_its_costs(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    executor = ScriptedExecutor(ends=False)
    with running(scheduler(database, tmp_path, executor, witness := Witness("the disk failed"))):
        wake(conn)
        wait_until(lambda: executor.started, what="the run")
        usage = b'{"v": 1, "class": "ok", "usage": [{"provider": "p", "money": "0.5", "provenance": "reported"}]}'
        executor.end(next(iter(executor.started)), result=usage)
        note = "its end could not be recorded: the disk failed"
        assert ended(conn) == ("failed", "failed", "run.unrecorded", note, note)
        assert conn.execute("SELECT sum(amount)::text FROM wakeful.spend").fetchone() == ("0.500000",)
        wait_until(lambda: ("ended", False) in witness.told, what="the attendant's news")


def test_a_cancellation_stays_one_whatever_failed_after_it(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    executor = ScriptedExecutor(ends=False)
    with running(scheduler(database, tmp_path, executor, Witness("the disk failed"))):
        wake(conn)
        wait_until(lambda: executor.started, what="the run")
        executor.end(next(iter(executor.started)), ended_by=EndClass.STOPPED)
        assert ended(conn)[:3] == ("cancelled", "stopped", "run.stopped")
        assert "the disk failed" in ended(conn)[4]


def test_an_attendant_that_cannot_answer_yet_is_asked_again(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    witness = Witness(*[DatabaseUnavailable("away")] * 2, *[NotYet("somebody is at work")] * 2)
    with running(scheduler(database, tmp_path, ScriptedExecutor(), witness)):
        wake(conn)
        assert ended(conn)[0] == "succeeded"
    assert witness.told.count(("ending", "succeeded", "run.ok")) == 5


def test_an_attendant_that_fails_for_good_makes_the_run_fail(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    witness = Witness(*[ValueError("a fault of the plugin's")] * 9)
    with running(scheduler(database, tmp_path, ScriptedExecutor(), witness)):
        wake(conn)
        assert ended(conn)[2:4] == (
            "run.unrecorded",
            "its end could not be recorded: witness: a fault of the plugin's",
        )


@pytest.mark.usefixtures("company")
def test_a_death_is_attended_before_the_run_goes_back(database: Database, conn: Conn, tmp_path: Path) -> None:
    executor, witness = ScriptedExecutor(ends=False), Witness()
    with running(scheduler(database, tmp_path, executor, witness)):
        wake(conn)
        wait_until(lambda: executor.started, what="the run")
        executor.say(next(iter(executor.started)), Vanished(Grade.CONTAINED))
        wait_until(lambda: len(executor.started) == 2, what="the second generation")
        executor.end(max(executor.started))
        assert ended(conn)[0] == "succeeded"
        wait_until(lambda: ("ended", True) in witness.told, what="the attendant's news")
    assert witness.told[:4] == [
        ("began", 1),
        ("ending", "died", "it came to no end of its own"),
        ("ended", False),
        ("began", 2),
    ]


def test_an_end_whose_commit_was_never_answered_is_attended_once(
    database: Database, conn: Conn, company: str, tmp_path: Path
) -> None:
    failed = threading.Event()

    def crash(point: str) -> None:
        if point == CrashPoint.TERMINAL_AFTER_COMMIT and not failed.is_set():
            failed.set()
            raise DatabaseUnavailable("the answer to the COMMIT was lost")

    witness = Witness()
    with running(made := scheduler(database, tmp_path, ScriptedExecutor(), witness, crash=crash)):
        wake(conn)
        assert ended(conn)[0] == "succeeded"
        wait_until(lambda: not made.dispatcher.children(), what="an empty watch")
    assert [one for one in witness.told if one[0] == "ending"] == [("ending", "succeeded", "run.ok")]
