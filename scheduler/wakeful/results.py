"""What a run gave back, read into a conclusion: exit record and ``result.json`` v1. Pure.

Exit codes alone are not believed when a result says otherwise, either way; what the runner did to the command
(stopped, timed out, silent, killed) stands above both. What the run used, and the session it left, count however
it ended. Where no ``result.json`` exists, what a result reader found in the output takes its place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from wakeful.executions import EndClass, ExitReport
from wakeful.follow_ups import NextWake, Question
from wakeful.usage import BadUsage, Usage, read_usage

LIMIT = 65536
DEPTH = 100
SESSION = 4096
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_CLASSES = {c.value for c in EndClass}
# What only the runner or the scheduler can say; a result that claims it is not believed.
_NOT_FOR_RESULTS = {EndClass.TIMED_OUT, EndClass.SILENT, EndClass.BAD_RESULT, EndClass.KILLED, EndClass.STOPPED}
CLASSES = frozenset(_CLASSES - {c.value for c in _NOT_FOR_RESULTS})


@dataclass(frozen=True, slots=True)
class Conclusion:
    """How a run ended, ready for its row.

    Arguments:
        state: succeeded, failed, cancelled or lost.
        end_class: one of EndClass.
        reason: ``run.<cause>``.
        message: for people.
        error: what went wrong, for operators.
        result: the accepted result, storable as JSON.
        next_wake: what the result asks for: a wake, or a question's answer.
        limited_until: when the provider's limit is over that ended it.
        usage: what the attempt used; empty where nobody knows.
        session: the agent program's token for going on with this conversation.
    """

    state: str
    end_class: EndClass
    reason: str
    message: str | None = None
    error: str | None = None
    result: Mapping[str, Any] | None = None
    next_wake: NextWake | Question | None = None
    limited_until: datetime | None = None
    usage: tuple[Usage, ...] = ()
    session: str | None = None


class BadResult(ValueError):
    """Why a result.json cannot be accepted."""


def conclude(report: ExitReport, said: Mapping[str, Any] | None = None) -> Conclusion:
    """Turn an exit record into the run's conclusion.

    Arguments:
        said: what a result reader found in the run's output; looked at only where there is no ``result.json``.
    """
    if report.error is not None:
        return Conclusion("failed", EndClass.FAILED, "run.not_started", error=report.error, message=report.error)
    result: dict[str, Any] = {}
    bad: str | None = None
    try:
        if report.result is not None:
            result = read_result(report.result)
        elif said is not None:
            result = _from_reader(said, by_itself=report.ended_by is None and report.signal is None)
    except BadResult as error:
        bad = str(error)
    account: dict[str, Any] = {"usage": _usage(result), "session": result.get("session")}
    if report.ended_by is EndClass.STOPPED:
        return Conclusion("cancelled", EndClass.STOPPED, "run.stopped", **account)
    if report.ended_by is not None:
        message = _RUNNER_SAYS[report.ended_by]
        return Conclusion("failed", report.ended_by, f"run.{report.ended_by.value}", message=message, **account)
    if bad is not None and report.result is not None:
        kept = {"unreadable": report.result[:2000].decode("utf-8", "replace").replace("\0", "\ufffd")}
        message = f"result.json: {bad}"
        return Conclusion("failed", EndClass.BAD_RESULT, "run.bad_result", message=message, result=kept)
    if "class" in result:
        return replace(_from_result(result), **account)
    # A result that names no class leaves the verdict to the exit status.
    end = _from_exit(report)
    if report.result is not None:
        following = _next_wake(result)
        return replace(end, message=result.get("message") or end.message, result=result, next_wake=following, **account)
    if said is None:
        return end
    fault = bad or _reader_error(result)
    return replace(
        end,
        message=result.get("message") or end.message,
        error=f"result reader: {fault}" if fault else None,
        result=result or None,
        **account,
    )


def _from_exit(report: ExitReport) -> Conclusion:
    if report.signal is not None:
        return Conclusion("failed", EndClass.KILLED, "run.killed", message=f"ended by signal {report.signal}")
    if report.exit_code == 0:
        return Conclusion("succeeded", EndClass.OK, "run.ok")
    return Conclusion("failed", EndClass.FAILED, "run.failed", message=f"exit code {report.exit_code}")


def _from_reader(said: Mapping[str, Any], *, by_itself: bool) -> dict[str, Any]:
    """Validate what a reader found. Of a run that was cut short the bill may be incomplete: it is an estimate."""
    try:
        written = json.dumps(dict(said), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadResult(f"not JSON ({error})") from error
    if len(written) > LIMIT:
        raise BadResult(f"more than {LIMIT} bytes (64 KiB)")
    found = json.loads(written)
    if isinstance(found, dict) and found.get("class") == EndClass.PROVIDER_LIMITED and "until" not in found:
        found["class"] = EndClass.FAILED.value  # nothing could sleep until then
    result = _accepted(found)
    if not by_itself:
        for line in result.get("usage") or []:
            if line.get("money") is not None:
                line["provenance"] = "estimated"
    return result


def _usage(result: Mapping[str, Any]) -> tuple[Usage, ...]:
    given = result.get("usage")
    return () if given is None else read_usage(given)


def _reader_error(result: Mapping[str, Any]) -> str | None:
    reader = result.get("reader")
    return str(reader["error"]) if isinstance(reader, dict) and "error" in reader else None


_RUNNER_SAYS = {
    EndClass.TIMED_OUT: "it ran longer than max_runtime allows",
    EndClass.SILENT: "it printed nothing for longer than silence_limit allows",
    EndClass.KILLED: "it was killed",
}


def _from_result(result: dict[str, Any]) -> Conclusion:
    end_class = EndClass(result["class"])
    state = "succeeded" if end_class is EndClass.OK else "failed"
    until = _moment(result["until"]) if end_class is EndClass.PROVIDER_LIMITED else None
    reason, message, following = f"run.{end_class.value}", result.get("message"), _next_wake(result)
    return Conclusion(
        state, end_class, reason, message=message, result=result, next_wake=following, limited_until=until
    )


def _next_wake(result: Mapping[str, Any]) -> NextWake | Question | None:
    if "next" not in result:
        return None
    following = result["next"]
    if "question" in following:
        return Question(following["question"], following.get("kind", "question"))
    return NextWake(_moment(following["at"]), following.get("payload", {}))


def read_result(raw: bytes) -> dict[str, Any]:
    """Parse and validate ``result.json`` v1; text in it is made storable (NUL and lone surrogates become U+FFFD).

    Raises:
        BadResult: with the field at fault.
    """
    if len(raw) > LIMIT:
        raise BadResult(f"more than {LIMIT} bytes (64 KiB)")
    try:
        value = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_constant, parse_float=_finite)
    except RecursionError as error:
        raise BadResult("nested too deeply") from error
    except ValueError as error:
        if isinstance(error, BadResult):
            raise
        raise BadResult(f"not JSON in UTF-8 ({error})") from error
    return _accepted(value)


def _accepted(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadResult("not an object")
    result: dict[str, Any] = _storable(value, DEPTH)
    end_class = result.get("class", EndClass.OK.value)
    if not isinstance(end_class, str) or end_class not in CLASSES:
        raise BadResult(f"class {_short(end_class)} is none of {', '.join(sorted(CLASSES))}")
    if end_class == EndClass.PROVIDER_LIMITED:
        if not isinstance(result.get("until"), str):
            raise BadResult("provider_limited needs a time `until`, as in 2026-01-31T18:30:00+00:00")
        _moment(result["until"])
    if not isinstance(result.get("message", ""), str):
        raise BadResult("message is not text")
    if not isinstance(result.get("comment", ""), str):
        raise BadResult("comment is not text")
    if "next" in result:
        _check_next(result["next"])
    if not isinstance(result.get("artifacts", []), list):
        raise BadResult("artifacts is not a list")
    session = result.get("session")
    if session is not None and (not isinstance(session, str) or not 1 <= len(session.encode()) <= SESSION):
        raise BadResult(f"session is not text of 1 to {SESSION} bytes")
    try:
        _usage(result)
    except BadUsage as error:
        raise BadResult(str(error)) from error
    return result


def _check_next(following: Any) -> None:
    if isinstance(following, dict) and "question" in following:
        kind = following.get("kind", "question")
        if "at" in following or following["question"] is None or not isinstance(kind, str) or not 1 <= len(kind) <= 200:
            raise BadResult("next has either a time `at` or a `question`, with a `kind` of 1 to 200 characters")
    elif not isinstance(following, dict) or not isinstance(following.get("at"), str):
        raise BadResult("next needs a time `at`, as in 2026-01-31T18:30:00+00:00, or a `question`")
    else:
        _moment(following["at"])
    for name in ("payload", "question"):
        if _stored_size(following.get(name, {})) > LIMIT:
            raise BadResult(f"next.{name} is larger than {LIMIT} bytes (64 KiB)")


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadResult(f"{_short(text)} is not a time in ISO 8601") from error
    if moment.tzinfo is None:
        raise BadResult(f"{_short(text)} has no time zone")
    if not datetime(2000, 1, 1, tzinfo=UTC) <= moment < datetime(2101, 1, 1, tzinfo=UTC):
        raise BadResult(f"{_short(text)} is outside the years 2000 to 2100")
    return moment


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def _no_constant(name: str) -> float:
    raise BadResult(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadResult(f"{_short(text)} is too large a number")
    return number


def _storable(value: Any, depth: int) -> Any:
    if depth == 0:
        raise BadResult("nested too deeply")
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(key): _storable(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item, depth - 1) for item in value]
    return value


def storable(text: str) -> str:
    """Return a text as the database can hold it: NUL and lone surrogates become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def _stored_size(value: Any) -> int:
    """Return the bytes of a JSON value as the database writes it: without exponents, so 1e300 has 301 digits."""
    if isinstance(value, dict):
        return 2 + sum(_stored_size(key) + _stored_size(item) + 4 for key, item in value.items())
    if isinstance(value, list):
        return 2 + sum(_stored_size(item) + 2 for item in value)
    if isinstance(value, float):
        return len(f"{Decimal(repr(value)):f}")
    return len(json.dumps(value, ensure_ascii=False).encode())
