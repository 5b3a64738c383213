"""The life of members and projects: approval, termination, archival, and what becomes of what was saved for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conditions import wait_until
from tests.integration import scripted
from tests.integration.runs import row as run_row
from tests.integration.scripted import ScriptedExecutor
from tests.passes import admit, end, row, start
from tests.rows import end_run, linked_run
from tests.schedulers import running

from wakeful.explain import why
from wakeful.testing import Database, WatchedClock

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("company")

END = {
    "terminated": "SELECT wakeful.terminate_agent('acme', 'coder')",
    "archived": "SELECT wakeful.archive_agent('acme', 'coder')",
}


@pytest.fixture
def scheduler(database: Database, tmp_path: Path) -> Iterator[WatchedClock]:
    """A scheduler that runs; its clock, which is the real one, tells when it has nothing to do."""
    clock = WatchedClock(database.connect(purpose="test clock"))
    with running(scripted.scheduler(database, tmp_path, ScriptedExecutor(), clock=clock)):
        yield clock


def request(conn: Conn, issue: str | None = None, agent: str = "coder") -> UUID:
    text = "SELECT wake FROM wakeful.request_wake('acme', %s, %s)"
    return conn.execute(text, (agent, issue)).fetchone()[0]


def wait_waits(conn: Conn, *gates: str) -> None:
    waits = "SELECT coalesce(array_agg(wait_gate ORDER BY wait_gate), '{}') FROM wakeful.wake WHERE state = 'deferred'"
    wait_until(lambda: conn.execute(waits).fetchone()[0] == sorted(gates), what=f"waits behind {gates}")


def wait_states(conn: Conn, **wanted: int) -> None:
    states = "SELECT state, count(*)::integer FROM wakeful.wake GROUP BY state"
    wait_until(lambda: dict(conn.execute(states).fetchall()) == wanted, what=f"wakes {wanted}")


def behind_several_gates(conn: Conn) -> None:
    """Save four wakes of the agent: behind its own pause, a hold, a dependency, an open environment."""
    conn.execute("SELECT wakeful.add_project('acme', 'site')")
    for issue in ("I-0", "I-1", "I-2", "I-3", "I-9"):
        conn.execute("SELECT wakeful.create_issue('acme', %s, project => 'site')", (issue,))
    conn.execute("SELECT wakeful.hold_issue('acme', 'I-1')")
    conn.execute("SELECT wakeful.add_dependency('acme', 'I-2', 'I-9')")
    conn.execute("SELECT wakeful.open_lease('acme', 'sandbox', 'I-3')")
    for number in range(1, 4):
        request(conn, f"I-{number}")
    wait_waits(conn, "hold", "dependency", "execution")


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize("state", END)
def test_an_ended_member_retires_what_is_saved_for_it_whatever_it_waits_on(conn: Conn, state: str) -> None:
    behind_several_gates(conn)
    conn.execute("SELECT wakeful.add_agent('acme', 'other', ARRAY['true'])")
    conn.execute("SELECT wakeful.add_dependency('acme', 'I-0', 'I-9')")
    request(conn, "I-0", "other")
    wait_waits(conn, "hold", "dependency", "execution", "dependency")
    conn.execute(END[state])
    wait_states(conn, retired=3, deferred=1)
    reasons = conn.execute("SELECT DISTINCT reason FROM wakeful.wake WHERE state = 'retired'").fetchall()
    assert reasons == [(f"agent.{state}",)]
    # And whatever is saved later.
    request(conn)
    wait_states(conn, retired=4, deferred=1)


def test_an_archived_project_retires_what_waits_in_it_whatever_it_waits_on(conn: Conn, scheduler: WatchedClock) -> None:
    behind_several_gates(conn)
    scheduler.settle()  # the second look after the parks is over, so that the pause brings none of them a new reason
    conn.execute("SELECT wakeful.pause_project('acme', 'site')")
    conn.execute("SELECT wakeful.create_issue('acme', 'ELSEWHERE'), wakeful.hold_issue('acme', 'ELSEWHERE')")
    request(conn, "I-0")
    request(conn, "ELSEWHERE")
    wait_waits(conn, "hold", "dependency", "execution", "project", "hold")
    conn.execute("SELECT wakeful.archive_project('acme', 'site')")
    wait_states(conn, retired=4, deferred=1)
    reasons = conn.execute("SELECT DISTINCT reason FROM wakeful.wake WHERE state = 'retired'").fetchall()
    assert reasons == [("project.archived",)]


@pytest.mark.usefixtures("scheduler")
def test_a_paused_member_makes_it_wait(conn: Conn) -> None:
    conn.execute("SELECT wakeful.pause_agent('acme', 'coder')")
    request(conn)
    wait_waits(conn, "agent")
    conn.execute("SELECT wakeful.resume_agent('acme', 'coder')")
    wait_states(conn, linked=1)


@pytest.mark.usefixtures("scheduler")
def test_approval_is_awaited_and_given(conn: Conn) -> None:
    conn.execute("SELECT wakeful.await_approval('acme', 'coder')")
    wake = request(conn)
    wait_waits(conn, "agent")
    told = why(conn, "acme", wake)
    assert (told.reason, told.opens_on) == ("agent.pending_approval", "wakeful agent approve coder")
    conn.execute("SELECT wakeful.approve_agent('acme', 'coder')")
    wait_states(conn, linked=1)


@pytest.mark.parametrize("state", END)
def test_an_earlier_tombstone_stays_as_it_is_with_its_time(conn: Conn, state: str) -> None:
    source = linked_run(conn, request(conn, "I-1"), "running")
    end_run(conn, source)
    retry = conn.execute("SELECT wake FROM wakeful.request_retry('acme', %s)", (source,)).fetchone()[0]
    conn.execute("SELECT wakeful.assign_issue('acme', 'I-1', 'user:ann')")
    admit(conn, retry, signalled=True)
    assert row(conn, retry, "state", "reason") == ("cancelled", "retry.reassigned")
    before = conn.execute("SELECT *, xmin::text FROM wakeful.wake WHERE id = %s", (retry,)).fetchone()
    conn.execute(END[state])
    admit(conn, retry, signalled=True)
    assert conn.execute("SELECT *, xmin::text FROM wakeful.wake WHERE id = %s", (retry,)).fetchone() == before


@pytest.mark.parametrize("state", END)
def test_a_queued_run_of_an_ended_member_ends_at_its_claim_and_frees_its_money(conn: Conn, state: str) -> None:
    conn.execute("SELECT wakeful.set_budget('acme', 'company', 10)")
    conn.execute("SELECT wakeful.create_issue('acme', 'I-1')")
    wake = conn.execute("SELECT wake FROM wakeful.request_wake('acme', 'coder', 'I-1', estimate => 4)").fetchone()[0]
    run = admit(conn, wake).runs[wake]
    conn.execute(END[state])
    assert start(conn) == ()
    found = run_row(conn, run)
    assert (found["state"], found["reason"]) == ("cancelled", f"agent.{state}")
    assert conn.execute("SELECT state FROM wakeful.reservation").fetchone() == ("released",)


@pytest.mark.parametrize("state", END)
def test_a_queued_run_that_waits_on_another_gate_ends_too(
    database: Database, conn: Conn, state: str, tmp_path: Path
) -> None:
    conn.execute("SELECT wakeful.create_issue('acme', 'I-1')")
    run = admit(conn, wake := request(conn, "I-1")).runs[wake]
    conn.execute("SELECT wakeful.hold_issue('acme', 'I-1')")
    with running(scripted.scheduler(database, tmp_path, ScriptedExecutor())):
        wait_until(lambda: run_row(conn, run)["wait_gate"] == "hold", what="the wait")
        conn.execute(END[state])
        wait_until(lambda: run_row(conn, run)["state"] == "cancelled", what="the end")


def test_a_running_run_of_an_ended_member_goes_on_to_its_end(conn: Conn) -> None:
    admit(conn, request(conn))
    (key,) = start(conn)
    conn.execute(END["terminated"])
    assert run_row(conn, key.run)["state"] == "starting"
    end(conn, key, "succeeded")
    wake = request(conn)
    assert row(conn, wake, "state") == ("deferred",)
    admit(conn, wake)
    assert row(conn, wake, "state", "reason") == ("retired", "agent.terminated")


def test_an_archived_project_ends_its_queued_runs(conn: Conn) -> None:
    conn.execute("SELECT wakeful.add_project('acme', 'site')")
    conn.execute("SELECT wakeful.create_issue('acme', 'I-1', project => 'site')")
    run = admit(conn, wake := request(conn, "I-1")).runs[wake]
    conn.execute("SELECT wakeful.archive_project('acme', 'site')")
    assert start(conn) == ()
    assert (run_row(conn, run)["state"], run_row(conn, run)["reason"]) == ("cancelled", "project.archived")


def test_terminated_is_not_the_end_of_it_but_archived_is(conn: Conn) -> None:
    conn.execute(END["terminated"])
    conn.execute(END["archived"])
    with pytest.raises(psycopg.Error, match="is archived"):
        conn.execute(END["terminated"])
