"""Whole schedulers in this process, with an executor that ends every run at once, or holds it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from tests.conditions import wait_until
from tests.passes import row, runs

from wakeful import config, plugins
from wakeful.control import Pace
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing import Database
from wakeful.testing.clock import WatchedClock as WatchedClock
from wakeful.testing.instant import Executors, InstantExecutor
from wakeful_plugins import execution_wait, interrupt, native_status, request, saved_comments, task_retry

BRISK = Pace(keep_alive=timedelta(seconds=0.1), contend=timedelta(seconds=0.1))
SEEN = ("state", "wait_reason", "due_at", "error")  # of a wake, told where it does not get there


class Schedulers:
    """Schedulers of one database, each with a data directory of its own, all stopped in the end."""

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._directory = directory
        self._started: list[Scheduler] = []

    def build(
        self,
        tuning: Tuning | None = None,
        *,
        executor: InstantExecutor | None = None,
        more: Sequence[object] = (),
        **flags: Any,
    ) -> Scheduler:
        """Return a scheduler that has not been started."""
        place = self._directory / f"scheduler-{len(self._started)}"
        given = {"dsn": self._database.dsn, "data": str(place), "host": f"host-{len(self._started)}", **flags}
        settings = config.load(given, {}, self._directory)
        owners = [interrupt, request, task_retry, saved_comments, execution_wait, native_status]
        hooks = plugins.load(
            settings, plugins=[*owners, Executors(executor or InstantExecutor()), *more], discover=False
        )
        made = Scheduler(settings, hooks, tuning=tuning)
        self._started.append(made)
        return made

    def start(self, tuning: Tuning | None = None, **how: Any) -> Scheduler:
        """Return a scheduler that is ready."""
        made = self.build(tuning, **how)
        made.start()
        assert made.wait_ready(30)
        return made

    def stop_all(self) -> None:
        while self._started:
            made = self._started.pop()
            if hasattr(made, "control"):
                assert made.stop()


@contextlib.contextmanager
def schedulers(database: Database, directory: Path) -> Iterator[Schedulers]:
    made = Schedulers(database, directory)
    try:
        yield made
    finally:
        made.stop_all()


def all_heard(conn: psycopg.Connection[Any], scheduler: Scheduler) -> None:
    """Wait until everything that was signalled so far has been told to owners and dispatcher."""
    marks = scheduler.control.strange
    conn.execute("SELECT pg_notify('wakeful', 'mark')")
    wait_until(lambda: scheduler.control.strange == marks + 1, what="all signals heard")


@contextlib.contextmanager
def running(*made: Scheduler) -> Iterator[None]:
    """Start schedulers, wait until they are ready, and stop them at the end."""
    try:
        for one in made:
            one.start()
        for one in made:
            assert one.wait_ready(30)
        yield
    finally:
        ended = [one.stop() for one in made]
        assert all(ended)


def ended(conn: psycopg.Connection[Any], wake: UUID) -> int:
    """How many runs the wake has had, all of them ended."""
    return len(runs(conn, "wake = %s AND ended_at IS NOT NULL", wake))


def wait_ended(conn: psycopg.Connection[Any], *wakes: UUID) -> None:
    """Wait until each wake has had one run, which has ended."""
    for wake in wakes:
        wait_until(lambda wake=wake: ended(conn, wake) == 1, what=f"the run of {row(conn, wake, *SEEN)}")  # type: ignore[misc]  # mypy cannot infer such a lambda


def wait_parked(conn: psycopg.Connection[Any], wake: UUID, reason: str) -> None:
    """Wait until a wake waits for a reason."""
    wait_until(lambda: row(conn, wake, "wait_reason") == (reason,), what=f"{reason} of {row(conn, wake, *SEEN)}")
