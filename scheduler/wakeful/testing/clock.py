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


class WatchedClock(VirtualClock):
    """A virtual clock that knows which threads sleep, and since which time.

    Arguments:
        threads: names of the threads that :meth:`settle` waits for.
        within: seconds after which they should sleep.
    """

    def __init__(
        self,
        conn: Connection[Any],
        threads: tuple[str, ...] = ("wakeful driver", "wakeful dispatcher"),
        within: float = 30.0,
    ) -> None:
        self._threads = threads
        self._within = within
        self._asleep: dict[str, timedelta] = {}
        self._changed = threading.Condition()
        super().__init__(conn)

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait as a virtual clock does, and remember who waits."""
        name = threading.current_thread().name
        with self._changed:
            self._asleep[name] = self.shift
            self._changed.notify_all()
        try:
            super().wait(condition, timeout)
        finally:
            with self._changed:
                self._asleep.pop(name, None)

    def settle(self) -> None:
        """Wait until the threads have looked at the present time and sleep again.

        Raises:
            AssertionError: they do not within the time given.
        """

        def settled() -> bool:
            return [self._asleep.get(name) for name in self._threads] == [self.shift] * len(self._threads)

        with self._changed:
            if not self._changed.wait_for(settled, self._within):
                raise AssertionError(f"{', '.join(self._threads)} do not sleep after {self._within:g} s")

    def step(self, by: float | timedelta) -> None:
        """Advance, and let everybody look."""
        self.advance(by)
        self.settle()
