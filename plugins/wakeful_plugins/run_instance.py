"""A run's instance in file coordination: one for each execution, in the root its company has on this host."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from wakeful.errors import ExecutorError
from wakeful.executions import RunKey
from wakeful_plugins.run_directory import coordination_root

if TYPE_CHECKING:
    from wakeful_coordination import Coordination, CoordinationError

_log = logging.getLogger(__name__)

# An instance is opened once and not touched again by this process: its lease kept open would only cost a descriptor.
KEPT_LEASES = 1


def execution(company: str, instance: str) -> RunKey | None:
    """Return the execution that an instance belongs to; None for one that was not opened for a run."""
    run, _, generation = instance.rpartition("-")
    try:
        key = RunKey(company, UUID(run), int(generation))
    except ValueError:
        return None
    return key if key.cookie == instance else None


class RunInstances:
    """Opens the file generation of each execution; keeps one root open for each company. For any thread."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._open: dict[str, Coordination] = {}
        self._guard = threading.Lock()

    def token(self, key: RunKey) -> str:
        """Return the token of the execution's generation, opened if it was not; durable on return.

        The instance is named after run and generation, so a repeated submit, by whichever process, finds the same
        one. Where the data root lies on a filesystem that cannot prove anybody's death, the run's id is returned,
        which captures nothing: file coordination then refuses this run's writes. Raises ExecutorError.
        """
        from wakeful_coordination.errors import CoordinationError, InDoubt, Superseded

        try:
            root = self._root(key.company)
        except InDoubt as error:
            _log.warning("run %s gets no file coordination: %s", key.run, error.message)
            return str(key.run)
        except CoordinationError as error:
            raise _refusal(key, error) from error
        try:
            try:
                return root.generations.open(key.cookie).token
            except Superseded:  # an earlier submit got this far
                return root.generations.capture(key.cookie).token
        except CoordinationError as error:
            raise _refusal(key, error) from error

    def close(self) -> None:
        """Close the roots."""
        with self._guard:
            while self._open:
                self._open.popitem()[1].close()

    def _root(self, company: str) -> Coordination:
        from wakeful_coordination import Coordination

        with self._guard:
            if company not in self._open:
                path = coordination_root(self._data, company)
                self._open[company] = Coordination.open(str(path), keep=KEPT_LEASES)
            return self._open[company]


def _refusal(key: RunKey, error: CoordinationError) -> ExecutorError:
    return ExecutorError(f"run {key.run} gets no generation of its files: {error.message}", hint=error.hint)
