from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from wakeful.line import Manner
from wakeful.window import Entry, Window

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)


def entries(*seconds: float) -> list[Entry]:
    return [Entry("acme", uuid4(), NOW + timedelta(seconds=s)) for s in seconds]


def test_a_window_never_read_knows_nothing_for_certain() -> None:
    assert Window("request").passed(NOW)


def test_the_last_row_of_a_full_window_is_its_horizon() -> None:
    window = Window("request")
    window.opened(entries(1, 2, 3), 3)
    assert window.horizon == NOW + timedelta(seconds=3)
    assert window.knows(NOW + timedelta(seconds=3))
    assert not window.knows(NOW + timedelta(seconds=3, microseconds=1))
    assert not window.passed(NOW + timedelta(seconds=2, microseconds=999999))
    assert window.passed(NOW + timedelta(seconds=3))


def test_a_window_that_is_not_full_sees_everything_and_never_passes() -> None:
    for found in ([], entries(1, 2)):
        window = Window("request")
        window.opened(found, 3)
        assert window.horizon is None
        assert window.knows(datetime(2100, 1, 1, tzinfo=UTC))
        assert not window.passed(datetime(2100, 1, 1, tzinfo=UTC))


def test_a_stale_window_has_passed_whatever_its_horizon() -> None:
    window = Window("request")
    window.opened(entries(100, 200), 2)
    window.stale = True
    assert window.passed(NOW)


def test_a_window_can_only_be_narrowed() -> None:
    window = Window("request")
    window.opened([], 3)
    window.narrow(NOW + timedelta(seconds=9))
    assert window.horizon == NOW + timedelta(seconds=9)
    window.narrow(NOW + timedelta(seconds=20))
    assert window.horizon == NOW + timedelta(seconds=9)
    window.narrow(NOW + timedelta(seconds=2))
    assert not window.knows(NOW + timedelta(seconds=3))


def test_a_full_page_that_comes_again_is_stuck_every_other_time() -> None:
    window, one, other = Window("request"), frozenset({uuid4()}), frozenset({uuid4()})
    assert [window.is_stuck(page) for page in (one, one, one, one, other, one)] == [
        False,
        True,
        False,
        True,
        False,
        False,
    ]


def test_only_the_owner_of_settlements_has_its_receipts_settled() -> None:
    assert Window("settlement").manner is Manner.SETTLED
    assert Window("request").manner is Manner.JUDGED
