"""What a runner has left behind in its run directory, read back as values."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from wakeful.executions import EndClass, Ended, ExitReport, Grade, NeverStarted, Output, RunKey, Uncertain
from wakeful_plugins.output_tail import LOOKBACK, TAIL, decode_tail
from wakeful_plugins.process_table import ProcessIdentity
from wakeful_plugins.run_files import RunFiles

RESULT = 64 * 1024  # bytes of result.json; one more is read, so that too long is seen
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Started:
    """The file ``started``: the command was, or was about to be, executed.

    ``grace`` is in seconds, ``cgroup`` the runner's control groups as the system writes them, ``ancestors`` the
    pids above the runner: only they, or pid 1, inherit its orphans.
    """

    pid: int
    runner: ProcessIdentity
    cgroup: str
    ancestors: tuple[int, ...]
    grace: float
    token: str
    started_at: datetime


def read_started(files: RunFiles) -> Started | None:
    """Return the start record, or None if the command was not executed. Raises OSError, ValueError if it is damaged."""
    data = files.read("started")
    if data is None:
        return None
    record = _object(data)
    try:
        return Started(
            pid=int(record["pid"]),
            runner=_identity(record["runner"]),
            cgroup=str(record["cgroup"]),
            ancestors=tuple(int(pid) for pid in record["ancestors"]),
            grace=float(record["grace"]),
            token=str(record["token"]),
            started_at=datetime.fromisoformat(record["started_at"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"started lacks or misspells {error}") from error


def read_holder(files: RunFiles) -> ProcessIdentity | None:
    """Return the runner that took the lock last, or None if it has not said so yet."""
    try:
        return _identity(_object(files.read("lock") or b""))
    except (KeyError, TypeError, ValueError):
        return None


def read_end(files: RunFiles, key: RunKey, path: Path) -> Ended | NeverStarted | Uncertain | None:
    """Return how the run is known to have ended, or None if nothing here says so.

    Arguments:
        path: the run's directory, for the paths in the report.
    """
    try:
        void = files.read("void")
        if void is not None:
            return NeverStarted(_reason(void))
        data = files.read("exit.json")
        if data is None:
            return None
        record = _object(data)
        if record["cookie"] != key.cookie:
            return Uncertain(f"exit.json in {path} belongs to another run: {record['cookie']}")
        return Ended(_report(record, files, key, path))
    except OSError as error:
        return Uncertain(f"{path} cannot be read: {error.strerror} ({error.filename})")
    except (KeyError, TypeError, ValueError) as error:
        return Uncertain(f"exit.json in {path} is damaged: {error}")


def _report(record: dict[str, Any], files: RunFiles, key: RunKey, path: Path) -> ExitReport:
    return ExitReport(
        key=key,
        exit_code=record["code"],
        signal=record["signal"],
        ended_by=EndClass(record["ended_by"]) if record["ended_by"] else None,
        grade=Grade(record["grade"]),
        started_at=datetime.fromisoformat(record["started_at"]),
        ended_at=datetime.fromisoformat(record["ended_at"]),
        stdout=_output(files, path, "stdout", record["truncated"]),
        stderr=_output(files, path, "stderr", record["truncated"]),
        result=_result(files),
        survivors_killed=record["survivors_killed"],
        processes_ended=record.get("processes_ended", 0),
        error=record["error"],
    )


def _output(files: RunFiles, path: Path, name: str, truncated: list[str]) -> Output:
    """Measure one output. One that was removed or replaced counts as empty and altered: the exit status stays."""
    digest, size, end = hashlib.sha256(), 0, b""
    try:
        with open(files.open(name, os.O_RDONLY), "rb", buffering=0) as file:
            while part := file.read(CHUNK):
                digest.update(part)
                size += len(part)
                end = (end + part)[-(TAIL + LOOKBACK) :]
    except OSError:
        return Output(str(path / name), size, digest.hexdigest(), "", altered=True, truncated=name in truncated)
    tail, altered = decode_tail(end)
    return Output(str(path / name), size, digest.hexdigest(), tail, altered, name in truncated)


def _result(files: RunFiles) -> bytes | None:
    """Return result.json as found. Something else in its place reads as no bytes, which is no valid result."""
    try:
        return files.read("result.json", RESULT + 1)
    except OSError:
        return b""


def _object(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _identity(value: dict[str, Any]) -> ProcessIdentity:
    return ProcessIdentity(int(value["pid"]), int(value["ticks"]), str(value["boot"]), int(value["namespace"]))


def _reason(void: bytes) -> str | None:
    try:
        return str(_object(void)["reason"])
    except (KeyError, ValueError):
        return None
