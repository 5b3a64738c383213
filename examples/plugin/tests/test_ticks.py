"""Ticks: by example over both changes of the clock, and at random against the model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from model import Fields
from wakeful_cron.ticks import LAST, schedule

from wakeful.errors import InvalidInput

BERLIN = "Europe/Berlin"
# Changes of the clock: by an hour and by less, at night, at midnight, of a whole day, and none.
ZONES = {
    "Europe/Berlin": [datetime(2027, 3, 28, 1, tzinfo=UTC), datetime(2027, 10, 31, 1, tzinfo=UTC)],
    "America/New_York": [datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC)],
    "Australia/Lord_Howe": [datetime(2026, 4, 4, 15, tzinfo=UTC), datetime(2026, 10, 3, 15, 30, tzinfo=UTC)],
    "America/Havana": [datetime(2027, 3, 14, 5, tzinfo=UTC), datetime(2026, 11, 1, 5, tzinfo=UTC)],
    "America/Santiago": [datetime(2026, 4, 5, 3, tzinfo=UTC), datetime(2026, 9, 6, 4, tzinfo=UTC)],
    "Asia/Beirut": [datetime(2026, 3, 28, 22, tzinfo=UTC), datetime(2026, 10, 24, 21, tzinfo=UTC)],
    "Pacific/Apia": [datetime(2011, 12, 30, 10, tzinfo=UTC)],
    "Africa/Casablanca": [datetime(2026, 2, 15, 2, tzinfo=UTC), datetime(2026, 3, 22, 2, tzinfo=UTC)],
    "Asia/Kathmandu": [datetime(2026, 5, 1, tzinfo=UTC)],
    "UTC": [datetime(2028, 2, 29, tzinfo=UTC)],
}


def shown(expression: str, zone: str, after: str, count: int) -> list[str]:
    made = schedule(expression, zone)
    start = datetime.fromisoformat(after).replace(tzinfo=ZoneInfo(zone))
    return [made.local(tick)[5:22] for tick in islice(made.ticks(start), count)]


# ── by example ──────────────────────────────────────────────────────────────────────────────────────────────


def test_an_appointment_left_out_in_spring_is_kept_as_the_clock_changes() -> None:
    found = shown("30 2 * * *", BERLIN, "2027-03-27T00:00", 3)
    assert found == ["03-27T02:30:00+01", "03-28T03:00:00+02", "03-29T02:30:00+02"]


def test_an_appointment_that_comes_twice_in_autumn_is_kept_the_first_time() -> None:
    found = shown("30 2 * * *", BERLIN, "2027-10-30T00:00", 3)
    assert found == ["10-30T02:30:00+02", "10-31T02:30:00+02", "11-01T02:30:00+01"]


def test_appointments_that_fall_on_one_moment_are_one_tick() -> None:
    assert shown("0,30 2,3 * * *", BERLIN, "2027-03-28T00:00", 3) == [
        "03-28T03:00:00+02",
        "03-28T03:30:00+02",
        "03-29T02:00:00+02",
    ]


def test_every_second_hour_loses_none_in_spring_and_repeats_none_in_autumn() -> None:
    spring = shown("0 */2 * * *", BERLIN, "2027-03-27T23:00", 3)
    assert spring == ["03-28T00:00:00+01", "03-28T03:00:00+02", "03-28T04:00:00+02"]
    autumn = shown("0 */2 * * *", BERLIN, "2027-10-30T23:00", 3)
    assert autumn == ["10-31T00:00:00+02", "10-31T02:00:00+02", "10-31T04:00:00+01"]


@pytest.mark.parametrize("day", ["2027-03-27T23:59", "2027-10-30T23:59"])
@pytest.mark.parametrize(("expression", "apart"), [("*/20 * * * *", 20), ("7 */1 * * *", 60)])
def test_a_cadence_goes_on_by_elapsed_time(day: str, expression: str, apart: int) -> None:
    made = schedule(expression, BERLIN)
    ticks = list(islice(made.ticks(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(BERLIN))), 30))
    assert {b - a for a, b in pairwise(ticks)} == {timedelta(minutes=apart)}


def test_a_date_that_a_zone_leaves_out_is_kept_as_the_next_one_begins() -> None:
    # Samoa had no 30 December 2011.
    assert shown("0 9 30 12 *", "Pacific/Apia", "2011-12-01T00:00", 1) == ["12-31T00:00:00+14"]
    assert shown("0 * 30 12 *", "Pacific/Apia", "2011-12-01T00:00", 1)[0].startswith("12-30T00:00:00")  # of 2012


def test_an_hour_that_comes_again_is_seen_however_far_the_next_date_is() -> None:
    # Chile's clocks went back at midnight, and a year later they had not done so yet.
    found = shown("5 * 1 4 *", "America/Santiago", "2023-04-01T23:50", 2)
    assert found == ["04-01T23:05:00-04", "04-01T00:05:00-03"]


def test_a_tick_is_later_than_the_time_asked_for() -> None:
    made = schedule("0 12 * * *", "UTC")
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert made.first(noon - timedelta(microseconds=1)) == noon
    assert made.first(noon) == noon + timedelta(days=1)


def test_the_last_tick_before_a_time_is_found_from_behind() -> None:
    made = schedule("*/5 * * * *", "UTC")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert made.last(start, start + timedelta(days=365)) == start + timedelta(days=365, minutes=-5)
    assert made.last(start, start + timedelta(minutes=5)) is None
    weekly = schedule("0 3 * * MON", "UTC")
    assert weekly.last(start, datetime(2026, 6, 7, tzinfo=UTC)) == datetime(2026, 6, 1, 3, tzinfo=UTC)


def test_times_end_where_wakeful_keeps_none() -> None:
    made = schedule("0 0 1 1 *", "UTC")
    assert list(made.ticks(datetime(2099, 6, 1, tzinfo=UTC))) == [datetime(2100, 1, 1, tzinfo=UTC)]
    assert made.first(LAST) is None


# ── at random ───────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def field(draw: st.DrawFn, low: int, high: int) -> tuple[str, frozenset[int]]:
    """Return one field's text with what it means."""
    everything = frozenset(range(low, high + 1))
    form = draw(st.sampled_from(["all", "all", "step", "one", "list", "range", "stepped range"]))
    if form == "all":
        return "*", everything
    if form == "step":
        step = draw(st.integers(1, 30))
        return f"*/{step}", frozenset(range(low, high + 1, step))
    if form == "one":
        one = draw(st.integers(low, high))
        return str(one), frozenset({one})
    if form == "list":
        some = draw(st.lists(st.integers(low, high), min_size=2, max_size=4))
        return ",".join(map(str, some)), frozenset(some)
    first, last = sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))
    step = draw(st.integers(1, 5)) if form == "stepped range" and last > first else 1
    return f"{first}-{last}" + (f"/{step}" if step > 1 else ""), frozenset(range(first, last + 1, step))


@st.composite
def expressions(draw: st.DrawFn) -> Fields:
    minute, hour = draw(field(0, 59)), draw(field(0, 23))
    # Dates of every kind, but near enough to be reached.
    day = draw(st.one_of(st.just(("*", frozenset(range(1, 32)))), field(1, 31)))
    weekday = draw(st.one_of(st.just(("*", frozenset(range(7)))), field(0, 6)))
    either = not day[0].startswith("*") and not weekday[0].startswith("*")
    text = f"{minute[0]} {hour[0]} {day[0]} * {weekday[0]}"
    return Fields(minute[1], hour[1], day[1], frozenset(range(1, 13)), weekday[1], either, text)


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, datetime]:
    """Return any zone, and a day on which it changes its clock, or some day if it does not in that year."""
    name, year = draw(st.sampled_from(sorted(available_timezones()))), draw(st.integers(2001, 2036))
    zone, start = ZoneInfo(name), datetime(year, 1, 1, tzinfo=UTC)
    offsets = [(start + timedelta(days=day)).astimezone(zone).utcoffset() for day in range(366)]
    days = [day for day, (a, b) in enumerate(pairwise(offsets)) if a != b]
    return name, start + timedelta(days=draw(st.sampled_from(days or [100])), hours=draw(st.integers(0, 24)))


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, datetime]:
    """Return a zone, and a time near one of its changes."""
    known = st.sampled_from([(zone, change) for zone, found in ZONES.items() for change in found])
    zone, change = draw(st.one_of(known, changes()))
    near = draw(st.one_of(st.integers(-90, 90), st.integers(-1500, 200))) * 60
    return zone, change + timedelta(seconds=near + draw(st.sampled_from([0, 0, 1, 59])))


EVERY = Fields(
    frozenset(range(60)), frozenset({0}), frozenset(range(1, 32)), frozenset(range(1, 13)), frozenset(range(7)),
    either=False, text="* 0 * * *",
)  # fmt: skip


@given(expressions(), moments())
@example(EVERY, ("America/Havana", datetime(2027, 3, 14, 4, 58, tzinfo=UTC)))
@example(EVERY, ("America/Santiago", datetime(2026, 4, 5, 2, 30, tzinfo=UTC)))
def test_ticks_are_those_of_the_model(fields: Fields, moment: tuple[str, datetime]) -> None:
    zone, after = moment
    until = after + timedelta(hours=30)
    try:
        made = schedule(fields.text, zone)
    except InvalidInput as refusal:
        assert "never fires" in refusal.message or "day-of-month" in refusal.message  # noqa: PT017 - either is right
        assert not fields.ticks(ZoneInfo(zone), after, until)
        return
    found = []
    for tick in made.ticks(after):
        if tick > until:
            break
        found.append(tick)
    assert found == fields.ticks(ZoneInfo(zone), after, until)


@given(expressions(), moments(), st.integers(1, 4000))
def test_the_last_tick_is_the_last_of_all(fields: Fields, moment: tuple[str, datetime], minutes: int) -> None:
    zone, after = moment
    before = after + timedelta(minutes=minutes)
    try:
        made = schedule(fields.text, zone)
    except InvalidInput:
        return
    latest = None
    for tick in made.ticks(after):
        if tick >= before:
            break
        latest = tick
    assert made.last(after, before) == latest


@given(st.sampled_from(["*/20 * * * *", "7 * * * *", "30 2 * * *"]), moments())
def test_a_time_means_the_same_in_any_zone(expression: str, moment: tuple[str, datetime]) -> None:
    zone, after = moment
    made = schedule(expression, zone)
    found = list(islice(made.ticks(after.astimezone(ZoneInfo(zone))), 9))
    assert found == list(islice(made.ticks(after), 9))
    assert all(tick.tzinfo is UTC for tick in found)


def test_the_zones_of_the_model_change_when_it_says() -> None:
    for name, changes in ZONES.items():
        for change in changes:
            zone = ZoneInfo(name)
            offsets = {(change + timedelta(seconds=s)).astimezone(zone).utcoffset() for s in (-1, 0)}
            assert (len(offsets) == 2) is (name not in ("UTC", "Asia/Kathmandu")), (name, change)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expression", "zone", "said"),
    [
        ("* * * *", "UTC", "has 4 fields, not 5"),
        ("* * * * * *", "UTC", "has 6 fields, not 5"),
        ("", "UTC", "has 0 fields, not 5"),
        ("60 * * * *", "UTC", "bad minute"),
        ("0 0 31 2 *", "UTC", "bad day-of-month"),
        ("0 0 */31 * MON#2", "UTC", "never fires"),
        ("0 0 1 1 " + "1," * 200 + "1", "UTC", "at most 200 characters"),
        ("* * * * *", "Europe/Atlantis", "no time zone 'Europe/Atlantis'"),
        ("* * * * *", "Europe", "no time zone"),
        ("* * * * *", "../etc/passwd", "no time zone"),
        ("* * * * *", "", "no time zone"),
        ("* * * * *", "a\x00b", "no time zone"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(expression: str, zone: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        schedule(expression, zone)
    assert said in refused.value.message


@given(st.text(alphabet="0123456789*/,-#LWMONJAN ?@¹٣", max_size=40), st.text(max_size=12))
def test_any_other_text_is_refused_and_nothing_worse(expression: str, zone: str) -> None:
    for words, name in ((expression, "UTC"), (f"{expression[:9]} 0 * * *", "UTC"), ("0 0 * * *", zone)):
        try:
            made = schedule(words, name)
        except InvalidInput:
            continue
        assert made.first(datetime(2026, 1, 1, tzinfo=UTC)) is not None
