"""A thread of its own for examinations, since one may wait out a stop grace."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping

from wakeful.executions import Executor, RunKey, Status, Uncertain

log = logging.getLogger("wakeful.examiner")


class Examiner(threading.Thread):
    """Finds out the truth about executions, one after another.

    Arguments:
        executors: by name.
        answer: called with each key and its status.
    """

    def __init__(self, executors: Mapping[str, Executor], answer: Callable[[RunKey, Status], None]) -> None:
        super().__init__(name="wakeful examiner", daemon=True)
        self._executors = executors
        self._answer = answer
        self._asked: queue.SimpleQueue[tuple[str, RunKey] | None] = queue.SimpleQueue()

    def ask(self, executor: str, key: RunKey) -> None:
        """Have an execution examined."""
        self._asked.put((executor, key))

    def stop(self) -> None:
        """End after the examination in progress."""
        self._asked.put(None)

    def run(self) -> None:
        """Examine until stopped."""
        while (asked := self._asked.get()) is not None:
            name, key = asked
            try:
                status = self._executors[name].examine(key)
            except (Exception, SystemExit) as error:
                log.warning("run %s could not be examined: %s", key.cookie, error)
                status = Uncertain(f"it could not be examined: {error}")
            self._answer(key, status)
