"""Whose turn it is behind an account that has just reopened: runs that were queued before start on its ramp too.

What is admitted after the reopening was ramped by its admission; what had been admitted before, and waited to be
claimed, takes turns here. One scheduler at a time hands them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg import Connection

from wakeful import store
from wakeful.ramp import Ramp

GATES = ("provider", "rate")
BUSY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Turn:
    """How many may start now, and when the next one may."""

    allowed: int
    next: datetime


def take(conn: Connection[Any], company: str, account: str) -> Turn | None:
    """Return the present turn of an account, or None where no ramp holds its runs back.

    Arguments:
        conn: inside the claim's transaction, which hands out the turn.
    """
    key = {"company": company, "account": account}
    mine = store.run(conn, "dispatch.take_turn", key).fetchall()[0].mine
    row = store.run(conn, "dispatch.ramp", key).fetchone()
    if row is None:
        return None
    store.run(conn, "dispatch.wait_for_turn", key)
    if not mine:
        return Turn(0, row.now + BUSY)
    ramp = Ramp(row.rate, row.period)
    since = (row.now - row.ramp_from).total_seconds()
    free = max(0, int(ramp.allowed(since)) - row.started)
    slot = row.ramp_from + timedelta(seconds=ramp.slot(row.started + free + 1))
    return Turn(free, max(slot, row.now + timedelta(milliseconds=1)))
