"""Hosts that a person declared dead: what they were running goes back to the queue, by that person's word.

Any scheduler does it, company by company, at its start and whenever the word is given; of several the first one wins
each run. What a dead host says later is of an overtaken generation, and refused.
"""

from __future__ import annotations

import logging
from itertools import groupby
from typing import Any

from psycopg import Connection

from wakeful import store, terminals
from wakeful.crash_points import Crash, no_crash
from wakeful.executions import Grade, RunKey
from wakeful.terminals import Death, Word

log = logging.getLogger("wakeful.host_loss")


def settle(conn: Connection[Any], *, crash: Crash = no_crash) -> None:
    """Requeue what dead hosts were starting or running, end what they were to stop, resolve what was in doubt.

    Arguments:
        conn: an autocommit work connection at READ COMMITTED, outside a transaction.
        crash: called at the crash points of :func:`wakeful.terminals.record`.
    """
    while rows := store.run(conn, "recovery.on_dead_hosts").fetchall():
        for (company, host, person), lost in groupby(rows, lambda row: (row.company, row.host, row.dead_by)):
            error = f"{person} declared host {host} dead"
            deaths = [Death(RunKey(company, row.run, row.generation), Grade.ATTESTED, error) for row in lost]
            done = terminals.record(conn, company, [], deaths, word=Word(person, "host dead"), crash=crash)
            log.warning("%s: %d of its runs requeued, %d ended", error, len(done.requeued), len(done.ended))


def is_dead(conn: Connection[Any], host: str) -> bool:
    """Whether a host was declared dead and has not registered again: then it claims nothing."""
    return bool(store.run(conn, "hosts.is_dead", {"host": host}).fetchall()[0].dead)
