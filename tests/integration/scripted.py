"""Schedulers whose executor says what the test has it say: for tests of the dispatcher's own work. No processes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from wakeful import config, plugins
from wakeful.clock import Clock, SystemClock
from wakeful.control import Pace
from wakeful.crash_points import Crash, no_crash
from wakeful.executions import (
    Ended,
    ExitReport,
    Grade,
    NeverStarted,
    Output,
    Pending,
    RunKey,
    Running,
    RunSpec,
    Status,
)
from wakeful.reaper import Lease
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing import Database
from wakeful.testing.instant import Executors

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
EMPTY = Output("/nowhere/stdout", 0, "0" * 64, "")


def report(key: RunKey, **changes: Any) -> ExitReport:
    fields = {"exit_code": 0, "signal": None, "ended_by": None, "grade": Grade.CONTAINED}
    times = {"started_at": MOMENT, "ended_at": MOMENT, "stdout": EMPTY, "stderr": EMPTY}
    return ExitReport(key, **fields | times | changes)


class ScriptedExecutor:
    """An executor whose runs end as they start, unless told otherwise, and whose calls fail where the test says so.

    Schedulers may share it, as they would a cluster; what needs neither uses ``wakeful.testing.InstantExecutor``.

    Attributes:
        submitted: how often each execution was submitted.
        started: how often each execution really began.
        statuses: what it says of each.
    """

    name = "local"

    def __init__(self, *, ends: bool = True) -> None:
        self.ends = ends
        self.lock = threading.Lock()
        self.submitted: Counter[RunKey] = Counter()
        self.started: Counter[RunKey] = Counter()
        self.stopped: set[RunKey] = set()
        self.statuses: dict[RunKey, Status] = {}
        self.fails: Callable[[str, RunKey], None] = lambda call, key: None
        self._changed: list[Callable[[], None]] = []

    def attach(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def submit(self, spec: RunSpec, key: RunKey) -> None:
        with self.lock:
            self.submitted[key] += 1
        self.fails("submit", key)
        with self.lock:
            if key in self.statuses:
                return
            self.started[key] += 1
            self.statuses[key] = Ended(report(key)) if self.ends else Running(MOMENT)
        self.change()

    def end(self, key: RunKey, **changes: Any) -> None:
        """Let a run end."""
        self.say(key, Ended(report(key, **changes)))

    def say(self, key: RunKey, status: Status) -> None:
        with self.lock:
            self.statuses[key] = status
        self.change()

    def change(self) -> None:
        for changed in self._changed:
            changed()

    def poll(self, keys: Sequence[RunKey]) -> Sequence[Status]:
        for key in keys:
            self.fails("poll", key)
        with self.lock:
            return [self.statuses.get(key, Pending()) for key in keys]

    def examine(self, key: RunKey) -> Status:
        self.fails("examine", key)
        with self.lock:
            return self.statuses.setdefault(key, NeverStarted("nothing of it was there"))

    def stop(self, key: RunKey, grace: timedelta) -> None:
        self.fails("stop", key)
        with self.lock:
            self.stopped.add(key)
            if key not in self.statuses:
                self.statuses[key] = NeverStarted("stopped before it started")
        self.change()

    def logs(self, key: RunKey, stream: str, offset: int, limit: int) -> bytes:
        return b""

    def forget(self, company: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""


def scheduler(
    database: Database,
    data: Path,
    executor: Any,
    *,
    host: str = "here",
    crash: Crash = no_crash,
    clock: Clock | None = None,
    lease: Lease | None = None,
    **flags: object,
) -> Scheduler:
    """Return a scheduler that is not started yet."""
    given = {"dsn": database.dsn, "data": str(data), "host": host, "plugins_disabled": "local_executor", **flags}
    settings = config.load(given, {}, Path("/"))
    hooks = plugins.load(settings, plugins=[Executors(executor)])
    pace = Pace(keep_alive=timedelta(seconds=0.5), contend=timedelta(seconds=0.5))
    tuning = Tuning(pace=pace, crash=crash, clock=clock or SystemClock(), lease=lease or Lease())
    return Scheduler(settings, hooks, tuning=tuning)
