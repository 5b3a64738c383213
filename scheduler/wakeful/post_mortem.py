"""What the end of an execution amounts to, whatever its executor and its child's bytes do to a reader. Pure."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from wakeful.executions import EndClass, Ended, ExitReport, Grade, NeverStarted, RunKey, Status, Vanished
from wakeful.results import Conclusion, conclude
from wakeful.terminals import Death, Ending

log = logging.getLogger("wakeful.post_mortem")

_UNSUITABLE = "what the run gave back cannot be stored"


def ending(
    key: RunKey, report: ExitReport, said: Mapping[str, Any] | None = None, stop_message: str | None = None
) -> Ending:
    """Return the ending that an exit report amounts to.

    Arguments:
        said: what a result reader found in its output.
        stop_message: why it was stopped, if nobody but the scheduler asked for that.
    """
    directory = str(PurePath(report.stdout.path).parent)
    try:
        conclusion = conclude(report, said)
    except Exception as error:  # a child's bytes must not keep its end from being written
        log.warning("the result of %s cannot be read: %s", key.cookie, error)
        conclusion = _unsuitable(f"result.json cannot be read ({type(error).__name__})")
    if conclusion.end_class is EndClass.STOPPED and stop_message is not None:
        conclusion = replace(conclusion, message=stop_message)
    return Ending(key, conclusion, report, directory=directory)


def not_started(key: RunKey, cause: str) -> Ending:
    """Return the ending of a run that its executor refused to start, and that is proven not to have started."""
    conclusion = Conclusion("failed", EndClass.FAILED, "run.not_started", message=cause, error=cause)
    return Ending(key, conclusion, grade=Grade.CONTAINED)


def death(key: RunKey, status: NeverStarted | Vanished) -> Death:
    """Return the death that an examination has proven."""
    if isinstance(status, Vanished):
        return Death(key, status.grade, "its runner was killed", survivors=status.survivors_killed)
    return Death(key, Grade.CONTAINED, status.reason or "its scheduler died before it started", executed=False)


def proof(row: RunKey, status: Ended | NeverStarted | Vanished) -> Death:
    """Return the death of a run that was declared uncertain. Its exit report, if any, is of before: evidence only."""
    grade = Grade.CONTAINED
    if isinstance(status, Ended):
        grade = status.report.grade
    elif isinstance(status, Vanished):
        grade = status.grade
    executed = not isinstance(status, NeverStarted)
    return Death(row, grade, "it was uncertain, and its own host has proven its death", executed)


def is_hearsay(status: Status) -> bool:
    """Whether only an engine says that an execution is dead: that frees nothing."""
    if isinstance(status, Ended):
        return status.report.grade is Grade.REPORTED
    return isinstance(status, Vanished) and status.grade is Grade.REPORTED


def unrecorded(whole: Ending, cause: str) -> Ending:
    """Return the ending of a run whose end could not be recorded where it has to be: success becomes failure.

    All else stays what it is, and so does what the run used: a cancellation is one, whatever failed after it.
    """
    note = f"its end could not be recorded: {cause}"
    conclusion = whole.conclusion
    error = note if conclusion.error is None else f"{conclusion.error}; {note}"
    if conclusion.state == "succeeded":
        failed = replace(conclusion, state="failed", end_class=EndClass.FAILED, reason="run.unrecorded", message=note)
        return replace(whole, conclusion=replace(failed, error=error))
    return replace(whole, conclusion=replace(conclusion, error=error))


def bare(whole: Ending, error: Exception) -> Ending | None:
    """Leave of an ending that could not be stored what certainly can be; None if that was all there is."""
    if whole.conclusion.message == _UNSUITABLE:
        return None
    report = whole.report
    if report is not None:
        stdout, stderr = (replace(output, tail="", altered=True) for output in (report.stdout, report.stderr))
        code, signal = _small(report.exit_code), _small(report.signal)
        report = replace(report, stdout=stdout, stderr=stderr, exit_code=code, signal=signal)
    return replace(whole, conclusion=_unsuitable(f"{type(error).__name__}: {error}"), report=report)


def _small(number: int | None) -> int | None:
    return number if number is not None and abs(number) < 1 << 31 else None


def _unsuitable(detail: str) -> Conclusion:
    return Conclusion("failed", EndClass.BAD_RESULT, "run.bad_result", message=_UNSUITABLE, error=detail)
