"""The ramp: one start a second, doubling each ten, over when the doubling is; both by setting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wakeful.ramp import DOUBLINGS, Ramp

DEFAULT = Ramp()
RAMPS = st.builds(Ramp, st.integers(1, 50).map(float), st.integers(1, 100).map(float))


def test_the_first_start_is_at_once_and_the_rate_doubles_each_ten_seconds() -> None:
    assert [DEFAULT.slot(n) for n in (1, 2, 11)] == [0.0, 1.0, 10.0]
    assert DEFAULT.slot(13) - DEFAULT.slot(12) == 0.5
    assert DEFAULT.slot(33) - DEFAULT.slot(32) == 0.25


def test_a_thousand_sleepers_need_more_than_a_minute() -> None:
    assert 60 < DEFAULT.slot(1000) < 70


def test_the_first_rate_and_its_doubling_can_be_set() -> None:
    assert Ramp(5.0, 2.0).slot(11) == 2.0
    assert Ramp(5.0, 2.0).slot(31) == 4.0


def test_before_the_reopening_nothing_starts_and_after_the_ramp_anything() -> None:
    assert DEFAULT.allowed(-0.001) == 0
    assert DEFAULT.length == 10 * DOUBLINGS
    assert DEFAULT.allowed(DEFAULT.length) == float("inf")
    assert DEFAULT.slot(100_000) == DEFAULT.length


@given(RAMPS, st.integers(1, 2_000))
def test_a_start_is_allowed_at_its_slot_and_not_before(ramp: Ramp, number: int) -> None:
    at = ramp.slot(number)
    assert ramp.allowed(at + 1e-6) >= number - 1e-3
    if 0 < at < ramp.length:
        assert ramp.allowed(at * (1 - 1e-3)) < number


@given(RAMPS, st.floats(0, 200, allow_nan=False), st.floats(0, 200, allow_nan=False))
def test_more_time_never_allows_less(ramp: Ramp, first: float, second: float) -> None:
    earlier, later = sorted((first, second))
    assert ramp.allowed(earlier) <= ramp.allowed(later)
