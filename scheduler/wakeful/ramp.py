"""The ramp on which a provider's account reopens: one start a second, doubling, then no limit. Pure.

A thousand sleepers behind one account would otherwise start as one herd and close it again at once.
"""

from __future__ import annotations

FIRST_RATE = 1.0
PERIOD = 10.0
LENGTH = 60.0


def allowed(seconds: float) -> float:
    """Return how many starts are allowed in the first ``seconds`` after reopening; infinite after the ramp."""
    if seconds < 0:
        return 0.0
    if seconds >= LENGTH:
        return float("inf")
    periods, rest = divmod(seconds, PERIOD)
    rate: float = FIRST_RATE * 2.0**periods
    return 1.0 + PERIOD * (rate - FIRST_RATE) + rest * rate


def slot(number: int) -> float:
    """Return the seconds after the reopening at which start ``number`` (from 1) is allowed."""
    periods = 0
    while periods * PERIOD < LENGTH and allowed((periods + 1) * PERIOD - 1e-9) < number:
        periods += 1
    if periods * PERIOD >= LENGTH:
        return LENGTH
    rate = FIRST_RATE * 2.0**periods
    return max(0.0, min(LENGTH, periods * PERIOD + (number - allowed(periods * PERIOD)) / rate))
