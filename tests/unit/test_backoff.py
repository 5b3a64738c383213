from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful import backoff


@given(st.integers(-5, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_never_nothing_and_never_past_the_cap(failures: int, drawn: float) -> None:
    assert 0.05 <= backoff.delay(failures, lambda: drawn) <= backoff.CAP


def test_the_ceiling_doubles_up_to_the_cap() -> None:
    ceilings = [backoff.delay(n, lambda: 0.5) * 2 for n in range(8)]
    assert ceilings == [1, 2, 4, 8, 16, 32, 60, 60]


def test_the_jitter_is_full() -> None:
    draw = random.Random(1).random  # noqa: S311 - a jitter, repeatable
    pauses = [backoff.delay(6, draw) for _ in range(1000)]
    assert min(pauses) < 3
    assert max(pauses) > 57
    assert sum(pauses) / 1000 == pytest.approx(30, abs=2)


def test_the_scale_is_the_callers() -> None:
    assert backoff.delay(0, lambda: 1.0, first=0.1, cap=0.4) == 0.1
    assert backoff.delay(9, lambda: 1.0, first=0.1, cap=0.4) == 0.4
    assert backoff.delay(0, lambda: 0.0, first=0.1) == pytest.approx(0.005)
