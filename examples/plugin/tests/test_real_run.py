"""Schedules on real schedulers, with real child processes; of one test the clock is advanced by hand."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, until
from wakeful_cron.catch_up import KIND, Plan
from wakeful_cron.ticks import schedule

import wakeful
from wakeful import config, plugins
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing import Database, VirtualClock

PROGRAM = """
import json, os
given = json.load(open(os.environ["WAKEFUL_INPUT"]))["wake"]["payload"]
print(json.dumps([given["tick"], given["skipped"], given["payload"]]))
"""
AGENT = shlex.join([sys.executable, "-c", PROGRAM])
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.fixture
def line(database: Database, tmp_path: Path) -> CommandLine:
    made = CommandLine(database.dsn, tmp_path)
    made("company", "add", "acme")
    made("agent", "add", "writer", "--run", AGENT)
    return made


@pytest.fixture
def clock(database: Database) -> VirtualClock:
    return VirtualClock(database.connect(purpose="test clock"))


@pytest.fixture
def scheduler(database: Database, clock: VirtualClock, line: CommandLine) -> Iterator[Scheduler]:
    settings = config.load({"dsn": database.dsn, "data": str(line.data), "host": "here"}, {}, line.data)
    made = Scheduler(settings, plugins.load(settings), tuning=Tuning(clock=clock))
    made.start()
    assert made.wait_ready(30)
    yield made
    assert made.stop()


class Watch:
    """What became of one agent's ticks."""

    def __init__(self, database: Database) -> None:
        self.conn = database.connect()

    def printed(self) -> list[Any]:
        """Return what each run printed, oldest first."""
        rows = self.conn.execute(
            "SELECT stdout_tail FROM wakeful.run WHERE state = 'succeeded' ORDER BY created_at, id"
        )
        return [json.loads(text) for (text,) in rows]

    def head(self, gate: str | None = None) -> datetime | None:
        """Return the tick of the one wake that waits; None while there is none, or it waits for something else."""
        rows = self.conn.execute(
            "SELECT payload ->> 'tick', wait_gate FROM wakeful.wake WHERE kind = 'cron' AND state = 'deferred'"
        ).fetchall()
        assert len(rows) <= 1, "the schedule has forked"
        return datetime.fromisoformat(rows[0][0]) if rows and rows[0][1] == gate else None

    def after_runs(self, count: int) -> datetime:
        """Wait for so many runs in all, and return the next tick."""
        until(lambda: len(self.printed()) >= count, f"run {count}")
        return until(self.head, "the next tick")


def test_a_schedule_goes_tick_by_tick_waits_behind_a_gate_and_catches_up(
    database: Database, clock: VirtualClock, line: CommandLine, scheduler: Scheduler
) -> None:
    watch = Watch(database)
    words = ["--cron", "0 * * * *", "--zone", "Asia/Tokyo", "--catch-up", "once", "--payload", "7", "--key", "k"]
    made = line.json("cron", "add", "writer", *words)
    ticks = [datetime.fromisoformat(tick) for tick in made["ticks"]]
    assert watch.head() == ticks[0]

    for number in range(2):
        clock.advance(ticks[number] - clock.now() + timedelta(seconds=1))
        assert watch.after_runs(number + 1) == ticks[number + 1]
    assert watch.printed() == [[tick, 0, 7] for tick in made["ticks"][:2]]

    line("pause", "agent", "writer")
    clock.advance(ticks[2] - clock.now() + timedelta(seconds=1))
    assert until(lambda: watch.head("agent"), "a wait behind the gate") == ticks[2]
    clock.advance(3 * HOUR + 30 * MINUTE)
    (row,) = line.json("cron", "list")["rows"]
    assert row["waits_for"] == "wakeful resume agent writer"
    line("resume", "agent", "writer")
    assert watch.after_runs(3) == ticks[2] + 4 * HOUR
    latest = (ticks[2] + 3 * HOUR).isoformat()
    assert watch.printed()[2:] == [[latest, 3, 7]]

    # Its key answers with the wake that waits now, which ends the schedule.
    again = line.json("cron", "add", "writer", *words)
    (row,) = line.json("cron", "list")["rows"]
    assert (again["outcome"], again["wake"]) == ("existing", row["wake"])
    line("cron", "stop", row["wake"])
    clock.advance(2 * HOUR)
    line("wake", "writer", "--payload", json.dumps({"tick": "plain", "skipped": 0, "payload": 0}))
    until(lambda: len(watch.printed()) == 4, "a plain wake after it")
    assert watch.head() is None
    assert watch.printed()[3] == ["plain", 0, 0]


def test_a_schedule_ends_with_its_agent(
    database: Database, clock: VirtualClock, line: CommandLine, scheduler: Scheduler
) -> None:
    made = line.json("cron", "add", "writer", "--cron", "0 * * * *")
    line("agent", "terminate", "writer")
    clock.advance(datetime.fromisoformat(made["ticks"][0]) - clock.now() + timedelta(seconds=1))
    until(lambda: line.json("why", made["wake"])["reason"] == "agent.terminated", "the end of the wake")
    assert line.json("wakes", "--state", "pending")["rows"] == []


def test_a_wake_re_armed_by_hand_forks_no_schedule(
    database: Database, clock: VirtualClock, line: CommandLine, scheduler: Scheduler
) -> None:
    watch = Watch(database)
    made = line.json("cron", "add", "writer", "--cron", "0 * * * *", "--catch-up", "once")
    clock.advance(datetime.fromisoformat(made["ticks"][0]) - clock.now() + timedelta(seconds=1))
    following = watch.after_runs(1)
    again = line.json("rearm", made["wake"])
    until(lambda: line.json("why", again["wake"])["standing"] == "ran", "the run of the re-armed wake")
    assert watch.after_runs(2) == following


def test_one_tick_under_a_scheduler_of_its_own_process(database: Database, line: CommandLine) -> None:
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    yearly = schedule(f"{now.minute} {now.hour} {now.day} {now.month} *", "Europe/Berlin")
    local = now.astimezone(yearly.zone)
    yearly = schedule(f"{local.minute} {local.hour} {local.day} {local.month} *", "Europe/Berlin")
    payload = Plan(yearly, now, "once", payload="hello").as_payload()
    request = wakeful.request_wake("acme", "writer", at=now, kind=KIND, payload=payload)
    saved = wakeful.run(database.connect(), request).wake
    process = subprocess.Popen(line.words("up", "--json"), env=line.environment(), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        events = (json.loads(event) for event in process.stdout)
        ended = next(event for event in events if event.get("what") == "run.ended" or event.get("event") == "run.ended")
        assert ended["company"] == "acme"
        assert json.loads(line("logs", str(ended["run"]))) == [payload["tick"], 0, "hello"]
        told = line.json("why", str(saved))
        assert (told["standing"], told["run_state"]) == ("ran", "succeeded")
        (row,) = line.json("cron", "list")["rows"]
        assert datetime.fromisoformat(row["tick"]) == yearly.first(now)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
