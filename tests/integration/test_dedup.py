"""Idempotency keys: a late redelivery finds its wake, ended or not, until the dedup period is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.passes import admit, end, row, runs, start, together

from wakeful.testing import Database, VirtualClock

Conn = psycopg.Connection[Any]
PERIOD = timedelta(days=7)
MOMENT = timedelta(minutes=1)

pytestmark = pytest.mark.usefixtures("company")


def request(conn: Conn, key: str = "daily") -> tuple[str, UUID, str, UUID | None]:
    """Return (outcome, wake, state, run)."""
    text = "SELECT outcome, wake, state, run FROM wakeful.request_wake('acme', 'coder', key => %s)"
    return conn.execute(text, (key,)).fetchone()


def ended(conn: Conn, key: str = "daily") -> tuple[UUID, UUID]:
    """A wake with a key whose run has ended."""
    _, wake, _, _ = request(conn, key)
    admit(conn, wake)
    (claimed,) = start(conn)
    end(conn, claimed, "succeeded")
    return wake, claimed.run


def test_the_same_key_after_the_run_has_ended_is_existing_and_makes_no_second_run(conn: Conn) -> None:
    wake, run = ended(conn)
    assert request(conn) == ("existing", wake, "linked", run)
    assert len(runs(conn)) == 1
    assert conn.execute("SELECT count(*) FROM wakeful.wake").fetchone() == (1,)


def test_after_the_dedup_period_it_is_a_new_one(conn: Conn, clock: VirtualClock) -> None:
    wake, run = ended(conn)
    clock.advance(PERIOD - MOMENT)
    assert request(conn) == ("existing", wake, "linked", run)
    clock.advance(2 * MOMENT)
    outcome, fresh, state, none = request(conn)
    assert (outcome, state, none) == ("inserted", "deferred", None)
    assert fresh != wake
    assert admit(conn, fresh).runs
    assert len(runs(conn)) == 2
    # And that one answers now, for a period of its own.
    clock.advance(PERIOD - MOMENT)
    assert request(conn)[:2] == ("existing", fresh)


def test_the_period_is_a_setting(conn: Conn, clock: VirtualClock) -> None:
    conn.execute("SELECT wakeful.set_setting('dedup_days', '1')")
    wake, _ = ended(conn)
    clock.advance(timedelta(days=1) - MOMENT)
    assert request(conn)[1] == wake
    clock.advance(2 * MOMENT)
    assert request(conn)[0] == "inserted"


def test_a_wake_that_still_waits_answers_however_old_it_is(conn: Conn, clock: VirtualClock) -> None:
    conn.execute("SELECT wakeful.pause_agent('acme', 'coder')")
    _, wake, _, _ = request(conn)
    admit(conn, wake)
    clock.advance(10 * PERIOD)
    assert request(conn)[:3] == ("existing", wake, "deferred")


@pytest.mark.parametrize("state", ["retired", "cancelled", "failed", "coalesced"])
def test_every_final_answers(conn: Conn, state: str) -> None:
    _, wake, _, _ = request(conn)
    text = "UPDATE wakeful.wake SET state = %s, due_at = NULL, ended_at = wakeful.now() WHERE id = %s"
    conn.execute(text, (state, wake))
    assert request(conn)[:3] == ("existing", wake, state)


def test_rearm_repoints_the_key(conn: Conn) -> None:
    wake, _ = ended(conn)
    fresh = conn.execute("SELECT wake FROM wakeful.rearm_wake('acme', %s)", (wake,)).fetchone()[0]
    assert fresh != wake
    assert request(conn)[:3] == ("existing", fresh, "deferred")
    assert row(conn, fresh, "effect_root") == row(conn, wake, "effect_root")


def test_an_answer_outlives_retention_until_the_period_is_over(conn: Conn, clock: VirtualClock) -> None:
    conn.execute("SELECT wakeful.set_setting('dedup_days', '60')")
    wake, run = ended(conn)
    clock.advance(timedelta(days=40))
    for number in range(3):
        ended(conn, f"other-{number}")
    assert request(conn) == ("existing", wake, "linked", run)


def test_an_expired_key_goes_to_one_of_several_at_once(conn: Conn, clock: VirtualClock, database: Database) -> None:
    ended(conn)
    clock.advance(PERIOD + MOMENT)
    answers = together(*[lambda: request(database.connect())] * 6)
    assert sorted(outcome for outcome, *_ in answers) == ["existing"] * 5 + ["inserted"]
    assert len({wake for _, wake, *_ in answers}) == 1


def test_companies_do_not_share_keys(conn: Conn) -> None:
    ended(conn)
    conn.execute("SELECT wakeful.add_company('beta'), wakeful.add_agent('beta', 'coder', ARRAY['true'])")
    text = "SELECT outcome FROM wakeful.request_wake('beta', 'coder', key => 'daily')"
    assert conn.execute(text).fetchone() == ("inserted",)
