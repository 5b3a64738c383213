"""What result readers find in the outputs of ended runs, in place of a ``result.json``.

A reader may change nothing: whatever goes wrong with it, the run ends by its exit status, and operators are told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from wakeful import store
from wakeful.connections import Session
from wakeful.executions import Ended, Executor, ExitReport, Output, RunKey, Status
from wakeful.readers import ResultReader

log = logging.getLogger("wakeful.transcripts")


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
    told: Iterable[tuple[Executor | None, Status]],
    readers: Mapping[str, ResultReader],
) -> dict[RunKey, Mapping[str, Any]]:
    """Return what the agents' readers found in the outputs of ended runs of one company.

    Arguments:
        told: what executors told; what has not ended, left a ``result.json`` or executed nothing is passed over.
        readers: by name.
    """
    ended = [(executor, status.report) for executor, status in told if executor and isinstance(status, Ended)]
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
