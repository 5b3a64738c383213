"""A run's instance in file coordination: one for each execution, in the root its company has on this host."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from wakeful.errors import ExecutorError
from wakeful.executions import RunKey
from wakeful_plugins.company_roots import CompanyRoots
from wakeful_plugins.run_files import RunFiles

if TYPE_CHECKING:
    from wakeful_coordination import CoordinationError, Generation

_log = logging.getLogger(__name__)

FILE = "instance"  # in the run's directory: the token of its generation
LIMIT = 400  # bytes of it


def execution(company: str, instance: str) -> RunKey | None:
    """Return the execution that an instance belongs to; None for one that was not opened for a run."""
    run, _, generation = instance.rpartition("-")
    try:
        key = RunKey(company, UUID(run), int(generation))
    except ValueError:
        return None
    return key if key.cookie == instance else None


class RunInstances:
    """Opens the file generation of each execution, and writes down which one it was. For any thread.

    What is written down in the run's directory is carried to the end of the execution, by whichever process ends it:
    nobody asks again which generation stands.
    """

    def __init__(self, data: Path) -> None:
        self._roots = CompanyRoots(data)

    def token(self, key: RunKey, files: RunFiles) -> str:
        """Return the token of the execution's generation, captured if it was not; durable on return.

        The instance is named after run and generation, so a repeated submit, by whichever process, finds the same
        one. Where the data root lies on a filesystem that cannot prove anybody's death, the run's id is returned,
        which captures nothing: file coordination then refuses this run's writes. Raises ExecutorError, and OSError
        for the run's own directory.
        """
        from wakeful_coordination.errors import CoordinationError, InDoubt, Superseded

        try:
            carried = captured(files)
            if carried is not None:
                return carried.token
            root = self._roots.root(key.company)
        except InDoubt as error:
            _log.warning("run %s gets no file coordination: %s", key.run, error.message)
            return str(key.run)
        except CoordinationError as error:
            raise _refusal(key, error) from error
        try:
            try:
                opened = root.generations.open(key.cookie)
            except Superseded:  # an earlier submit got this far, and was killed before it wrote it down
                opened = root.generations.capture(key.cookie)
        except CoordinationError as error:
            raise _refusal(key, error) from error
        files.publish(FILE, opened.token.encode())
        return opened.token

    def close(self) -> None:
        """Close the roots."""
        self._roots.close()


def captured(files: RunFiles) -> Generation | None:
    """Return the generation that was captured when the run was dispatched; None for a run without one.

    Raises OSError, and InvalidRecord (a CoordinationError) for a damaged file.
    """
    from wakeful_coordination import Generation

    text = files.read(FILE, LIMIT)
    return None if text is None else Generation.parse(text.decode(errors="replace"))


def _refusal(key: RunKey, error: CoordinationError) -> ExecutorError:
    return ExecutorError(f"run {key.run} gets no generation of its files: {error.message}", hint=error.hint)
