"""One virtual clock that every session of a database and the driver in this process read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import Connection

from wakeful.store import query


class VirtualClock:
    """Time that runs as usual, plus every :meth:`advance` so far.

    Constructing it makes wakeful.now() and wakeful.wall() of ``conn``'s database read the shared shift. Pass
    :meth:`monotonic` where the driver wants its clock, and register what has to look again with :meth:`on_advance`.

    Arguments:
        conn: an autocommit session of its own; the clock uses it for nothing but itself.
    """

    def __init__(self, conn: Connection[Any]) -> None:
        self._conn = conn
        self._shift = timedelta()
        self._lock = threading.Lock()
        self._waiters: list[Callable[[], None]] = []
        with conn.transaction():
            conn.execute(query("testing.install_clock"))

    @property
    def shift(self) -> timedelta:
        """How far ahead of the real time this clock is."""
        return self._shift

    def monotonic(self) -> float:
        """Return seconds that only grow, for waiting."""
        return time.monotonic() + self._shift.total_seconds()

    def now(self) -> datetime:
        """Return this clock's time of day, in UTC."""
        return datetime.now(UTC) + self._shift

    def on_advance(self, look_again: Callable[[], None]) -> None:
        """Have ``look_again`` called after each advance, by the thread that advances."""
        with self._lock:
            self._waiters.append(look_again)

    def advance(self, by: float | timedelta) -> None:
        """Move the time forward: first the database's, so that nobody who wakes here finds it behind.

        Arguments:
            by: seconds, or a duration; not negative.
        """
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if step < timedelta():
            raise ValueError("a clock does not go back")
        with self._lock:
            moved = self._shift + step
            with self._conn.transaction():
                self._conn.execute(query("testing.as_owner"))
                self._conn.execute(query("testing.shift_clock"), {"shift": moved})
            self._shift = moved
            waiters = list(self._waiters)
        for look_again in waiters:
            look_again()

    def notifying(self, condition: threading.Condition) -> None:
        """Register a condition: whoever waits on it is woken by each advance."""

        def look_again() -> None:
            with condition:
                condition.notify_all()

        self.on_advance(look_again)
