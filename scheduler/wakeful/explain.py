"""Why a wake or a run stands where it stands: which gate, since when, what opens it; or which deadline; or its end.

Every waiting thing can answer. Reads stored facts only: the row says why it waits, nobody judges again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg import Connection

from wakeful import standings, store
from wakeful.errors import InvalidInput, NotFound
from wakeful.receipts import PENDING
from wakeful.standings import Standing

SHORTEST = 6
_SHOWN_MATCHES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why one wake or run stands where it stands.

    Arguments:
        state: the stored state; ``standing`` is its meaning and ``because`` one sentence for people.
        gate, key, reason, message, since, opens_on, reopens_at: what it waits for, and since when.
        next_look: when the clock makes a scheduler look at it again; None: only a signal does.
        run: for a wake, the run that carries it; ``run_state`` is that run's state.
        into: the wake or run that carries a merged wake.
        successor: the wake it was re-armed as, or the run or wake that retries it.
        interrupt_by, interrupt_at: of an interrupted wake, who asked and when.
        interrupted_run, interrupted_state, interrupted_evidence: the run that was to stop, its state, and what proves
            that its processes are gone; None: nothing does yet.
        comments: the comments it carries, in order; card: the card whose answer it is, with its status.
        authority: in whose name a run acts.
        ended_at, end, exit_code, exit_signal, evidence: how it ended.
        notes: what else keeps it from moving.
    """

    kind: Literal["wake", "run"]
    company: str
    id: UUID
    state: str
    standing: Standing
    because: str
    agent: str
    issue: str | None
    project: str | None
    gate: str | None = None
    key: str | None = None
    reason: str | None = None
    message: str | None = None
    since: datetime | None = None
    opens_on: str | None = None
    reopens_at: datetime | None = None
    next_look: datetime | None = None
    run: UUID | None = None
    run_state: str | None = None
    into: UUID | None = None
    successor: UUID | None = None
    interrupt_by: str | None = None
    interrupt_at: datetime | None = None
    interrupted_run: UUID | None = None
    interrupted_state: str | None = None
    interrupted_evidence: str | None = None
    comments: tuple[str, ...] = ()
    card: str | None = None
    authority: str | None = None
    wake: UUID | None = None
    retry_of: UUID | None = None
    host: str | None = None
    generation: int | None = None
    attempt: int | None = None
    max_attempts: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    end: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    evidence: str | None = None
    error: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A wake or run that an id, or a part of one, means."""

    kind: Literal["wake", "run"]
    company: str
    id: UUID


def id_range(text: str) -> tuple[UUID, UUID]:
    """Return the first and last UUID that begin like ``text``: a whole UUID, or at least 6 of its hex digits.

    Raises:
        InvalidInput: ``text`` is no beginning of a UUID, or too short.
    """
    digits = text.replace("-", "").lower()
    if not re.fullmatch("[0-9a-f]{1,32}", digits):
        raise InvalidInput(f"{text!r} is not the id of a wake or a run", hint="list them: wakeful wakes, wakeful runs")
    if len(digits) < SHORTEST:
        raise InvalidInput(f"{text!r} is too short to name a wake or a run", hint=f"give {SHORTEST} digits or more")
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def find(conn: Connection[Any], company: str | None, text: str, kind: Literal["wake", "run"] | None = None) -> Found:
    """Return the one wake or run that ``text`` names.

    Arguments:
        conn: any connection that may read.
        company: where to look; None: in every company this login sees.
        text: a UUID, or at least 6 first or last digits of one.
        kind: look only among wakes, or only among runs.

    Raises:
        NotFound: none begins or ends like this.
        InvalidInput: several do, or ``text`` cannot be a part of an id.
    """
    low, high = id_range(text)
    params = {"company": company, "low": low, "high": high, "limit": 2 * _SHOWN_MATCHES}
    rows = store.run(conn, "explain.find", params, prepare=False).fetchall()
    if not rows and low != high:
        end = {"company": company, "end": text.replace("-", "").lower(), "limit": 2 * _SHOWN_MATCHES}
        rows = store.run(conn, "explain.find_by_end", end, prepare=False).fetchall()
    found = [Found(row.kind, row.company, row.id) for row in rows if kind is None or row.kind == kind]
    if not found:
        where = f" in company {company!r}" if company is not None else ""
        raise NotFound(
            f"there is no {kind or 'wake or run'} {text!r}{where}", hint="list them: wakeful wakes, wakeful runs"
        )
    if len(found) > 1:
        shown = ", ".join(f"{match.kind} {match.id}" for match in found[:_SHOWN_MATCHES])
        more = ", …" if len(found) > _SHOWN_MATCHES else ""
        raise InvalidInput(
            f"{text!r} names several: {shown}{more}", hint="give more digits, or the last six, which differ sooner"
        )
    return found[0]


def why(conn: Connection[Any], company: str | None, id: str | UUID) -> Explanation:
    """Explain one wake or run.

    Arguments:
        conn: any connection that may read.
        company: where to look; None: in every company this login sees.
        id: a UUID, or at least 6 first or last digits of one.

    Raises:
        NotFound: there is no such wake or run.
        InvalidInput: the id is ambiguous, or none at all.
    """
    found = find(conn, company, str(id))
    params = {"company": found.company, "id": found.id}
    row = store.run(conn, f"explain.{found.kind}", params, prepare=False).fetchone()
    if row is None:  # retention took it a moment ago
        raise NotFound(f"there is no {found.kind} {found.id} any more")
    held = tuple(brakes(conn).values())
    return of_wake(row, held) if found.kind == "wake" else of_run(row, held)


def brakes(conn: Connection[Any]) -> Mapping[str, str]:
    """Return what keeps everything from moving, with a sentence for each; ``unowned``: no scheduler is at work."""
    return {name: standings.BRAKES[name] for (name,) in store.run(conn, "explain.brakes", prepare=False)}


def of_wake(row: Any, brakes: tuple[str, ...] = ()) -> Explanation:
    """Explain a row of ``explain.wake``; ``brakes`` are what keeps everything from moving."""
    standing, because = standings.of_wake(row)
    return Explanation(
        kind="wake",
        company=row.company,
        id=row.id,
        state=row.state,
        standing=standing,
        because=because,
        agent=row.agent,
        issue=row.issue,
        project=row.project,
        gate=row.wait_gate,
        key=row.wait_key,
        reason=row.reason if row.ended_at else row.wait_reason,
        message=row.wait_message,
        since=row.wait_since if row.wait_reason else row.created_at,
        opens_on=row.opens_on,
        reopens_at=row.reopens_at,
        next_look=row.due_at,
        run=row.run,
        run_state=row.run_state,
        into=row.coalesced_into,
        successor=row.rearmed_by,
        comments=tuple(row.comments),
        card=f"{row.card} ({row.card_status})" if row.card is not None else None,
        interrupt_by=row.interrupt_by,
        interrupt_at=row.interrupt_at,
        interrupted_run=row.interrupted_run,
        interrupted_state=row.interrupted_state,
        interrupted_evidence=row.interrupted_evidence,
        host=row.run_host,
        started_at=row.run_started_at,
        ended_at=row.ended_at,
        end=row.run_end_class,
        error=row.error,
        notes=(*standings.interrupt(row), *standings.trouble(row), *(brakes if row.state in PENDING else ())),
    )


def of_run(row: Any, brakes: tuple[str, ...] = ()) -> Explanation:
    """Explain a row of ``explain.run``; ``brakes`` are what keeps everything from moving."""
    standing, because, since = standings.of_run(row)
    return Explanation(
        kind="run",
        company=row.company,
        id=row.id,
        state=row.state,
        standing=standing,
        because=because,
        agent=row.agent,
        issue=row.issue,
        project=row.project,
        gate=row.wait_gate,
        key=row.wait_key,
        reason=row.wait_reason or row.reason,
        message=row.wait_message or row.message,
        since=since,
        opens_on=row.opens_on,
        reopens_at=row.reopens_at,
        next_look=row.reopens_at if row.state == "queued" else row.renew_by if row.ended_at is None else None,
        successor=row.retried_by or row.retry_wake,
        comments=tuple(row.comments),
        authority=row.authority,
        wake=row.wake,
        retry_of=row.retry_of,
        host=row.host,
        generation=row.generation,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        started_at=row.started_at,
        ended_at=row.ended_at,
        end=row.end_class,
        exit_code=row.exit_code,
        exit_signal=row.exit_signal,
        evidence=row.evidence,
        error=row.error,
        notes=(*standings.absence(row), *(brakes if row.state == "queued" else ())),
    )
