"""The ramp: one start a second, doubling each ten, over after a minute."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wakeful import ramp


def test_the_first_start_is_at_once_and_the_rate_doubles_each_ten_seconds() -> None:
    assert [ramp.slot(n) for n in (1, 2, 11)] == [0.0, 1.0, 10.0]
    assert ramp.slot(13) - ramp.slot(12) == 0.5
    assert ramp.slot(33) - ramp.slot(32) == 0.25


def test_before_the_reopening_nothing_starts_and_after_the_ramp_anything() -> None:
    assert ramp.allowed(-0.001) == 0
    assert ramp.allowed(ramp.LENGTH) == float("inf")
    assert ramp.slot(100_000) == ramp.LENGTH


@given(st.integers(1, 2_000))
def test_a_start_is_allowed_at_its_slot_and_not_before(number: int) -> None:
    at = ramp.slot(number)
    assert ramp.allowed(at + 1e-6) >= number - 1e-3
    if 0 < at < ramp.LENGTH:
        assert ramp.allowed(at - 1e-3) < number


@given(st.floats(0, 70, allow_nan=False), st.floats(0, 70, allow_nan=False))
def test_more_time_never_allows_less(first: float, second: float) -> None:
    earlier, later = sorted((first, second))
    assert ramp.allowed(earlier) <= ramp.allowed(later)
