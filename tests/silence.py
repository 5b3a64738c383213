"""Silence: while time passes, no statement."""

from __future__ import annotations

from wakeful.testing import Statements
from wakeful.testing.clock import WatchedClock

OF_THE_CLOCK = ("UPDATE wakeful.clock SET shift = $1", "BEGIN ISOLATION LEVEL READ COMMITTED", "COMMIT")


def silence(statements: Statements, clock: WatchedClock, *, minutes: int) -> None:
    """Step through the minutes; nothing but the clock's own statements may run."""
    statements.reset()
    for _ in range(minutes):
        clock.step(60)
    ran = {one.text: one.calls for one in statements.executed()}
    ran.pop("SET LOCAL ROLE wakeful_owner", None)  # the clock's; a prepared one is counted at its first use only
    assert ran == dict.fromkeys(OF_THE_CLOCK, minutes)
