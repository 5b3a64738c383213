"""The word that nobody can prove how a run is: late writes are refused, and a person or proof must decide."""

from __future__ import annotations

import logging
from typing import Any

from psycopg import Connection

from wakeful import store
from wakeful.executions import RunKey
from wakeful.results import storable

log = logging.getLogger("wakeful.doubt")

REASON = 2000  # characters of a reason that the recovery action keeps


def declare_uncertain(conn: Connection[Any], key: RunKey, reason: str, *, overdue: float | None) -> bool:
    """Declare a run uncertain; False if it has ended, was overtaken, or is uncertain already.

    Arguments:
        conn: a work connection at READ COMMITTED.
        reason: what is known, for people; may hold anything.
        overdue: for how many seconds it must not have been renewed; None if its own host says so.
    """
    text = storable(reason[:REASON])
    parameters = {"company": key.company, "run": key.run, "generation": key.generation}
    row = store.run(conn, "recovery.declare_uncertain", {**parameters, "reason": text, "overdue": overdue}).fetchone()
    if row is not None:
        log.warning("run %s is uncertain: %s", key.cookie, text)
    return row is not None
