"""What becomes of ticks: each policy by example, and whole schedules at random, with outages of any length."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from facts import fact
from hypothesis import given
from hypothesis import strategies as st
from wakeful_cron.catch_up import COUNTED, POLICIES, Crons, Plan, judge, plan
from wakeful_cron.ticks import schedule

from wakeful.errors import InvalidInput
from wakeful.outcomes import End, Proceed, Verdict

HOURLY = schedule("0 * * * *", "Europe/Berlin")
TEN = datetime(2026, 6, 1, 8, tzinfo=UTC)  # at ten in Berlin
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def following(verdict: Verdict) -> Plan:
    assert isinstance(verdict, (Proceed, End))
    assert verdict.successor is not None
    found = plan(verdict.successor.payload)
    assert found.tick == verdict.successor.due_at
    return found


# ── by example ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("catch_up", POLICIES)
@pytest.mark.parametrize("late", [0, 1, 60])
def test_a_tick_on_time_runs_and_names_the_next(catch_up: str, late: int) -> None:
    head = Plan(HOURLY, TEN, catch_up, payload={"a": 1}, caught_up=3, skipped=2)
    verdict = judge(fact(head, TEN + timedelta(seconds=late)))
    assert isinstance(verdict, Proceed)
    assert following(verdict) == Plan(HOURLY, TEN + HOUR, catch_up, payload={"a": 1})


def test_skip_runs_no_missed_tick_but_the_next_one() -> None:
    verdict = judge(fact(Plan(HOURLY, TEN, "skip"), TEN + 2 * HOUR + 30 * MINUTE))
    assert isinstance(verdict, End)
    assert (verdict.state, verdict.reason) == ("retired", "cron.missed")
    assert verdict.message == "3 ticks were missed from 2026-06-01T10:00:00+02:00 on; catch-up is skip"
    assert following(verdict) == Plan(HOURLY, TEN + 3 * HOUR, "skip", skipped=3)


def test_skip_goes_on_with_the_tick_that_is_just_due() -> None:
    verdict = judge(fact(Plan(HOURLY, TEN, "skip"), TEN + 2 * HOUR + timedelta(seconds=60)))
    assert following(verdict) == Plan(HOURLY, TEN + 2 * HOUR, "skip", skipped=2)


def test_once_runs_the_latest_missed_tick_for_all() -> None:
    now = TEN + 2 * HOUR + 30 * MINUTE
    retired = judge(fact(Plan(HOURLY, TEN, "once"), now))
    assert isinstance(retired, End)
    latest = following(retired)
    assert latest == Plan(HOURLY, TEN + 2 * HOUR, "once", skipped=2)
    verdict = judge(fact(latest, now))
    assert isinstance(verdict, Proceed)
    assert following(verdict) == Plan(HOURLY, TEN + 3 * HOUR, "once")


def test_all_capped_runs_the_oldest_and_skips_the_rest() -> None:
    head, now = Plan(HOURLY, TEN, "all-capped", cap=2), TEN + 5 * HOUR + 30 * MINUTE
    ran = []
    while isinstance(verdict := judge(fact(head, now)), Proceed) and head.tick < now:
        ran.append(head.tick)
        head = following(verdict)
    assert ran == [TEN, TEN + HOUR]
    assert isinstance(verdict, End)
    assert verdict.message.startswith("4 ticks were missed from 2026-06-01T12:00:00+02:00")
    assert following(verdict) == Plan(HOURLY, TEN + 6 * HOUR, "all-capped", cap=2, skipped=4)


def test_the_cap_is_of_one_outage() -> None:
    head = Plan(HOURLY, TEN, "all-capped", cap=2, caught_up=1)
    last = judge(fact(head, TEN + 30 * MINUTE))  # nothing else was missed
    assert following(last).caught_up == 0
    more = judge(fact(head, TEN + HOUR + 30 * MINUTE))
    assert following(more).caught_up == 2


def test_an_endless_outage_is_counted_no_further_than_there_is_time_for() -> None:
    head = Plan(schedule("* * * * *", "UTC"), datetime(2020, 1, 1, tzinfo=UTC), "skip")
    now = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
    verdict = judge(fact(head, now))
    assert isinstance(verdict, End)
    assert verdict.message.startswith(f"{COUNTED} or more ticks were missed")
    assert following(verdict) == replace(head, tick=now.replace(second=0), skipped=COUNTED)


def test_a_tick_a_minute_late_is_no_missed_one_also_as_the_next() -> None:
    verdict = judge(fact(Plan(HOURLY, TEN, "once"), TEN + HOUR + MINUTE))
    assert isinstance(verdict, Proceed)
    assert following(verdict) == Plan(HOURLY, TEN + HOUR, "once")


def test_a_count_over_several_outages_stays_one_that_can_be_read() -> None:
    head = Plan(HOURLY, TEN, "skip", skipped=COUNTED - 2)
    assert following(judge(fact(head, TEN + 9 * HOUR + 30 * MINUTE))).skipped == COUNTED


def test_one_missed_tick_is_said_in_the_singular() -> None:
    verdict = judge(fact(Plan(HOURLY, TEN, "skip"), TEN + 2 * MINUTE))
    assert isinstance(verdict, End)
    assert verdict.message.startswith("1 tick was missed")


def test_a_run_that_met_its_providers_limit_goes_on_and_forks_nothing() -> None:
    limited = fact(Plan(HOURLY, TEN, "skip"), TEN + 9 * HOUR, certified_run=fact(None, TEN).id)
    assert judge(limited) == Proceed()


@pytest.mark.parametrize(
    "gone",
    [
        {"agent_state": "terminated"},
        {"agent_state": "archived"},
        {"company_state": "archived"},
        {"project_archived": True},
        {"issue": "I-1", "issue_status": "done"},
    ],
)
def test_where_the_target_is_gone_the_gates_decide(gone: dict[str, Any]) -> None:
    # A wake that ends as missed would name a successor: the schedule would go on one tick longer.
    assert isinstance(judge(fact(Plan(HOURLY, TEN, "skip"), TEN + 9 * HOUR, **gone)), Proceed)


def test_a_schedule_ends_with_its_last_tick() -> None:
    yearly = schedule("0 0 1 1 *", "UTC")
    last = datetime(2100, 1, 1, tzinfo=UTC)
    assert judge(fact(Plan(yearly, last), last)) == Proceed(successor=None)
    missed = judge(fact(Plan(yearly, last), last + 9 * HOUR))
    assert isinstance(missed, End)
    assert missed.successor is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (None, "is an object"),
        ({"cron": "bad"}, "has 1 fields"),
        ({"cron": 5}, "are texts"),
        ({"zone": "Nowhere"}, "no time zone"),
        ({"zone": None}, "are texts"),
        ({"tick": "soon"}, "tick is a time"),
        ({"tick": "2026-06-01T10:00:00"}, "tick is a time"),
        ({"tick": "0001-01-01T00:00:00+14:00"}, "tick is a time"),
        ({"tick": "1999-12-31T23:59:59+00:00"}, "tick is a time"),
        ({"catch_up": "never"}, "catch_up is one of"),
        ({"catch_up": ["skip"]}, "catch_up is one of"),
        ({"cap": 0}, "cap is 1 to 1000"),
        ({"cap": True}, "cap is 1 to 1000"),
        ({"cap": "10"}, "cap is 1 to 1000"),
        ({"caught_up": -1}, "are counts"),
        ({"skipped": 1.5}, "are counts"),
    ],
)
def test_a_payload_that_says_no_schedule_fails_its_wake(changes: dict[str, Any] | None, said: str) -> None:
    payload = None if changes is None else Plan(HOURLY, TEN).as_payload() | changes
    verdict = judge(fact(None, TEN, payload=json.dumps(payload)))
    assert isinstance(verdict, End)
    assert (verdict.state, verdict.reason, verdict.successor) == ("failed", "cron.malformed", None)
    assert said in verdict.message


def test_a_payload_that_python_cannot_read_fails_its_wake() -> None:
    verdict = judge(fact(None, TEN, payload='{"payload": ' + "9" * 5000 + "}"))
    assert verdict == End("failed", "cron.malformed", "its payload cannot be read")


def test_the_owner_judges_each_wake_of_a_batch() -> None:
    good, bad = fact(Plan(HOURLY, TEN), TEN), fact(None, TEN, payload="1")
    assert Crons().judge([good, bad, good]) == [judge(good), judge(bad), judge(good)]


# ── at random ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class World:
    """A schedule with a scheduler that looks when it is told to, and gates that are always open."""

    head: Plan
    ran: list[datetime] = field(default_factory=list)
    skipped: int = 0

    def look(self, now: datetime) -> None:
        while self.head.tick <= now:
            verdict = judge(fact(self.head, now))
            if isinstance(verdict, Proceed):
                self.ran.append(self.head.tick)
            else:
                assert isinstance(verdict, End)
                self.skipped += int(verdict.message.split()[0])
            self.head = following(verdict)


def expected(ticks: Iterable[datetime], looks: Iterable[datetime], catch_up: str, cap: int) -> list[datetime]:
    """Return which ticks run: what a look finds in time, and of the rest what the policy says."""
    left, ran = list(ticks), []
    for now in looks:
        due = [tick for tick in left if tick <= now]
        missed = [tick for tick in due if now - tick > MINUTE]
        caught = {"skip": [], "once": missed[-1:], "all-capped": missed[:cap]}[catch_up]
        ran += [*caught, *due[len(missed) :]]
        left = left[len(due) :]
    return ran


@given(
    st.sampled_from(["*/5 * * * *", "0 * * * *", "30 2 * * *", "*/20 */2 * * *"]),
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe"]),
    st.sampled_from(POLICIES),
    st.integers(1, 5),
    st.lists(st.one_of(st.integers(1, 400), st.integers(1, 90000)), min_size=1, max_size=12),
)
def test_each_tick_runs_once_or_is_counted(
    expression: str, zone: str, catch_up: str, cap: int, waits: list[int]
) -> None:
    made, start = schedule(expression, zone), datetime(2026, 10, 3, tzinfo=UTC)
    looks, now = [], start
    for wait in waits:
        now += timedelta(seconds=wait)
        looks.append(now)
    ticks = []
    for tick in made.ticks(start):
        ticks.append(tick)
        if tick > now:
            break
    world = World(Plan(made, ticks[0], catch_up, cap, {"keep": "me"}))
    for look in looks:
        world.look(look)
    assert world.ran == expected(ticks[:-1], looks, catch_up, cap)
    assert len(world.ran) + world.skipped == len(ticks) - 1
    assert world.head.tick == ticks[-1]
    assert world.head.payload == {"keep": "me"}


@given(st.sampled_from(POLICIES), st.datetimes(datetime(2026, 1, 1), datetime(2099, 1, 1)), st.integers(0, COUNTED))
def test_what_is_saved_is_what_is_read(catch_up: str, at: datetime, count: int) -> None:
    head = Plan(HOURLY, at.replace(microsecond=0, tzinfo=UTC), catch_up, 7, [1, {"a": None}], count, count)
    assert plan(json.loads(json.dumps(head.as_payload()))) == head


def test_nothing_but_an_object_is_a_plan() -> None:
    with pytest.raises(InvalidInput):
        plan([])
