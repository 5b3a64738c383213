"""The executions a dispatcher watches: their executor, what was last seen of them. For one thread at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from wakeful.executions import Executor, Pending, RunKey, Running, Status

log = logging.getLogger("wakeful.watch")

OVERTAKEN_GRACE = timedelta(seconds=10)  # for an execution that has lost its authority


@dataclass(slots=True)
class Watch:
    """Every execution under watch, by key.

    Attributes:
        began: called with every execution that was seen to run, or adopted as one that does.
        unheard: names of the executors that could not be asked at the last poll.
    """

    executors: Mapping[str, Executor]
    began: Callable[[RunKey], None] = lambda key: None
    unheard: set[str] = field(default_factory=set)
    _watched: dict[RunKey, str] = field(default_factory=dict)
    _started: set[RunKey] = field(default_factory=set)
    _examining: set[RunKey] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self._watched)

    def __contains__(self, key: RunKey) -> bool:
        return key in self._watched

    def all(self) -> list[RunKey]:
        """Return every key under watch."""
        return list(self._watched)

    def add(self, key: RunKey, executor: str, *, started: bool = False) -> None:
        """Watch one execution; ``started`` if its row already says that it runs."""
        self._watched[key] = executor
        if started:
            self.runs(key)

    def name(self, key: RunKey) -> str:
        """Return the name of a watched execution's executor."""
        return self._watched[key]

    def executor(self, key: RunKey) -> Executor | None:
        """Return the executor of a watched execution."""
        name = self._watched.get(key)
        return self.executors.get(name) if name else None

    def drop(self, key: RunKey) -> None:
        """Watch it no more."""
        self._watched.pop(key, None)
        self._started.discard(key)
        self._examining.discard(key)

    def stop(self, key: RunKey, grace: timedelta) -> bool:
        """Ask an execution under watch to stop; False if its executor could not take that."""
        executor = self.executor(key)
        try:
            if executor is not None:
                executor.stop(key, grace)
        except (Exception, SystemExit) as error:
            log.warning("run %s cannot be asked to stop: %s", key.cookie, error)
            return False
        return True

    def examine(self, key: RunKey) -> bool:
        """Mark an execution as under examination; False if it already is."""
        if key in self._examining:
            return False
        self._examining.add(key)
        return True

    def examined(self, key: RunKey) -> None:
        """The examination has answered."""
        self._examining.discard(key)

    def poll(self) -> Iterator[tuple[RunKey, Status]]:
        """Yield what is new of every watched execution that is not under examination.

        An executor that fails is named in ``unheard``; the others are heard.
        """
        self.unheard.clear()
        by_executor: dict[str, list[RunKey]] = {}
        for key, name in self._watched.items():
            if key not in self._examining:
                by_executor.setdefault(name, []).append(key)
        for name, keys in by_executor.items():
            for key, status in self._ask(name, keys):
                if isinstance(status, Pending) or (isinstance(status, Running) and key in self._started):
                    continue
                yield key, status

    def runs(self, key: RunKey) -> None:
        """The row says by now that the execution runs: that is no news any more."""
        if key in self._watched and key not in self._started:
            self._started.add(key)
            self.began(key)

    def _ask(self, name: str, keys: list[RunKey]) -> list[tuple[RunKey, Status]]:
        try:
            return list(zip(keys, self.executors[name].poll(keys), strict=True))
        except (Exception, SystemExit) as error:
            log.warning("executor %s does not say how its runs are: %s", name, error)
            self.unheard.add(name)
            return []
