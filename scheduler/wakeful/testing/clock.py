"""One virtual clock that every session of a database and the driver in this process read."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import Connection

from wakeful.store import query


class VirtualClock:
    """Time that runs as usual, plus every :meth:`advance` so far; a ``wakeful.clock.Clock``.

    Constructing it makes wakeful.now() and wakeful.wall() of ``conn``'s database read the shared shift.

    Arguments:
        conn: an autocommit session of its own; the clock uses it for nothing but itself.
    """

    def __init__(self, conn: Connection[Any]) -> None:
        self._conn = conn
        self._shift = timedelta()
        self._advancing = threading.Lock()
        self._lock = threading.Lock()
        self._conditions: set[threading.Condition] = set()
        self._seen = threading.local()
        with conn.transaction():
            conn.execute(query("testing.install_clock"))

    @property
    def shift(self) -> timedelta:
        """How far ahead of the real time this clock is."""
        return self._shift

    def monotonic(self) -> float:
        """Return seconds that only grow, for waiting."""
        shift = self._shift
        self._seen.shift = shift
        return time.monotonic() + shift.total_seconds()

    def now(self) -> datetime:
        """Return this clock's time of day, in UTC."""
        return datetime.now(UTC) + self._shift

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait on a condition that the caller holds, for at most ``timeout`` seconds; an advance ends the wait too."""
        with self._lock:
            # The caller worked out its timeout by the time it saw; if that has jumped since, it must look again, once.
            seen = getattr(self._seen, "shift", self._shift)
            self._seen.shift = self._shift
            if seen != self._shift:
                return
            self._conditions.add(condition)
        condition.wait(timeout)

    def advance(self, by: float | timedelta) -> None:
        """Move the time forward: first the database's, so that nobody who wakes here finds it behind.

        Arguments:
            by: seconds, or a duration; not negative.
        """
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta():
            raise ValueError("a clock does not go back")
        with self._advancing:
            moved = self._shift + step
            with self._conn.transaction():
                self._conn.execute(query("testing.as_owner"))
                self._conn.execute(query("testing.shift_clock"), {"shift": moved})
            with self._lock:
                self._shift = moved
                waiting = list(self._conditions)
        for condition in waiting:
            with condition:
                condition.notify_all()
