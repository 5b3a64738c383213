"""What becomes of a tick when it is looked at: on time it runs, later its schedule's catch-up policy decides. Pure.

Each wake stands for one tick. Whatever becomes of it, its verdict names the wake of the next tick, which is saved in
the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from wakeful.errors import InvalidInput
from wakeful.outcomes import End, Proceed, Successor
from wakeful_cron.ticks import FIRST, LAST, Schedule, schedule

if TYPE_CHECKING:
    from wakeful.outcomes import Verdict
    from wakeful.receipts import Fact

KIND = "cron"
POLICIES = ("skip", "once", "all-capped")
CAP = 10
HIGHEST_CAP = 1000
# A tick that is looked at later than this has been missed.
LATE = timedelta(seconds=60)
# Missed ticks are counted so far; the judge has little time.
COUNTED = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """One wake of a schedule, as its payload says.

    Arguments:
        tick: the time it stands for, in UTC.
        catch_up: one of ``POLICIES``.
        cap: of the missed ticks of one outage, how many ``all-capped`` runs.
        payload: the user's own.
        caught_up: how many missed ticks have run just before this one.
        skipped: how many ticks before this one did not run; ``COUNTED`` means so many or more.
    """

    schedule: Schedule
    tick: datetime
    catch_up: str = "skip"
    cap: int = CAP
    payload: Any = None
    caught_up: int = 0
    skipped: int = 0

    def as_payload(self) -> dict[str, Any]:
        """Return the payload of the wake."""
        return {
            "cron": self.schedule.expression,
            "zone": self.schedule.zone.key,
            "catch_up": self.catch_up,
            "cap": self.cap,
            "tick": self.schedule.local(self.tick),
            "payload": self.payload,
            "caught_up": self.caught_up,
            "skipped": self.skipped,
        }

    def next(self, tick: datetime | None, *, caught_up: int = 0, skipped: int = 0) -> Successor | None:
        """Return the wake of another tick of this schedule, None for none."""
        if tick is None:
            return None
        return Successor(tick, replace(self, tick=tick, caught_up=caught_up, skipped=skipped).as_payload())


def plan(payload: Any) -> Plan:
    """Read a payload.

    Raises:
        InvalidInput: it describes no schedule.
    """
    if not isinstance(payload, Mapping):
        raise InvalidInput("the payload of a cron wake is an object")
    catch_up, cap = payload.get("catch_up", "skip"), payload.get("cap", CAP)
    if catch_up not in POLICIES:
        raise InvalidInput(f"catch_up is one of {', '.join(POLICIES)}")
    if not _whole(cap, 1, HIGHEST_CAP):
        raise InvalidInput(f"cap is 1 to {HIGHEST_CAP}")
    caught_up, skipped = payload.get("caught_up", 0), payload.get("skipped", 0)
    if not _whole(caught_up, 0, HIGHEST_CAP) or not _whole(skipped, 0, COUNTED):
        raise InvalidInput("caught_up and skipped are counts")
    texts = [payload.get(name) for name in ("cron", "zone", "tick")]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput("cron, zone and tick are texts")
    try:
        tick = datetime.fromisoformat(str(texts[2]))
        if tick.tzinfo is None or not FIRST <= tick <= LAST:
            raise ValueError
        tick = tick.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput("tick is a time of 2000 to 2100 with its offset, in ISO 8601") from None
    found = schedule(str(texts[0]), str(texts[1]))
    return Plan(found, tick, str(catch_up), cap, payload.get("payload"), caught_up, skipped)


def judge(fact: Fact) -> Verdict:
    """Return what becomes of one wake, and which one follows it."""
    if fact.certified_run is not None:
        return Proceed()  # its run met a provider's limit and goes on; the next tick has been saved long since
    try:
        wake = plan(json.loads(fact.payload or "null"))
    except InvalidInput as error:
        return End("failed", "cron.malformed", error.message)
    except ValueError:  # the database holds numbers that Python refuses to read
        return End("failed", "cron.malformed", "its payload cannot be read")
    following = wake.schedule.first(wake.tick)
    if wake.tick >= fact.now - LATE or _over(fact):
        return Proceed(successor=wake.next(following))
    return _missed(wake, following, fact.now - LATE)


def _missed(wake: Plan, following: datetime | None, limit: datetime) -> Verdict:
    """Return what becomes of a missed tick; those before ``limit`` have been missed."""
    more = following is not None and following < limit
    if wake.catch_up == "once" and not more:
        return Proceed(successor=wake.next(following))
    if wake.catch_up == "all-capped" and wake.caught_up < wake.cap:
        return Proceed(successor=wake.next(following, caught_up=wake.caught_up + 1 if more else 0))
    latest = wake.schedule.last(wake.tick, limit) if wake.catch_up == "once" else None
    resumed = latest or wake.schedule.first(limit - timedelta(microseconds=1))
    count = 1 + _count(wake.schedule, wake.tick, resumed or limit)
    skipped = min(wake.skipped + count, COUNTED)
    words = f"{count} or more ticks were" if count >= COUNTED else "1 tick was" if count == 1 else f"{count} ticks were"
    message = f"{words} missed from {wake.schedule.local(wake.tick)} on; catch-up is {wake.catch_up}"
    return End("retired", "cron.missed", message, successor=wake.next(resumed, skipped=skipped))


def _count(schedule: Schedule, after: datetime, before: datetime) -> int:
    count = 0
    for tick in schedule.ticks(after):
        if tick >= before or count + 1 >= COUNTED:
            break
        count += 1
    return count


def _over(fact: Fact) -> bool:
    """Whether the target is gone for good, so that the gates retire the wake, and the schedule ends with it."""
    gone = fact.agent_state in ("terminated", "archived") or fact.project_archived
    return gone or fact.company_state == "archived" or fact.issue_is_terminal


def _whole(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


class Crons:
    """Owner of wakes of kind ``cron``."""

    name = KIND
    kinds = frozenset({KIND})
    reads_payload = True

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        """Judge each wake by its tick, its schedule's policy and the database's clock."""
        return [judge(fact) for fact in facts]
