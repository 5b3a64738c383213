"""The owner keeps wakeful's rules: on real PostgreSQL, with real schedulers that are killed, doubled and shut out."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from psycopg import Connection
from wakeful_cron.catch_up import KIND, Plan
from wakeful_cron.ticks import schedule

import wakeful
from wakeful import listings
from wakeful.testing import Database
from wakeful.testing.conformance import RULES, Case, Place, check


def save(conn: Connection[Any], place: Place) -> UUID:
    """Save the wake of a tick that has just come; the next one is a year away."""
    now = listings.now(conn).astimezone(UTC)
    tick = now.replace(second=0, microsecond=0)
    yearly = schedule(f"{tick.minute} {tick.hour} {tick.day} {tick.month} *", "UTC")
    payload = Plan(yearly, tick, "once").as_payload()
    made = wakeful.run(
        conn, wakeful.request_wake(place.company, place.agent, place.issue, tick, payload=payload, kind=KIND)
    )
    assert made.wake is not None
    return made.wake


def finish(conn: Connection[Any], place: Place) -> None:
    """End the issue, and with it the schedule."""
    wakeful.run(conn, wakeful.set_issue_status(place.company, place.issue, "done"))


CASE = Case(plugins=("wakeful_cron",), owner=KIND, save=save, spoil=finish)


@pytest.mark.parametrize("rule", RULES)
def test_the_owner_keeps_the_rule(rule: str, database: Database, tmp_path: Path) -> None:
    check(rule, CASE, database, tmp_path)
    # Whatever was killed or doubled: each tick that ran, or was missed, has one that follows it, and no other has.
    ticks = database.connect().execute(
        "SELECT w.state, w.reason, count(n.id) FROM wakeful.wake w"
        " LEFT JOIN wakeful.wake n ON n.company = w.company AND n.follows = w.effect_root"
        " WHERE w.kind = 'cron' GROUP BY w.company, w.id"
    )
    for state, reason, following in ticks:
        assert following == (state == "linked" or reason == "cron.missed"), (state, reason)
