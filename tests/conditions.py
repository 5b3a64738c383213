"""The one place where tests wait for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], *, within: float = 30.0, what: str = "the condition") -> T:
    """Return the first true value of ``predicate``, asked again and again.

    Raises:
        AssertionError: it is still false after ``within`` seconds.
    """
    deadline = time.monotonic() + within
    while not (value := predicate()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what} did not come true within {within:g} s")
        time.sleep(0.005)
    return value
