"""An owner's window on its deadlines: what lies before the horizon is known, what lies behind costs no read. Pure.

The window is read as the nearest N deadlines; the last of them is the horizon. A deadline that arrives later
is known if it lies before the horizon, and otherwise found by the next read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from wakeful.line import Manner

SIZE = 1000
SETTLEMENT = "settlement"  # the owner, and the topic, of receipts that are only settled


@dataclass(frozen=True, slots=True)
class Entry:
    """One receipt's deadline."""

    company: str
    id: UUID
    due_at: datetime


@dataclass(slots=True)
class Window:
    """One owner's horizon.

    ``horizon`` is None when every deadline is known; ``stale`` when the next deadlines have to be read before
    anything is silent; ``page`` is what the last read was full of.
    """

    owner: str
    horizon: datetime | None = None
    stale: bool = True
    page: frozenset[UUID] = frozenset()

    @property
    def manner(self) -> Manner:
        """How receipts are looked at whose deadlines this window tells of."""
        return Manner.SETTLED if self.owner == SETTLEMENT else Manner.JUDGED

    def opened(self, entries: Sequence[Entry], limit: int) -> None:
        """Take note of a read of the nearest deadlines, of at most ``limit`` rows."""
        self.horizon = entries[-1].due_at if len(entries) >= limit else None
        self.stale = False

    def is_stuck(self, page: frozenset[UUID]) -> bool:
        """Take note of a full page; whether it is the one before again, though all of it has been looked at.

        A page that is stuck is not looked at for a while, and then once more.
        """
        stuck = page == self.page
        self.page = frozenset() if stuck else page
        return stuck

    def narrow(self, horizon: datetime) -> None:
        """Take note that deadlines behind ``horizon`` were dropped from memory."""
        self.horizon = horizon if self.horizon is None else min(self.horizon, horizon)

    def knows(self, due_at: datetime) -> bool:
        """Whether a deadline belongs into memory now; one behind the horizon is found by a later read."""
        return self.horizon is None or due_at <= self.horizon

    def passed(self, now: datetime) -> bool:
        """Whether the horizon has been reached, so that the next window must be read."""
        return self.stale or (self.horizon is not None and self.horizon <= now)
