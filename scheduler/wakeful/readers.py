"""Result readers: what an agent program printed, turned into the value that a ``result.json`` would have been.

A reader is a plugin, named by ``kind`` in an agent's ``reader``. It is asked only where no ``result.json`` exists,
and it may change nothing: whatever goes wrong with it, the run ends by its exit status.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from wakeful import store

if TYPE_CHECKING:
    from wakeful.connections import Session
    from wakeful.executions import Executor, ExitReport, Output, RunKey

log = logging.getLogger("wakeful.readers")


class SavedStream(Protocol):
    """One output of an ended run. ``size`` is in bytes; ``truncated`` says that the cap cut its end off."""

    @property
    def size(self) -> int:
        """How many bytes there are."""

    @property
    def truncated(self) -> bool:
        """Whether what was printed last is missing."""

    def read(self, offset: int, limit: int) -> bytes:
        """Return up to ``limit`` bytes from a byte offset; empty at the end."""


class ResultReader(Protocol):
    """Reads an agent program's own output. Implementations are plugins (hook ``register_readers``)."""

    name: str

    def read(self, config: Mapping[str, Any], stdout: SavedStream, stderr: SavedStream) -> Mapping[str, Any] | None:
        """Return the fields of a result that the output holds, or None; depends on the arguments alone.

        Without a ``class`` the exit status decides. ``reader: {"error": ...}`` tells operators what went wrong.

        Arguments:
            config: the agent's ``reader``.
        """


class _Saved:
    """A stream read through the executor that has it."""

    def __init__(self, executor: Executor, key: RunKey, name: str, output: Output) -> None:
        self._executor, self._key, self._name = executor, key, name
        self.size, self.truncated = output.bytes, output.truncated

    def read(self, offset: int, limit: int) -> bytes:
        return self._executor.logs(self._key, self._name, offset, limit)


def said(
    session: Session,
    company: str,
    ended: Iterable[tuple[Executor, ExitReport]],
    readers: Mapping[str, ResultReader],
) -> dict[RunKey, Mapping[str, Any]]:
    """Return what the agents' readers found in the outputs of ended runs of one company.

    Arguments:
        ended: runs with their executors; those that left a ``result.json``, or executed nothing, are passed over.
        readers: by name.
    """
    silent = {report.key.run: (executor, report) for executor, report in ended if _is_silent(report)}
    if not silent:
        return {}
    with session.autocommit() as conn:
        rows = store.run(conn, "usage.readers", {"company": company, "runs": list(silent)}).fetchall()
    found = {}
    for row in rows:
        executor, report = silent[row.id]
        answer = _ask(row.reader, executor, report, readers)
        if answer is not None:
            found[report.key] = answer
    return found


def _is_silent(report: ExitReport) -> bool:
    return report.result is None and report.error is None


def _ask(
    config: Mapping[str, Any], executor: Executor, report: ExitReport, readers: Mapping[str, ResultReader]
) -> Mapping[str, Any] | None:
    kind = config["kind"]
    reader = readers.get(kind)
    if reader is None:
        return _failed(report, kind, "no plugin here provides it")
    outputs = [_Saved(executor, report.key, name, getattr(report, name)) for name in ("stdout", "stderr")]
    try:
        answer = reader.read(config, *outputs)
    except Exception as error:  # a plugin's fault must not keep the run from ending
        return _failed(report, kind, f"{type(error).__name__}: {error}"[:300])
    if answer is not None and not isinstance(answer, Mapping):
        return _failed(report, kind, f"it answered with a {type(answer).__name__}")
    return answer


def _failed(report: ExitReport, kind: str, cause: str) -> dict[str, Any]:
    log.warning("result reader %s could not read the output of %s: %s", kind, report.key.cookie, cause)
    return {"reader": {"kind": kind, "error": cause}}
