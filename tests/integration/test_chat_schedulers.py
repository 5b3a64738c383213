"""Chats' retries on real schedulers: reached at once, silent while they wait, found by a start."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.chats import ACME, CODER, FAILED, PROCESSED, asked, image, settled
from tests.conditions import wait_until
from tests.passes import row, runs
from tests.rows import request, say
from tests.schedulers import InstantExecutor, Schedulers, WatchedClock

from wakeful import producers
from wakeful.scheduler import Tuning
from wakeful.testing import HoldAt, Statements

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("web")


# ── whole schedulers ────────────────────────────────────────────────────────────────────────────────────


def wait_state(conn: Conn, wake: UUID, *state: Any) -> None:
    wait_until(
        lambda: row(conn, wake, "state", "reason") == state, what=f"{state} of {row(conn, wake, 'state', 'error')}"
    )


def wait_ran(conn: Conn, wake: UUID) -> None:
    wait_until(lambda: len(runs(conn, "wake = %s AND ended_at IS NOT NULL", wake)) == 1, what="its run")


def test_a_settlement_reaches_its_receipt_at_once(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    fleet.start(executor=executor)
    sources = [failed_by(conn, executor, f"C-{n}") for n in range(3)]
    failing, led, free = (asked(conn, source) for source in sources)
    settled(conn, failing, FAILED)
    settled(conn, led, run=sources[0])
    settled(conn, free)
    wait_state(conn, failing, "settled", "chat.failed")
    wait_state(conn, led, "settled", "chat.processed")
    wait_ran(conn, free)
    assert len(executor.submitted) == 4


def failed_by(conn: Conn, executor: InstantExecutor, issue: str) -> UUID:
    """A run that the scheduler's executor ended as failed."""
    executor.exit_code = 3
    wake = request(conn, issue)
    wait_ran(conn, wake)
    executor.exit_code = 0
    (run,) = runs(conn, "wake = %s", wake)
    return run


def test_25_minutes_with_unsettled_and_settled_retries_are_silent(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    executor = InstantExecutor()
    scheduler = fleet.start(Tuning(clock=watched), executor=executor)
    sources = [failed_by(conn, executor, f"C-{n}") for n in range(4)]  # a fifth would open the circuit
    say(conn, producers.pause_agent(ACME, CODER))
    wakes = [asked(conn, source) for source in sources]
    settled(conn, wakes[0], FAILED)
    settled(conn, wakes[1], run=sources[0])
    settled(conn, wakes[2])
    wait_state(conn, wakes[0], "settled", "chat.failed")
    wait_state(conn, wakes[1], "settled", "chat.processed")
    wait_until(lambda: row(conn, wakes[2], "wait_reason") == ("agent.paused_manual",), what="its park")
    watched.settle()
    watched.step(31)  # the one revalidation after the one grace
    passes, images = scheduler.driver.passes, [image(conn, wake) for wake in wakes]
    statements.reset()
    for _ in range(25):
        watched.step(60)
    of_the_clock = ("UPDATE wakeful.clock SET shift = $1", "BEGIN ISOLATION LEVEL READ COMMITTED", "COMMIT")
    ran = {one.text: one.calls for one in statements.executed()}
    ran.pop("SET LOCAL ROLE wakeful_owner", None)  # the clock's; a prepared one is counted at its first use only
    assert ran == dict.fromkeys(of_the_clock, 25)
    assert (scheduler.driver.passes, len(executor.submitted)) == (passes, 4)
    assert [image(conn, wake) for wake in wakes] == images
    # And nothing of that was sleep for ever.
    settled(conn, wakes[3])
    wait_until(lambda: row(conn, wakes[3], "wait_reason") == ("agent.paused_manual",), what="its park")
    say(conn, producers.resume_agent(ACME, CODER))
    for wake in (wakes[2], wakes[3]):
        wait_ran(conn, wake)
    assert len(executor.submitted) == 6


def test_a_settlement_that_no_scheduler_heard_is_found_by_its_stored_deadline(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    first = fleet.start(executor=executor)
    sources = [failed_by(conn, executor, f"C-{n}") for n in range(3)]
    failing, led, free = (asked(conn, source) for source in sources)
    assert first.stop()
    settled(conn, failing, FAILED)
    settled(conn, led, run=sources[0])
    settled(conn, free)
    fleet.start(executor=executor)
    wait_state(conn, failing, "settled", "chat.failed")
    wait_state(conn, led, "settled", "chat.processed")
    wait_ran(conn, free)
    assert len(executor.submitted) == 4
    # It was the settlement pass that found them, not the look behind each gate that follows a start.
    assert [row(conn, wake, "chat_outcome")[0] for wake in (failing, led, free)] == [FAILED, PROCESSED, PROCESSED]


@pytest.mark.parametrize("point", ["admission_before_commit", "admission_after_commit"])
def test_a_session_lost_in_a_settlement_pass_loses_no_settlement(conn: Conn, fleet: Schedulers, point: str) -> None:
    executor = InstantExecutor()
    first = fleet.start(executor=executor)
    source = failed_by(conn, executor, "I-1")
    wake = asked(conn, source)
    assert first.stop()
    settled(conn, wake, FAILED)
    hold = HoldAt(point)
    fleet.start(Tuning(crash=hold), executor=executor)
    hold.wait_reached()
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'wakeful driver'"
    )
    hold.release()
    wait_state(conn, wake, "settled", "chat.failed")
    assert len(executor.submitted) == 1


def test_a_start_judges_an_open_chats_retry_like_any_other(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    first = fleet.start(executor=executor)
    wake = asked(conn, failed_by(conn, executor, "I-1"))
    assert first.stop()
    fleet.start(executor=executor)
    wait_ran(conn, wake)
    assert settled(conn, wake, FAILED).outcome == "merged"
    assert row(conn, wake, "state") == ("linked",)
