"""The only readers of time. Waiting is monotonic; what is due is judged by the database's clock.

A scheduler never compares the host's wall clock with anything: it learns the database's time with each read
and carries it forward by the monotonic clock. A test replaces ``Clock`` and the database's ``now()`` together.
"""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Monotonic time and waiting on it."""

    def monotonic(self) -> float:
        """Return seconds from some fixed point."""

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait on a condition that the caller holds, for at most ``timeout`` seconds of this clock (None: for ever)."""


class SystemClock:
    """The machine's monotonic clock."""

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait on the condition in real time."""
        condition.wait(timeout)


class DatabaseTime:
    """The database's time, carried forward by a monotonic clock between reads. Thread-safe.

    What the database says has aged a little when it arrives, so of several reads the latest reckoning is the best.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: tuple[datetime, float] | None = None

    def observe(self, now: datetime) -> None:
        """Take note of what the database said the time was, just now; a reckoning that is ahead of it stands."""
        reckoned = self.now()
        if reckoned is None or reckoned < now:
            self.correct(now)

    def correct(self, now: datetime) -> None:
        """Believe what the database said the time was, just now, though the reckoning was ahead of it."""
        self._known = (now, self._clock.monotonic())

    def now(self) -> datetime | None:
        """Return the database's time, or None before the first read."""
        known = self._known
        return None if known is None else known[0] + timedelta(seconds=self._clock.monotonic() - known[1])

    def has_come(self, moment: datetime) -> bool:
        """Return whether a database moment lies in the past, as far as known."""
        now = self.now()
        return now is not None and moment <= now

    def monotonic_at(self, moment: datetime) -> float:
        """Return the monotonic time of a database moment (now, before the first read)."""
        known = self._known
        return self._clock.monotonic() if known is None else known[1] + (moment - known[0]).total_seconds()

    def moment(self, monotonic: float) -> datetime:
        """Return the database moment of a monotonic time.

        Raises:
            LookupError: before the first read.
        """
        known = self._known
        if known is None:
            raise LookupError("the database's time is not known yet")
        return known[0] + timedelta(seconds=monotonic - known[1])
