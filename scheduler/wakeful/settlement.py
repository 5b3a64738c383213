"""The settlement pass: what a chat's action came to is folded into the retry that waits for it, and nothing else.

It judges no gate, admits nothing and asks nobody: an action that has not settled leaves its receipt as it is. One
that is not there, or does not bear out what the receipt is certified by, is no wait but a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import store
from wakeful.errors import Conflict
from wakeful.outcomes import End, Proceed

Settled = End | Proceed


@dataclass(frozen=True, slots=True)
class Folded:
    """What one settlement pass found and wrote.

    Arguments:
        ends: receipts that are settled.
        given_back: receipts that go on as ordinary retries, due now.
        failed: receipts whose action does not bear them out.
        due: receipts whose action has not settled, but whose own stored deadline has come.
        busy: receipts whose rows somebody else held.
    """

    ends: Mapping[UUID, End]
    given_back: frozenset[UUID]
    failed: frozenset[UUID]
    due: frozenset[UUID]
    busy: frozenset[UUID]


def outcome(wake: UUID, state: str | None, run: UUID | None, error: str | None = None) -> Settled | None:
    """Return what an action's state means for its receipt: an end, an ordinary retry, or (None) nothing yet.

    Arguments:
        state: of the action; None where there is none that bears the receipt out.
        run: the run that the action led to by itself.
        error: what the chat says of a failure.

    Raises:
        Conflict: there is no such action.
    """
    if state is None:
        raise unauthorised(wake)
    if state == "failed":
        said = f": {error}" if error else ""
        return End("settled", "chat.failed", f"the chat could not process it{said}")
    if state != "processed":
        return None
    return Proceed() if run is None else End("settled", "chat.processed", f"the chat led to run {run}", into=run)


def unauthorised(wake: UUID) -> Conflict:
    """Return the 409 of a receipt whose action is not there, or is another one than it is certified by."""
    return Conflict(f"no chat action bears out retry {wake}", hint="take it back: wakeful retire, then retry the run")


def fold(conn: Connection[Any], company: str, ids: Sequence[UUID]) -> Folded:
    """Fold what has settled into its receipts.

    Arguments:
        conn: inside a transaction of its own.
        ids: at most one pass of wakes; those that wait for no chat are left alone.
    """
    key = {"company": company, "ids": list(ids)}
    with conn.pipeline():
        locking = store.run(conn, "settlement.lock", key)
        reading = store.run(conn, "settlement.actions", key)
        locked, rows = {row.id for row in locking}, reading.fetchall()
    ends: dict[UUID, End] = {}
    given_back, failed, due = set(), set(), set()
    for row in rows:
        if row.id not in locked:
            continue
        try:
            settled = outcome(row.id, row.state, row.run, row.error)
        except Conflict:
            failed.add(row.id)
            continue
        if isinstance(settled, End):
            ends[row.id] = settled
        elif settled is not None:
            given_back.add(row.id)
        elif row.due:
            due.add(row.id)
    _write(conn, company, ends, given_back)
    busy = frozenset(row.id for row in rows if row.id not in locked)
    return Folded(ends, frozenset(given_back), frozenset(failed), frozenset(due), busy)


def _write(conn: Connection[Any], company: str, ends: Mapping[UUID, End], given_back: set[UUID]) -> None:
    with conn.pipeline():
        if ends:
            columns = {
                "wakes": list(ends),
                "outcomes": ["failed" if end.into is None else "processed" for end in ends.values()],
                "reasons": [end.reason for end in ends.values()],
                "messages": [end.message for end in ends.values()],
                "into": [end.into for end in ends.values()],
            }
            store.run(conn, "settlement.end", {"company": company, **columns})
        if given_back:
            store.run(conn, "settlement.give_back", {"company": company, "wakes": sorted(given_back)})
