"""Whole schedulers in this process, with an executor that ends every run at once, or holds it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.conditions import wait_until

from wakeful import config, hookimpl, plugins
from wakeful.executions import Ended, ExitReport, Grade, NeverStarted, Output, RunKey, Running, RunSpec, Status
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing import Database, VirtualClock
from wakeful_plugins import execution_wait, request, task_retry


class InstantExecutor:
    """Starts no process: a run has ended as soon as it is submitted, or, while ``holding``, once it is let go."""

    name = "local"

    def __init__(self) -> None:
        self.holding = False
        self.exit_code = 0
        self.submitted: list[RunKey] = []
        self._status: dict[RunKey, Status] = {}
        self._changed: Callable[[], None] = lambda: None

    def attach(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def submit(self, spec: RunSpec, key: RunKey) -> None:
        if key in self._status:
            return
        self.submitted.append(key)
        self._status[key] = Running(datetime.now(UTC)) if self.holding else self._report(key)
        self._changed()

    def let_go(self) -> None:
        """End every held run, and hold no more."""
        self.holding = False
        for key in self.submitted:
            self._status[key] = self._report(key)
        self._changed()

    def _report(self, key: RunKey) -> Ended:
        now, nothing = datetime.now(UTC), Output("/nowhere/stdout", 0, "", "")
        return Ended(ExitReport(key, self.exit_code, None, None, Grade.CONTAINED, now, now, nothing, nothing))

    def poll(self, keys: Sequence[RunKey]) -> Sequence[Status]:
        return [self._status[key] for key in keys]

    def examine(self, key: RunKey) -> Status:
        return self._status.get(key, NeverStarted())

    def stop(self, key: RunKey, grace: timedelta) -> None:
        self._status[key] = self._report(key)
        self._changed()

    def logs(self, key: RunKey, stream: str, offset: int, limit: int) -> bytes:
        return b""

    def close(self) -> None:
        pass


class Executors:
    """The plugin that adds one executor."""

    def __init__(self, executor: InstantExecutor) -> None:
        self._executor = executor

    @hookimpl
    def register_executors(self, config: config.Config) -> Iterable[InstantExecutor]:
        return [self._executor]


class Schedulers:
    """Schedulers of one database, each with a data directory of its own, all stopped in the end."""

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._directory = directory
        self._started: list[Scheduler] = []

    def build(
        self,
        tuning: Tuning | None = None,
        *,
        executor: InstantExecutor | None = None,
        more: Sequence[object] = (),
        **flags: Any,
    ) -> Scheduler:
        """Return a scheduler that has not been started."""
        place = self._directory / f"scheduler-{len(self._started)}"
        given = {"dsn": self._database.dsn, "data": str(place), "host": f"host-{len(self._started)}", **flags}
        settings = config.load(given, {}, self._directory)
        owners = [request, task_retry, execution_wait]
        hooks = plugins.load(
            settings, plugins=[*owners, Executors(executor or InstantExecutor()), *more], discover=False
        )
        made = Scheduler(settings, hooks, tuning=tuning)
        self._started.append(made)
        return made

    def start(self, tuning: Tuning | None = None, **how: Any) -> Scheduler:
        """Return a scheduler that is ready."""
        made = self.build(tuning, **how)
        made.start()
        assert made.wait_ready(30)
        return made

    def stop_all(self) -> None:
        while self._started:
            made = self._started.pop()
            if hasattr(made, "control"):
                assert made.stop()


class WatchedClock(VirtualClock):
    """A virtual clock that knows which threads sleep, and since which time."""

    def __init__(self, conn: Any) -> None:
        self._asleep: dict[str, timedelta] = {}
        self._guard = threading.Lock()
        super().__init__(conn)

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        name = threading.current_thread().name
        with self._guard:
            self._asleep[name] = self.shift
        try:
            super().wait(condition, timeout)
        finally:
            with self._guard:
                self._asleep.pop(name, None)

    def settle(self) -> None:
        """Wait until driver and dispatcher have looked at the present time and sleep again."""

        def settled() -> bool:
            with self._guard:
                return [self._asleep.get(name) for name in ("wakeful driver", "wakeful dispatcher")] == [self.shift] * 2

        wait_until(settled, what="sleep of driver and dispatcher")

    def step(self, by: float | timedelta) -> None:
        """Advance, and let everybody look."""
        self.advance(by)
        self.settle()


@contextlib.contextmanager
def schedulers(database: Database, directory: Path) -> Iterator[Schedulers]:
    made = Schedulers(database, directory)
    try:
        yield made
    finally:
        made.stop_all()
