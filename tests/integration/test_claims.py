"""Claims of queued runs: what is judged again, who gets what, and what is told."""

from __future__ import annotations

from threading import Thread
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conftest import Listener
from tests.integration.runs import claimant, queued, row, value

from wakeful import claims
from wakeful.claims import Claims, Gate
from wakeful.crash_points import CrashPoint, no_crash
from wakeful.executions import RunKey
from wakeful.testing import Database, HoldAt, expect_blocked

Conn = psycopg.Connection[Any]


def claim(conn: Conn, limit: int = 10, gate: Gate | None = None, who: Any = None, crash: Any = no_crash) -> Claims:
    return claims.claim(conn, "acme", who or claimant(), limit=limit, gate=gate, crash=crash)


def started(done: Claims) -> set[UUID]:
    return {key.run for key in done.started}


def test_a_claim_counts_captures_and_stamps(conn: Conn, company: str, listener: Listener) -> None:
    run = queued(conn, "issue", generation=3)
    listener.heard()
    done = claim(conn)
    assert done.started == (RunKey("acme", run, 3),)
    found = row(conn, run)
    assert (found["state"], found["attempt"], found["generation"], found["host"]) == ("starting", 1, 3, "here")
    assert (found["claimed_by"], found["executor"]) == (claimant().claimer, "local")
    assert (found["renew_by"] - found["claimed_at"]).total_seconds() == pytest.approx(60, abs=1)
    assert value(conn, "SELECT execution_run FROM wakeful.issue") == run
    (signal,) = listener.heard()
    assert (signal["t"], signal["h"], signal["o"]) == ("renewal", "here", claimant().claimer)
    assert claim(conn).started == ()


def test_two_claimers_share_without_waiting(database: Database, conn: Conn, company: str) -> None:
    runs = {queued(conn) for _ in range(5)}
    other, held = database.connect(), HoldAt(CrashPoint.CLAIM_BEFORE_COMMIT)
    first: list[Claims] = []
    thread = Thread(target=lambda: first.append(claim(other, 3, who=claimant("two"), crash=held)), daemon=True)
    thread.start()
    held.wait_reached()
    second = claim(conn)
    # What the other holds may yet be rolled back, so it has to be looked at again.
    assert second.left
    held.release()
    thread.join(10)
    assert len(second.started) == 2
    assert started(first[0]) | started(second) == runs
    assert not claim(conn).left


def test_runs_of_other_hosts_labels_and_executors_are_left_alone(conn: Conn, company: str) -> None:
    queued(conn, host="there")
    queued(conn, labels=["gpu"])
    conn.execute("SELECT wakeful.add_agent('acme', 'remote', ARRAY['true'], executor => 'elsewhere')")
    queued(conn, agent="remote")
    done = claim(conn)
    assert (done.started, done.left) == ((), False)
    assert len(claim(conn, who=claimant(labels=("gpu", "big"))).started) == 1
    assert len(claim(conn, who=claimant(host="there")).started) == 1
    assert len(claim(conn, who=claimant(executors=("elsewhere",))).started) == 1


def test_a_gate_that_closed_since_the_admission_holds_the_run(conn: Conn, company: str) -> None:
    run = queued(conn)
    conn.execute("SELECT wakeful.pause_company('acme')")
    done = claim(conn)
    assert done.started == ()
    found = row(conn, run)
    assert (found["state"], found["attempt"], found["wait_gate"]) == ("queued", 0, "company")
    assert (found["wait_reason"], found["opens_on"]) == ("company.paused", "wakeful resume company acme")
    # The same answer again changes nothing.
    claim(conn, gate=("company", "acme"))
    assert row(conn, run)["version"] == found["version"]
    conn.execute("SELECT wakeful.resume_company('acme')")
    assert started(claim(conn, gate=("company", "acme"))) == {run}
    assert row(conn, run)["wait_gate"] is None


def test_a_pause_committed_while_the_lock_is_awaited_is_seen(database: Database, conn: Conn, company: str) -> None:
    run = queued(conn, "issue")
    holder, claimer = database.connect(), database.connect()
    with holder.transaction():
        holder.execute("SELECT FROM wakeful.issue FOR UPDATE")
        with expect_blocked(lambda: claim(claimer), behind=holder, watcher=conn) as blocked:
            conn.execute("SELECT wakeful.pause_agent('acme', 'coder')")
            holder.execute("COMMIT")
            assert blocked.result().started == ()
            holder.execute("BEGIN")
    assert row(conn, run)["wait_gate"] == "agent"


def test_a_gate_that_opens_between_judgement_and_commit_is_found(database: Database, conn: Conn, company: str) -> None:
    queued(conn)
    other = database.connect()
    conn.execute("SELECT wakeful.pause_company('acme')")

    def resume(point: str) -> None:
        if point == CrashPoint.CLAIM_BEFORE_COMMIT:
            other.execute("SELECT wakeful.resume_company('acme')")

    assert claim(conn, crash=resume).reopened == {("company", "acme")}


def test_an_issue_closed_since_ends_the_run_without_a_start(conn: Conn, company: str) -> None:
    run = queued(conn, "issue")
    conn.execute("SELECT wakeful.set_budget('acme', 'company', 10)")
    conn.execute(
        "INSERT INTO wakeful.reservation (company, run, policy, amount) VALUES ('acme', %s, 'company', 4)", (run,)
    )
    conn.execute("SELECT wakeful.set_issue_status('acme', 'issue', 'done')")
    (ending,) = claim(conn).ended
    assert ending.key.run == run
    found = row(conn, run)
    assert (found["state"], found["reason"], found["attempt"]) == ("cancelled", "issue.terminal", 0)
    assert value(conn, "SELECT state FROM wakeful.reservation") == "released"
    assert value(conn, "SELECT count(*) FROM wakeful.spend") == 0


def test_the_last_attempt_is_the_last(conn: Conn, company: str) -> None:
    run = queued(conn, attempt=3, error="its runner was killed")
    (ending,) = claim(conn).ended
    assert ending.conclusion.reason == "run.attempts"
    found = row(conn, run)
    assert (found["state"], found["attempt"], found["error"]) == ("failed", 3, "its runner was killed")


@pytest.mark.parametrize(("name", "value_"), [("draining", "true"), ("scheduler_enabled", "false")])
def test_a_setting_forbids_claims_even_if_its_signal_has_not_come(
    conn: Conn, company: str, name: str, value_: str
) -> None:
    run = queued(conn)
    conn.execute("SELECT wakeful.set_setting(%s, %s)", (name, value_))
    done = claim(conn)
    assert (done.halted, done.started) == (True, ())
    assert row(conn, run)["state"] == "queued"


def test_a_run_that_does_not_fit_keeps_no_other_waiting(conn: Conn, company: str) -> None:
    """Behind one budget the first is too dear; with one slot free the second is found all the same."""
    conn.execute("SELECT wakeful.set_budget('acme', 'company', 10)")
    waits = {"wait_gate": "budget", "wait_key": "company", "wait_reason": "budget.exhausted"}
    queued(conn, estimate=100, **waits)
    fits = queued(conn, estimate=1, **waits)
    assert started(claim(conn, limit=1, gate=("budget", "company"))) == {fits}


def test_more_may_go_than_there_are_slots(conn: Conn, company: str) -> None:
    waits = {"wait_gate": "company", "wait_key": "acme", "wait_reason": "company.paused"}
    runs = [queued(conn, **waits) for _ in range(3)]
    done = claim(conn, limit=2, gate=("company", "acme"))
    assert done.full
    assert started(done) == set(runs[:2])
    assert row(conn, runs[2])["wait_gate"] == "company"


def test_a_stop_and_a_claim_meet_in_both_orders(database: Database, conn: Conn, company: str) -> None:
    stopper, claimer = database.connect(), database.connect()
    stopped = queued(conn, "first")
    with stopper.transaction():
        stopper.execute("SELECT wakeful.stop_run('acme', %s)", (stopped,))
        assert claim(claimer).left
    assert claim(claimer).started == ()
    assert row(conn, stopped)["state"] == "cancelled"

    claimed = queued(conn, "second")
    held = HoldAt(CrashPoint.CLAIM_BEFORE_COMMIT)
    thread = Thread(target=lambda: claim(claimer, crash=held), daemon=True)
    thread.start()
    held.wait_reached()
    with expect_blocked(
        lambda: value(stopper, "SELECT state FROM wakeful.stop_run('acme', %s)", claimed),
        behind=claimer,
        watcher=conn,
    ) as blocked:
        held.release()
        assert blocked.result() == "stopping"
    thread.join(10)
    assert row(conn, claimed)["state"] == "stopping"
