"""What a warm driver releases: the gate's own commit, the real clock, no restart."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.conditions import wait_until
from tests.passes import runs
from tests.rows import count, request, say
from tests.schedulers import InstantExecutor, Schedulers, WatchedClock, wait_ended, wait_parked

from wakeful import producers
from wakeful.producers import Statement
from wakeful.scheduler import Tuning
from wakeful.testing import Database, HoldAt

Conn = psycopg.Connection[Any]
ACME, CODER = "acme", "coder"

pytestmark = pytest.mark.usefixtures("web")


PANIC = "panic"
PAUSE_WEB = producers.pause_project(ACME, "web")
WARM: list[tuple[str, list[Statement], list[Statement], str]] = [
    ("company", [producers.pause_company(ACME)], [producers.resume_company(ACME)], "company.paused"),
    ("panic", [producers.panic_company(ACME)], [producers.resume_company(ACME)], "company.panic"),
    ("instance panic", [producers.set_setting(PANIC, True)], [producers.set_setting(PANIC, False)], "company.panic"),
    ("agent", [producers.pause_agent(ACME, CODER)], [producers.resume_agent(ACME, CODER)], "agent.paused_manual"),
    ("project", [PAUSE_WEB], [producers.resume_project(ACME, "web")], "project.paused_manual"),
    *(
        (
            f"budget of {policy}",
            [producers.set_budget(ACME, policy, 10), producers.add_spend(ACME, 10, agent=CODER, project="web")],
            [producers.raise_budget(ACME, policy, by_amount=1)],
            "budget.exhausted",
        )
        for policy in ("company", "agent:coder", "project:web")
    ),
    (
        "issue",
        [producers.assign_issue(ACME, "I-1", "user:ann")],
        [producers.assign_issue(ACME, "I-1", None)],
        "issue.assignee",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("close", "open_", "reason"), [case[1:] for case in WARM], ids=[case[0] for case in WARM])
def test_a_parked_wake_runs_once_when_its_gate_opens(
    conn: Conn, fleet: Schedulers, close: list[Statement], open_: list[Statement], reason: str
) -> None:
    executor = InstantExecutor()
    fleet.start(executor=executor)
    say(conn, *close)
    wake = request(conn)
    wait_parked(conn, wake, reason)
    say(conn, *open_)
    wait_ended(conn, wake)
    assert len(executor.submitted) == 1


@pytest.mark.parametrize("gate", ["execution", "concurrency"])
def test_the_end_of_a_run_lets_the_next_one_start(conn: Conn, fleet: Schedulers, gate: str) -> None:
    executor = InstantExecutor()
    executor.holding = True
    fleet.start(executor=executor)
    if gate == "concurrency":
        say(conn, producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=1))
    first = request(conn, "I-1")
    wait_until(lambda: runs(conn, "state = 'running'"), what="the first run")
    second = request(conn, "I-1" if gate == "execution" else "I-2")
    wait_parked(conn, second, "execution.live_run" if gate == "execution" else "concurrency.agent")
    executor.let_go()
    wait_ended(conn, first, second)
    assert len(executor.submitted) == 2


def test_a_queue_behind_one_slot_is_worked_off_one_by_one(conn: Conn, fleet: Schedulers) -> None:
    say(conn, producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=1))
    wakes = [request(conn, None) for _ in range(30)]
    fleet.start()
    wait_ended(conn, *wakes)
    overlaps = conn.execute(
        "SELECT count(*) FROM wakeful.run a JOIN wakeful.run b ON a.id < b.id AND b.created_at < a.ended_at"
    ).fetchone()
    assert overlaps == (0,)


def test_a_slot_that_the_first_page_cannot_use_goes_to_the_next(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    executor.holding = True
    fleet.start(executor=executor)
    say(conn, producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=1))
    request(conn, None)
    wait_until(lambda: runs(conn, "state = 'running'"), what="the first run")
    for n in range(100):
        say(conn, producers.create_issue(ACME, f"W-{n}", project="web"))
        request(conn, f"W-{n}")
    last = request(conn, None)
    wait_until(lambda: count(conn, "wait_reason = 'concurrency.agent'") == 101, what="all parked behind the one slot")
    say(conn, producers.pause_project(ACME, "web"))
    executor.let_go()
    wait_ended(conn, last)
    assert count(conn, "wait_reason = 'project.paused_manual'") == 100


def test_a_parked_row_that_somebody_held_when_its_gate_opened_comes_back(
    conn: Conn, database: Database, fleet: Schedulers, watched: WatchedClock
) -> None:
    scheduler = fleet.start(Tuning(clock=watched))
    say(conn, producers.pause_company(ACME))
    wake = request(conn)
    wait_parked(conn, wake, "company.paused")
    watched.settle()
    watched.step(31)
    with database.connect(autocommit=False) as holding:
        holding.execute("SELECT FROM wakeful.wake WHERE id = %s FOR UPDATE", (wake,))
        passes = scheduler.driver.passes
        say(conn, producers.resume_company(ACME))
        wait_until(lambda: scheduler.driver.passes > passes, what="a look at the held row")
        watched.settle()
        assert scheduler.driver.passes == passes + 1, "no hot loop"
        watched.step(1.5)
        assert scheduler.driver.passes == passes + 2
        holding.rollback()
    watched.step(1.5)
    wait_ended(conn, wake)


def test_a_gate_that_opened_before_the_park_was_committed_needs_no_signal(conn: Conn, fleet: Schedulers) -> None:
    hold = HoldAt("admission_before_commit")
    fleet.start(Tuning(crash=hold))
    say(conn, producers.pause_agent(ACME, CODER))
    wake = request(conn)
    hold.wait_reached()
    conn.execute("UPDATE wakeful.agent SET state = 'active', pause_reason = NULL, paused_at = NULL")
    hold.release()
    wait_ended(conn, wake)


def test_one_companys_backlog_delays_anothers_wake_by_a_pass(conn: Conn, fleet: Schedulers) -> None:
    for _ in range(450):
        request(conn, None)
    say(conn, producers.add_company("zeta"), producers.add_agent("zeta", "a", ["true"]))
    producers.run(conn, producers.request_wake("zeta", "a"))
    fleet.start(Tuning(window=200))
    wait_until(lambda: len(runs(conn)) == 451, what="all admitted")
    before = conn.execute(
        "SELECT count(*) FROM wakeful.run WHERE id < (SELECT id FROM wakeful.run WHERE company = 'zeta')"
    ).fetchone()
    assert before is not None
    assert before[0] <= 100
