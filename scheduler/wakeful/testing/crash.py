"""Crash points: named places at which a test kills the process, or holds it until it has looked.

They stand where the product passes a ``wakeful.crash_points.CrashPoint``, in the place of ``no_crash``.
"""

from __future__ import annotations

import os
import signal
import threading


class KillAt:
    """Kills its own process by SIGKILL, which nothing can catch, at the n-th arrival at a place.

    Arguments:
        place: the name of the place.
        arrival: which arrival, from 1.
    """

    def __init__(self, place: str, arrival: int = 1) -> None:
        self._place = place
        self._left = arrival
        self._lock = threading.Lock()

    def __call__(self, place: str) -> None:
        """Arrive at a place."""
        if place != self._place:
            return
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()  # the kill is asynchronous; not one further instruction of the product runs here


class HoldAt:
    """Holds every thread that arrives at a place until the test releases it.

    Arguments:
        place: the name of the place.
        within: seconds after which a hold ends by an AssertionError, so that a test cannot hang.
    """

    def __init__(self, place: str, within: float = 30.0) -> None:
        self._place = place
        self._within = within
        self._reached = threading.Event()
        self._released = threading.Event()

    def __call__(self, place: str) -> None:
        """Arrive at a place."""
        if place != self._place:
            return
        self._reached.set()
        if not self._released.wait(self._within):
            raise AssertionError(f"held at {place} for {self._within:g} s and never released")

    def wait_reached(self) -> None:
        """Return when somebody stands at the place.

        Raises:
            AssertionError: nobody came in time.
        """
        if not self._reached.wait(self._within):
            raise AssertionError(f"nobody reached {self._place} within {self._within:g} s")

    def release(self) -> None:
        """Let everybody pass, now and later."""
        self._released.set()
