"""Failure debt: who failed how often in a row, and until when it is left alone. Pure; not thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from wakeful import backoff

K = TypeVar("K", bound=Hashable)


class Debts(Generic[K]):
    """Debts by key, on one monotonic scale of seconds; whoever succeeds is forgotten.

    Arguments:
        draw: a number in [0, 1), for the jitter.
    """

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._owed: dict[K, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._owed)

    def failed(self, now: float, *keys: K) -> float:
        """Take note that these failed together; return until when they are left alone, together."""
        until = now + backoff.delay(max(map(self.failures, keys), default=0), self._draw)
        for key in keys:
            self._owed[key] = (self.failures(key) + 1, until)
        return until

    def paid(self, key: K) -> None:
        """Take note of a success."""
        self._owed.pop(key, None)

    def failures(self, key: K) -> int:
        """Return how often the key has failed in a row."""
        return self._owed[key][0] if key in self._owed else 0

    def rest(self, key: K, now: float) -> float | None:
        """Return until when the key is left alone; None if it need not be."""
        owed = self._owed.get(key)
        return None if owed is None or owed[1] <= now else owed[1]

    def next(self, now: float) -> float | None:
        """Return when the next of those that are left alone may try again."""
        return min((until for _, until in self._owed.values() if until > now), default=None)

    def forgive(self) -> None:
        """Let everybody try again at once."""
        self._owed.clear()

    def forget_old(self, now: float) -> None:
        """Forget who did not come back long after its rest was over."""
        self._owed = {key: owed for key, owed in self._owed.items() if owed[1] + backoff.CAP > now}
