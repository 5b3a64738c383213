"""Timers for what failed and is tried again: bounded, growing pauses with jitter, per thing."""

from __future__ import annotations

from collections.abc import Callable

from wakeful import backoff
from wakeful.clock import Clock
from wakeful.timers import Timers

Timer = tuple[object, ...]


class Retries:
    """Sets a timer for each thing that failed; the pause grows with its failures in a row. Not thread-safe.

    Arguments:
        timers: where the timers are set; whoever pops one tries again.
        draw: randomness, a number in [0, 1).
    """

    def __init__(self, timers: Timers[Timer], clock: Clock, draw: Callable[[], float]) -> None:
        self._timers = timers
        self._clock = clock
        self._draw = draw
        self._failures: dict[Timer, int] = {}

    def failed(self, thing: Timer) -> float:
        """Try again later; return the seconds until then."""
        failures = self._failures.get(thing, 0)
        self._failures[thing] = failures + 1
        pause = backoff.delay(failures, self._draw)
        self._timers.set(thing, self._clock.monotonic() + pause)
        return pause

    def succeeded(self, thing: Timer) -> None:
        """Forget its failures, and the timer that may be set."""
        if self._failures.pop(thing, None) is not None:
            self._timers.discard(thing)
