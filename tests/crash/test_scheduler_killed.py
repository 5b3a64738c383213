"""SIGKILL of the scheduler at every crash point in the code's one list, and a second one that takes over."""

from __future__ import annotations

import signal

import pytest
from tests.conditions import wait_until
from tests.crash.site import Site

from wakeful.crash_points import CrashPoint
from wakeful.testing import Statements

# Generation and attempt that the successor's one execution may have: a claim that came to nothing counts.
FIRST, SECOND, EITHER = {(1, 1)}, {(2, 2)}, {(1, 1), (2, 2)}
CONTINUES = {
    CrashPoint.ADMISSION_BEFORE_COMMIT: FIRST,
    CrashPoint.ADMISSION_AFTER_COMMIT: FIRST,
    CrashPoint.CLAIM_BEFORE_COMMIT: FIRST,
    CrashPoint.CLAIM_AFTER_COMMIT: SECOND,
    CrashPoint.RUN_DIRECTORY: SECOND,
    CrashPoint.RUN_INPUT: SECOND,
    CrashPoint.SPAWN_BEFORE_STARTED: EITHER,
    CrashPoint.SPAWN_AFTER_STARTED: FIRST,
    CrashPoint.EXIT_RECORD: FIRST,
    CrashPoint.TERMINAL_BEFORE_COMMIT: FIRST,
    CrashPoint.TERMINAL_AFTER_COMMIT: FIRST,
}


# Places that the work of these tests never passes; each has a test of its own.
ELSEWHERE = {CrashPoint.STOP_REQUEST, CrashPoint.INTENT_BEFORE_COMMIT, CrashPoint.INTENT_AFTER_COMMIT}


@pytest.mark.parametrize("point", [point for point in CrashPoint if point not in ELSEWHERE])
def test_killed_at_a_crash_point(site: Site, point: CrashPoint) -> None:
    site.writer("echo said")
    first = site.scheduler(crash=point)
    site.wake("issue")
    first.dies()
    site.scheduler().wait_ready()
    run = site.wait_run()
    assert run["state"] == "succeeded", site.logs()
    assert (run["generation"], run["attempt"]) in CONTINUES[point]
    assert (run["exit_code"], run["stdout_tail"], run["evidence"]) == (0, "said\n", "contained")
    assert site.executions() == [f"{run['id']}-{run['generation']}"]
    assert site.count("refused_report") == 0
    assert site.count("recovery_action") == 0
    (wake,) = site.conn.execute("SELECT state, run FROM wakeful.wake").fetchall()
    assert (wake["state"], wake["run"]) == ("linked", run["id"])
    (issue,) = site.conn.execute("SELECT execution_run FROM wakeful.issue").fetchall()
    assert issue["execution_run"] is None
    site.wait_alone()


def test_killed_when_a_stop_is_on_disk_and_nobody_told(site: Site) -> None:
    gate = site.gate()
    site.writer(gate.wait, stop_grace="5 seconds")
    first = site.scheduler(crash=CrashPoint.STOP_REQUEST).wait_ready()
    site.wake("issue")
    run = site.wait_run("running")
    assert site.stop(run["id"]) == "stopping"
    first.dies()
    site.scheduler().wait_ready()
    run = site.wait_run()
    assert (run["state"], run["end_class"], run["generation"]) == ("cancelled", "stopped", 1)
    assert len(site.executions()) == 1
    site.wait_alone()


def test_a_run_whose_row_somebody_held_is_claimed_after_all(site: Site) -> None:
    """Its signal found the row locked, and nobody signals a rollback."""
    site.writer()
    first = site.scheduler(crash=CrashPoint.ADMISSION_AFTER_COMMIT)
    site.wake("issue")
    first.dies()
    holder = site.database.connect()
    with holder.transaction(force_rollback=True):
        holder.execute("SELECT FROM wakeful.run FOR NO KEY UPDATE")
        site.scheduler().wait_ready()
        assert site.run()["state"] == "queued"
    run = site.wait_run()
    assert (run["state"], run["attempt"]) == ("succeeded", 1)


def test_a_living_scheduler_adopts_when_the_claim_expires(site: Site) -> None:
    """Nothing tells it but the time: another host's scheduler owns, and goes on doing so."""
    gate = site.gate()
    site.writer(gate.wait, host="site")
    site.scheduler(host="owner", data=site.root / "owner").wait_ready()
    lease = (1.0, 0.3, 20.0)
    pair = [site.scheduler(lease=lease).wait_ready() for _ in range(2)]
    site.wake("issue")
    run = site.wait_run("running")
    (claimer,) = (one for one in pair if f"scheduler {run['claimed_by'].split('/')[1]} " in one.said())
    claimer.kill()
    wait_until(lambda: site.run()["claimed_by"] != run["claimed_by"], within=15, what="adoption")
    assert (site.run()["state"], site.run()["generation"]) == ("running", 1)
    gate.open()
    run = site.wait_run()
    assert (run["state"], run["generation"], run["attempt"]) == ("succeeded", 1, 1)
    assert len(site.executions()) == 1


def test_two_living_schedulers_of_one_host_leave_each_others_runs_alone(site: Site, statements: Statements) -> None:
    gate = site.gate()
    site.writer(gate.wait)
    lease = (0.6, 0.2, 0.2)
    first = site.scheduler(lease=lease).wait_ready()
    site.wake("issue")
    run = site.wait_run("running")
    second = site.scheduler(lease=lease).wait_ready()
    # Stopped, the first renews no more: the second looks at the evidence, and finds the claimer alive.
    first.send(signal.SIGSTOP)
    wait_until(lambda: expired(site), what="an expired claim")
    statements.reset()
    wait_until(lambda: looks(statements) >= 3, within=20, what="looks of the second scheduler")
    assert second.process.poll() is None
    assert site.run()["claimed_by"] == run["claimed_by"]
    assert (site.run()["state"], site.run()["generation"], site.count("recovery_action")) == ("running", 1, 0)
    # An end that is on disk is written for it, though.
    gate.open()
    assert site.wait_run()["state"] == "succeeded"
    first.send(signal.SIGCONT)
    first.send(signal.SIGTERM)
    assert first.ends() == 0
    assert (len(site.executions()), site.count("refused_report")) == (1, 0)


def looks(statements: Statements) -> int:
    return sum(one.calls for one in statements.executed() if "AS expired" in one.text)


def expired(site: Site) -> bool:
    row = site.conn.execute("SELECT renew_by < wakeful.wall() - interval '1 second' AS yes FROM wakeful.run").fetchone()
    return row["yes"]
