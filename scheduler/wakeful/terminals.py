"""The one funnel through which claimed runs end, or go back to the queue: always under the fence.

A report of an overtaken generation finds no row at its generation; it is refused, and kept as refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from psycopg import Connection

from wakeful import fence, meter, store
from wakeful.crash_points import Crash, CrashPoint
from wakeful.executions import EndClass, ExitReport, Grade, Output, RunKey
from wakeful.follow_ups import Question
from wakeful.results import Conclusion, storable

TEXT = 10_000  # characters of a message or an error that a row keeps


@dataclass(frozen=True, slots=True)
class Ending:
    """One execution's end: what it concludes to, and the report it rests on.

    Without a report it never ran, unless it ``vanished``: then nothing is known of what it used.
    ``survivors`` counts the processes that outlived the main one and were killed; the report says it, if there is one.
    """

    key: RunKey
    conclusion: Conclusion
    report: ExitReport | None = None
    grade: Grade | None = None
    directory: str | None = None
    vanished: bool = False
    survivors: int | None = None


@dataclass(frozen=True, slots=True)
class Death:
    """A proven death without an exit record: the run goes back to the queue, one generation on.

    ``executed`` is False where it is proven that its command never ran: then it used nothing.
    """

    key: RunKey
    grade: Grade
    error: str
    executed: bool = True
    survivors: int | None = None


@dataclass(frozen=True, slots=True)
class Word:
    """Who resolves the recovery actions of runs whose end is recorded, and how."""

    resolver: str
    outcome: str


EVIDENCE = Word("system:evidence", "proven dead")


@dataclass(frozen=True, slots=True)
class Settled:
    """What the funnel did: which keys ended, went back, were refused; directories that retention freed."""

    ended: frozenset[RunKey] = frozenset()
    requeued: frozenset[RunKey] = frozenset()
    refused: frozenset[RunKey] = frozenset()
    freed: tuple[tuple[str | None, str | None], ...] = ()


def record(
    conn: Connection[Any],
    company: str,
    endings: Sequence[Ending],
    deaths: Sequence[Death] = (),
    *,
    word: Word = EVIDENCE,
    crash: Crash,
) -> Settled:
    """Write the ends of several runs of one company in one transaction.

    Arguments:
        conn: an autocommit work connection at READ COMMITTED, outside a transaction.
        endings, deaths: at most one of both per key.
        word: what resolves the recovery actions of these runs.
        crash: called at ``CrashPoint.TERMINAL_BEFORE_COMMIT`` and ``TERMINAL_AFTER_COMMIT``.
    """
    keys = [e.key for e in endings] + [d.key for d in deaths]
    with conn.transaction():
        rows = fence.enter_each(conn, company, keys)
        held = {RunKey(company, run, row.generation): row for run, row in rows.items()}
        store.run(conn, "terminals.lock_issues", {"company": company, "runs": sorted(rows)})
        ending = [e for e in endings if e.key in held]
        # Whoever was asked to stop and died on the way is stopped, not tried again.
        ending += [_stopped(d) for d in deaths if d.key in held and held[d.key].stopped]
        dying = [d for d in deaths if d.key in held and not held[d.key].stopped]
        freed = write_ends(conn, company, ending)
        if dying:
            columns = {"runs": [d.key.run for d in dying], "errors": [_text(d.error) for d in dying]}
            columns["metered"] = [not d.executed for d in dying]
            store.run(conn, "terminals.free_taken", {"company": company, "runs": columns["runs"]})
            store.run(conn, "terminals.requeue", {"company": company, **columns})
            store.run(conn, "terminals.announce", {"company": company})
        solved = {"company": company, "runs": sorted(rows), "resolver": word.resolver, "outcome": word.outcome}
        store.run(conn, "recovery.resolve_recovery", solved)
        for late in (e for e in endings if e.key not in held):
            report = json.dumps(_kept(late))
            row = {"company": company, "run": late.key.run, "generation": late.key.generation, "report": report}
            store.run(conn, "terminals.refuse_report", row)
        crash(CrashPoint.TERMINAL_BEFORE_COMMIT)
    crash(CrashPoint.TERMINAL_AFTER_COMMIT)
    ended = frozenset(e.key for e in ending)
    requeued = frozenset(d.key for d in dying)
    return Settled(ended, requeued, frozenset(keys) - ended - requeued, freed)


def write_ends(
    conn: Connection[Any], company: str, endings: Sequence[Ending]
) -> tuple[tuple[str | None, str | None], ...]:
    """Make runs final inside a transaction that holds their rows and their issues, and settle them."""
    if not endings:
        return ()
    rows = [_row(ending) for ending in endings]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    finished = store.run(conn, "terminals.finish", {"company": company, **columns}).fetchall()
    resumed = frozenset(row.id for row in finished if row.resumed)
    meter.keep(conn, company, {e.key.run: e.conclusion for e in endings if e.report is not None}, resumed)
    for ending in endings:
        said = (ending.conclusion.result or {}).get("comment")
        if said:
            store.run(conn, "terminals.post_comment", {"company": company, "run": ending.key.run, "body": said})
    for ending in endings:
        following = ending.conclusion.next_wake
        if isinstance(following, Question):
            asked = {"run": ending.key.run, "question": json.dumps(following.question), "kind": following.kind}
            store.run(conn, "terminals.post_card", {"company": company, **asked})
        elif following is not None:
            asked = {"run": ending.key.run, "payload": json.dumps(following.payload), "at": following.at}
            store.run(conn, "terminals.follow_up", {"company": company, **asked})
    settled = store.run(conn, "terminals.settle", {"company": company, "runs": [e.key.run for e in endings]}).fetchall()
    limited = [(e.key.run, e.conclusion.limited_until) for e in endings if e.conclusion.limited_until is not None]
    if limited:
        runs, until = (list(column) for column in zip(*limited, strict=True))
        store.run(conn, "terminals.save_behind_limits", {"company": company, "runs": runs, "until": until})
    return tuple((row.host, row.directory) for row in settled)


def _stopped(death: Death) -> Ending:
    conclusion = Conclusion("cancelled", EndClass.STOPPED, "run.stopped", error=death.error)
    survivors = death.survivors
    return Ending(death.key, conclusion, grade=death.grade, vanished=death.executed, survivors=survivors)


def _row(ending: Ending) -> dict[str, Any]:
    conclusion, report = ending.conclusion, ending.report
    grade = report.grade if report else ending.grade
    row: dict[str, Any] = {
        "runs": ending.key.run,
        "states": conclusion.state,
        "started_at": report.started_at if report else None,
        "exit_codes": report.exit_code if report else None,
        "exit_signals": report.signal if report else None,
        "end_classes": conclusion.end_class.value,
        "evidences": grade.value if grade else None,
        "reasons": conclusion.reason,
        "messages": _text(conclusion.message),
        "errors": _text(conclusion.error),
        "results": None if conclusion.result is None else json.dumps(conclusion.result),
        "directories": ending.directory,
        "metered": _is_metered(ending),
        "processes": report.processes_ended if report else ending.survivors,
        "survivors": report.survivors_killed if report else ending.survivors,
    }
    for name in ("stdout", "stderr"):
        row |= _output(name, getattr(report, name) if report else None)
    return row


def _text(text: str | None) -> str | None:
    """Make a text from outside storable: what an executor says may hold anything."""
    if text is None:
        return None
    return storable(text[:TEXT])


def _is_metered(ending: Ending) -> bool:
    """Say whether all is known that this attempt used; one that executed nothing used nothing."""
    if ending.report is None or ending.report.error is not None:
        return not ending.vanished
    used = ending.conclusion.usage
    return bool(used) and all(line.money is not None for line in used)


def _output(name: str, output: Output | None) -> Mapping[str, Any]:
    fields = ("bytes", "sha256", "tail", "altered", "truncated")
    return {f"{name}_{field}": getattr(output, field) if output else None for field in fields}


def _kept(late: Ending) -> dict[str, Any]:
    kept: dict[str, Any] = {"state": late.conclusion.state, "class": late.conclusion.end_class.value}
    if late.report is not None:
        report = asdict(late.report)
        kept |= {name: report[name] for name in ("exit_code", "signal", "grade", "error")}
        kept["ended_at"] = late.report.ended_at.isoformat()
    return kept
