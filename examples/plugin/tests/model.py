"""The rule of ticks, by brute force: every minute of a stretch of time is looked at, and every local minute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
# More than any change of a clock moves it.
ROOM = timedelta(days=2)


@dataclass(frozen=True)
class Fields:
    """The times that an expression means, and its text."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    either: bool  # whether the day of the month or that of the week is enough
    text: str

    def match(self, shown: datetime) -> bool:
        day, weekday = shown.day in self.days, shown.isoweekday() % 7 in self.weekdays
        dated = (day or weekday) if self.either else (day and weekday)
        return dated and shown.month in self.months and shown.hour in self.hours and shown.minute in self.minutes

    def ticks(self, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
        """Return the ticks in (after, until]."""
        shown = [(at, at.astimezone(zone).replace(tzinfo=None, fold=0)) for at in minutes(after - ROOM, until)]
        if len(self.hours) == 24:
            found = {at for at, local in shown if self.match(local)}
        else:
            found = set()
            highest = shown[0][1]
            for at, local in shown[1:]:
                # The times that the clock has reached or passed with this minute, for the first time.
                if any(self.match(time) for time in minutes(highest + MINUTE, local)):
                    found.add(at)
                highest = max(highest, local)
        return sorted(at for at in found if after < at <= until)


def minutes(first: datetime, last: datetime) -> Iterator[datetime]:
    at = first.replace(second=0, microsecond=0)
    while at <= last:
        yield at
        at += MINUTE
