"""Deadlines in memory: a heap in which a key has one deadline. Pure; not thread-safe.

A later entry for a key replaces the earlier one; the replaced entry stays in the heap until it surfaces.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from itertools import count as counter
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

BUSY = 1.0  # seconds after which a row that somebody else held is looked at again


class Timers(Generic[K]):
    """Deadlines by key, on any monotonic scale of seconds."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._due: dict[K, tuple[float, int]] = {}
        self._serial = counter()

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, due: float) -> None:
        """Give a key a deadline, in place of any it has."""
        entry = (due, next(self._serial))
        self._due[key] = entry
        heapq.heappush(self._heap, (due, entry[1], key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._due):
            self._heap = [(d, n, k) for k, (d, n) in self._due.items()]
            heapq.heapify(self._heap)

    def set_earlier(self, key: K, due: float) -> None:
        """Give a key a deadline unless it has an earlier one."""
        if key not in self._due or due < self._due[key][0]:
            self.set(key, due)

    def discard(self, key: K) -> None:
        """Forget a key's deadline, if it has one."""
        self._due.pop(key, None)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys, in no order."""
        return iter(self._due)

    def get(self, key: K) -> float | None:
        """Return a key's deadline, or None."""
        return self._due[key][0] if key in self._due else None

    def next(self) -> float | None:
        """Return the earliest deadline, or None."""
        while self._heap:
            due, serial, key = self._heap[0]
            if self._due.get(key) == (due, serial):
                return due
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> Iterator[K]:
        """Yield and forget every key whose deadline has come, earliest first."""
        while (due := self.next()) is not None and due <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            yield key

    def keep_nearest(self, count: int) -> float | None:
        """Forget all but the ``count`` earliest deadlines; return the last one kept if any was forgotten, else None."""
        if len(self._due) <= count:
            return None
        entries = sorted((d, n, k) for k, (d, n) in self._due.items()) if count else []
        self._heap = entries[:count]  # sorted, hence a heap
        self._due = {k: (d, n) for d, n, k in self._heap}
        return self._heap[-1][0] if self._heap else None

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._due.clear()
