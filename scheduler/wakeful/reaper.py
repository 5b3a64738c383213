"""Who looks after claimed runs whose claimer is gone. Evidence and renewals decide, never age.

The run's own host looks at the evidence first. Only where its files cannot be reached is a run declared
uncertain, by the owner of its company and a margin later: its state stays, its generation is bumped so that
late writes are refused, a recovery action is opened, and nothing replaces it before proof or a person's word.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg import Connection

from wakeful import store
from wakeful.executions import Executor, RunKey, Status, Uncertain
from wakeful.identity import Identity

log = logging.getLogger("wakeful.reaper")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A claimed run of this host whose claimer is proven dead.

    Arguments:
        key: the generation whose files are here.
        row: the row's generation; one more than ``key`` where the run was declared uncertain.
    """

    key: RunKey
    row: RunKey
    executor: str
    started: bool


def orphans(conn: Connection[Any], identity: Identity) -> list[Orphan]:
    """Return this host's claimed runs whose files are here and whose claimer's process is proven dead."""
    found = []
    for row in store.run(conn, "recovery.mine", {"host": identity.host}).fetchall():
        if row.claimed_by != identity.claimer and identity.reaches(row.claimed_by) and identity.is_dead(row.claimed_by):
            key = RunKey(row.company, row.run, row.generation)
            files = RunKey(row.company, row.run, row.generation - 1) if row.uncertain else key
            found.append(Orphan(files, key, row.executor, row.state in ("running", "stopping")))
    return found


def adopt(conn: Connection[Any], identity: Identity, lease: timedelta, adopted: Sequence[Orphan]) -> None:
    """Renew the adopted runs under this scheduler's name."""
    if not adopted:
        return
    columns = {
        "companies": [o.key.company for o in adopted],
        "runs": [o.row.run for o in adopted],
        "generations": [o.row.generation for o in adopted],
    }
    store.run(conn, "recovery.adopt", {"claimer": identity.claimer, "lease": lease.total_seconds(), **columns})


def declare_uncertain(conn: Connection[Any], host: str, margin: timedelta) -> None:
    """Declare other hosts' runs uncertain whose renewal is overdue by more than the margin."""
    parameters = {"host": host, "margin": margin.total_seconds()}
    for row in store.run(conn, "recovery.expired_elsewhere", parameters).fetchall():
        reason = f"host {row.host} has not renewed it since {row.renew_by:%Y-%m-%d %H:%M:%S} UTC"
        store.run(
            conn,
            "recovery.declare_uncertain",
            {"company": row.company, "run": row.run, "generation": row.generation, "reason": reason},
        )
        log.warning("run %s is uncertain: %s", row.run, reason)


def next_expiry(conn: Connection[Any], identity: Identity, *, everywhere: bool) -> float | None:
    """Return the seconds until the earliest claim of another scheduler must be looked at, or None."""
    parameters = {"host": identity.host, "claimer": identity.claimer, "everywhere": everywhere}
    seconds: float | None = store.run(conn, "recovery.next_expiry", parameters).fetchall()[0].seconds
    return seconds


def delete_freed(host: str, freed: Iterable[tuple[str | None, str | None]]) -> None:
    """Delete the files of runs whose rows retention deleted, where they are this host's."""
    for whose, directory in freed:
        if whose == host and directory:
            with contextlib.suppress(OSError):
                shutil.rmtree(directory)


class Examiner(threading.Thread):
    """Finds out the truth about runs, one after another; an examination may wait out a stop grace.

    Arguments:
        executors: by name.
        answer: called with each key and its status.
    """

    def __init__(self, executors: Mapping[str, Executor], answer: Callable[[RunKey, Status], None]) -> None:
        super().__init__(name="wakeful examiner", daemon=True)
        self._executors = executors
        self._answer = answer
        self._asked: queue.SimpleQueue[tuple[str, RunKey] | None] = queue.SimpleQueue()

    def ask(self, executor: str, key: RunKey) -> None:
        """Have a run examined."""
        self._asked.put((executor, key))

    def stop(self) -> None:
        """End after the examination in progress."""
        self._asked.put(None)

    def run(self) -> None:
        """Examine until stopped."""
        while (asked := self._asked.get()) is not None:
            name, key = asked
            try:
                status = self._executors[name].examine(key)
            except Exception as error:
                log.warning("run %s could not be examined: %s", key.cookie, error)
                status = Uncertain(f"it could not be examined: {error}")
            self._answer(key, status)
