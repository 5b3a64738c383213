"""When a cron expression fires in a time zone: pure, and right over both changes of the clock.

A schedule whose hour field means every hour is a cadence: it fires whenever the clock shows one of its times. So it
goes on by elapsed time: where an hour is left out it fires less often, where one comes twice it fires in both.

Any other schedule is an appointment: each of its local times fires once, at the first moment at which the clock shows
that time or a later one. A time that is left out fires as the change happens, one that comes twice fires the first
time. Appointments that fall on one moment are one tick.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from wakeful.errors import InvalidInput

# Between these wakeful keeps times.
FIRST = datetime(2000, 1, 1, tzinfo=UTC)
LAST = datetime(2100, 12, 31, tzinfo=UTC)
_LONGEST = 200
_STEP = timedelta(days=1)  # no zone changes its offset twice in a day
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron expression of five fields in a time zone. Made by :func:`schedule`, which checks both.

    Arguments:
        expression: minute, hour, day of month, month, day of week.
        zone: whose clock it goes by.
        cadence: whether every hour matches, so that elapsed time counts.
    """

    expression: str
    zone: ZoneInfo
    cadence: bool

    def ticks(self, after: datetime) -> Iterator[datetime]:
        """Yield every tick later than ``after``, ascending, in UTC; ends where the expression fires no more."""
        after = after.astimezone(UTC)  # sums of times in a zone go by its clock
        found = self._by_elapsed_time(after) if self.cadence else self._by_the_clock(after)
        for tick in found:
            if tick > LAST:
                return
            yield tick

    def first(self, after: datetime) -> datetime | None:
        """Return the first tick later than ``after``, None if there is none."""
        return next(self.ticks(after), None)

    def last(self, after: datetime, before: datetime) -> datetime | None:
        """Return the last tick in (after, before), None if there is none. Looks back from its end in growing steps."""
        after, before, back = after.astimezone(UTC), before.astimezone(UTC), timedelta(minutes=1)
        while True:
            start = max(before - back, after)
            latest = None
            for tick in self.ticks(start):
                if tick >= before:
                    break
                latest = tick
            if latest is not None or start == after:
                return latest
            back *= 2

    def local(self, tick: datetime) -> str:
        """Return a tick as its zone's clock shows it, in ISO 8601 with the offset."""
        return tick.astimezone(self.zone).isoformat()

    # ── the clock ───────────────────────────────────────────────────────────────────────────────────────────

    def _by_elapsed_time(self, after: datetime) -> Iterator[datetime]:
        start = self._shown(after)
        while True:
            offset = self._offset(after)
            for time in CronSim(self.expression, start):
                tick = _instant(time, offset)
                change = self._change(offset, after, tick)
                if change is not None:
                    after, start = change, self._shown(change) - _SECOND  # a tick on the change itself counts
                    break
                yield tick
                after = tick
            else:
                return

    def _by_the_clock(self, after: datetime) -> Iterator[datetime]:
        # Every time up to the one that the clock shows now has had its moment, also if it is shown again.
        for time in CronSim(self.expression, self._shown(after)):
            tick = self._moment(time)
            if tick > after:
                yield tick
                after = tick

    def _moment(self, time: datetime) -> datetime:
        """Return the first moment at which the clock shows ``time`` or a later one."""
        early = time.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
        if self._shown(early) == time:
            return early
        before = time.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        return self._change(self._offset(before), before, early) or early

    def _shown(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=None, fold=0)

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self.zone).utcoffset() or timedelta()

    def _change(self, offset: timedelta, after: datetime, until: datetime) -> datetime | None:
        """Return the first moment in (after, until] whose offset is not that of ``after``; None if there is none."""
        while after < until:
            step = min(after + _STEP, until)
            if self._offset(step) != offset:
                while step - after > _SECOND:
                    middle = after + (step - after) // 2
                    after, step = (middle, step) if self._offset(middle) == offset else (after, middle)
                return step.replace(microsecond=0)
            after = step
        return None


def schedule(expression: str, zone: str) -> Schedule:
    """Check an expression and the name of a zone.

    Raises:
        InvalidInput: no expression of five fields, no zone of that name, or one that never fires.
    """
    fields = expression.split()
    if len(expression) > _LONGEST:
        raise InvalidInput(f"a cron expression has at most {_LONGEST} characters")
    if len(fields) != 5:
        raise InvalidInput(
            f"{expression!r} has {len(fields)} fields, not 5",
            hint="minute, hour, day of month, month, day of week: '*/5 * * * *'",
        )
    try:
        parsed = CronSim(expression, FIRST)
    except CronSimError as error:
        raise InvalidInput(f"{expression!r} is no cron expression: {str(error).lower()}") from None
    try:
        known = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # as strange names make zoneinfo raise
        raise InvalidInput(f"there is no time zone {zone!r}", hint="a name like Europe/Berlin, or UTC") from None
    made = Schedule(" ".join(fields), known, cadence=len(parsed.hours) == 24)
    if made.first(FIRST) is None:
        raise InvalidInput(f"{expression!r} never fires", hint="no day is in all its fields at once")
    return made


def _instant(time: datetime, offset: timedelta) -> datetime:
    return (time - offset).replace(tzinfo=UTC)
