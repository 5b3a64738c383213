"""Failure debt: bounded exponential backoff with full jitter. Pure; randomness is an argument."""

from __future__ import annotations

from collections.abc import Callable

FIRST = 1.0
CAP = 60.0


def delay(failures: int, draw: Callable[[], float], *, first: float = FIRST, cap: float = CAP) -> float:
    """Return how long to wait before the next try, in seconds.

    Arguments:
        failures: failures in a row so far, 0 or more.
        draw: a number in [0, 1), such as ``random.random``.
    """
    # 2.0 ** 1024 overflows; the cap is reached long before.
    ceiling = min(cap, first * 2.0 ** min(max(failures, 0), 64))
    return max(ceiling * draw(), first * 0.05)
