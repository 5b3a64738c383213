"""An executor without processes: a run has ended as soon as it is submitted, or when the test lets it go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from wakeful import config, hookimpl
from wakeful.executions import (
    Ended,
    Executor,
    ExitReport,
    Grade,
    NeverStarted,
    Output,
    RunKey,
    Running,
    RunSpec,
    Status,
)


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
        """Take note of whom to tell of news."""
        self._changed = changed

    def submit(self, spec: RunSpec, key: RunKey) -> None:
        """Start a run; twice starts it once."""
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
        """Return how each run stands."""
        return [self._status[key] for key in keys]

    def examine(self, key: RunKey) -> Status:
        """Return how a run stands that this executor may never have heard of."""
        return self._status.get(key, NeverStarted())

    def stop(self, key: RunKey, grace: timedelta) -> None:
        """End a run at once."""
        self._status[key] = self._report(key)
        self._changed()

    def logs(self, key: RunKey, stream: str, offset: int, limit: int) -> bytes:
        """Return no output: nothing was executed."""
        return b""

    def forget(self, company: str) -> None:
        """Delete nothing: nothing was written."""

    def close(self) -> None:
        """Let nothing go: there is nothing."""


class Executors:
    """The plugin that adds one executor."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @hookimpl
    def register_executors(self, config: config.Config) -> Iterable[Executor]:
        """Add it."""
        return [self._executor]
