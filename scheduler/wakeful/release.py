"""The release of one receipt by name: what owners and host services call when it has to be judged now.

A closed gate is an error here. Its kind says whether this very call saved the wait: only then may a caller park the
receipt quietly. It opens no gate; intents and chat settlements never come this way.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import Connection

from wakeful import store
from wakeful.admission import Admission, PassResult
from wakeful.database_errors import translated
from wakeful.errors import Conflict, NotFound, PersistedWaitRefusal, WaitRefusal, WakefulError
from wakeful.outcomes import End, Park, Refusal

log = logging.getLogger("wakeful.release")

LOOKS = 3  # a gate that opens while its closing is written is looked at again, so often


@dataclass(frozen=True, slots=True)
class Released:
    """What a release came to: a run, or the reason why there is none.

    Arguments:
        result: what the pass did, for whoever keeps deadlines in memory.
    """

    result: PassResult
    run: UUID | None = None
    refusal: WakefulError | None = None


def note(conn: Connection[Any], company: str, wake: UUID, actor: str | None) -> None:
    """Write into the journal that somebody asks for a pending wake by hand: before it is tried, whatever comes of it.

    Arguments:
        actor: as ``user:ann``; None: the database login.
    """
    with translated():
        store.run(conn, "admission.note_release", {"company": company, "id": wake, "actor": actor})


def release(admission: Admission, conn: Connection[Any], company: str, wake: UUID) -> UUID:
    """Judge one pending receipt now, whatever its deadline, and return the run that carries it.

    Arguments:
        admission: with the owners and gates of every loaded plugin.
        conn: an autocommit work connection of the scheduler's role, outside a transaction.

    Raises:
        PersistedWaitRefusal: a gate is closed, and this call's own conditional update saved that wait in the row.
        WaitRefusal: a gate is closed, and nothing was saved: the row said so already, or could not be changed.
        Conflict: the wake has ended, somebody else works on it, it is released by other means, or the instance drains.
        NotFound: there is no such wake.
        DatabaseUnavailable: no answer; whether it was released can be looked up.
        Exception: what a plugin raised; nothing was kept.
    """
    with translated():
        released = _released(admission, conn, company, wake)
    if released.run is None:
        assert released.refusal is not None  # noqa: S101 - a release without a run has its reason
        raise released.refusal
    return released.run


def recover(admission: Admission, conn: Connection[Any], company: str, wake: UUID) -> PassResult:
    """Release one receipt on an owner's behalf: what cannot run now is parked quietly, or set aside as a failure.

    Quiet is only a wait that this call has saved. Any other refusal, and whatever else goes wrong, is noted in the row
    with a growing pause. A row that somebody holds is among the result's ``busy``: call again in a second.

    Arguments: as of :func:`release`.

    Raises:
        psycopg.OperationalError: connection lost, 40P01, 40001: the caller backs off; nothing was kept.
    """
    try:
        released = _released(admission, conn, company, wake)
    except psycopg.OperationalError:
        raise
    except Exception as error:
        return _failed(admission, conn, company, wake, error)
    result, refusal = released.result, released.refusal
    if refusal is None or isinstance(refusal, PersistedWaitRefusal):
        return result
    if wake in result.busy or isinstance(result.outcomes.get(wake), End):
        return result  # a held row comes back in a second, and what this very pass has ended is no failure
    return _failed(admission, conn, company, wake, refusal)


def _failed(admission: Admission, conn: Connection[Any], company: str, wake: UUID, error: Exception) -> PassResult:
    log.warning("wake %s of company %s cannot be released: %s", wake, company, error)
    return admission.set_aside(conn, company, wake, error)


def _released(admission: Admission, conn: Connection[Any], company: str, wake: UUID) -> Released:
    refusal = _why_not_here(conn, company, wake)
    if refusal is not None:
        return refusal
    total = PassResult()
    for _ in range(LOOKS):
        try:
            result = admission.judge_now(conn, company, wake)
        except PersistedWaitRefusal as foreign:
            # A plugin that released something else on the way: that wait is not this receipt's.
            raise _refused(foreign, saved=False, since=foreign.since) from foreign
        total = replace(result, saved=total.saved | result.saved)
        if wake not in result.reopened:
            break
    return _outcome(conn, company, wake, total)


def _why_not_here(conn: Connection[Any], company: str, wake: UUID) -> Released | None:
    """Return the answer where there is nothing to judge: ended, unknown, not to be released, or draining."""
    row = store.run(conn, "admission.stored", {"company": company, "id": wake}).fetchone()
    nothing = PassResult()
    if row is None:
        return Released(nothing, refusal=NotFound(f"there is no wake {wake} in company {company!r}"))
    if row.state == "linked":
        return Released(nothing, row.run)
    if row.ended_at is not None:
        return Released(nothing, refusal=_ended(wake, row.state))
    if row.state != "deferred" or row.owner == "settlement":
        what = "waits for its chat action" if row.owner == "settlement" else f"is an intent, {row.state}"
        return Released(
            nothing, refusal=Conflict(f"wake {wake} {what}", hint="its own owner takes it up; see: wakeful why")
        )
    if row.draining:
        return Released(
            nothing, refusal=Conflict("the instance drains: nothing is admitted", hint="end it: wakeful undrain")
        )
    return None


def _outcome(conn: Connection[Any], company: str, wake: UUID, result: PassResult) -> Released:
    if wake in result.runs:
        return Released(result, result.runs[wake])
    outcome = result.outcomes.get(wake)
    if isinstance(outcome, Park):
        return Released(result, refusal=_refused(outcome.refusal, saved=wake in result.saved))
    row = store.run(conn, "admission.stored", {"company": company, "id": wake}).fetchone()
    if row is not None and row.state == "linked":
        return Released(result, row.run)
    if row is None or row.ended_at is None:
        return Released(
            result, refusal=Conflict(f"somebody else is working on wake {wake}", hint="try again in a moment")
        )
    return Released(result, refusal=_ended(wake, row.state))


def _ended(wake: UUID, state: str) -> Conflict:
    return Conflict(f"wake {wake} has ended, {state}", hint=f"save it once more: wakeful rearm {wake}")


def _refused(why: Refusal | WaitRefusal, *, saved: bool, since: datetime | None = None) -> WaitRefusal:
    kind = PersistedWaitRefusal if saved else WaitRefusal
    return kind(
        why.message,
        gate=why.gate,
        key=why.key,
        reason=why.reason,
        opens_on=why.opens_on,
        since=since,
        reopens_at=why.reopens_at,
    )
