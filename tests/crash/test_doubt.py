"""Runs whose files cannot be reached, or cannot be believed: nothing replaces them before proof."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.conditions import wait_until
from tests.crash.site import Site

from wakeful.crash_points import CrashPoint

QUICK = (1.6, 0.3, 0.6)


def elsewhere(site: Site) -> Path:
    return site.root / "elsewhere"


def doubted(site: Site) -> dict[str, Any]:
    """Wait until the one run is declared uncertain; return its row."""
    return wait_until(
        lambda: next((run for run in site.runs() if run["uncertain_at"]), None), within=20, what="an uncertain run"
    )


def actions(site: Site) -> list[tuple[str, str | None]]:
    rows = site.conn.execute("SELECT state, resolved_by FROM wakeful.recovery_action ORDER BY id").fetchall()
    return [(row["state"], row["resolved_by"]) for row in rows]


def lost_host(site: Site, then: str) -> dict[str, Any]:
    """Run a child on host a, kill a's scheduler, and have host b's declare the run uncertain; return its row."""
    site.writer(then)
    first = site.scheduler(host="a", lease=QUICK).wait_ready()
    site.wake("issue")
    site.wait_run("running")
    site.scheduler(host="b", data=elsewhere(site), lease=QUICK).wait_ready()
    first.kill()
    row = doubted(site)
    assert (row["state"], row["generation"], row["attempt"], row["host"]) == ("running", 2, 1, "a")
    assert actions(site) == [("open", None)]
    return row


def test_a_lost_host_comes_back_with_a_late_report(site: Site) -> None:
    gate = site.gate()
    lost_host(site, f'[ "${{WAKEFUL_RUN##*-}}" != 1 ] || {gate.wait}')
    gate.open()
    site.wait_alone()
    assert site.run()["state"] == "running"
    site.scheduler(host="a", lease=QUICK).wait_ready()
    run = site.wait_run()
    assert (run["state"], run["generation"], run["attempt"], run["uncertain_at"]) == ("succeeded", 3, 2, None)
    assert site.executions() == [f"{run['id']}-1", f"{run['id']}-3"]
    (report,) = site.conn.execute("SELECT generation, report FROM wakeful.refused_report").fetchall()
    assert (report["generation"], report["report"]["exit_code"], report["report"]["state"]) == (1, 0, "succeeded")
    assert actions(site) == [("resolved", "system:evidence")]


def test_a_lost_host_comes_back_while_its_child_lives(site: Site) -> None:
    """What it does can no longer count: it is stopped, and then the run is tried again."""
    gate = site.gate()
    lost_host(site, f'[ "${{WAKEFUL_RUN##*-}}" != 1 ] || {gate.wait}')
    site.scheduler(host="a", lease=QUICK).wait_ready()
    run = site.wait_run()
    assert (run["state"], run["generation"], run["attempt"]) == ("succeeded", 3, 2)
    assert len(site.executions()) == 2
    site.wait_alone()


def test_a_stop_of_an_uncertain_run_is_carried_out_by_its_own_host(site: Site) -> None:
    gate = site.gate()
    row = lost_host(site, gate.wait)
    assert site.stop(row["id"]) == "stopping"
    site.scheduler(host="a", lease=QUICK).wait_ready()
    run = site.wait_run()
    assert (run["state"], run["end_class"]) == ("cancelled", "stopped")
    assert len(site.executions()) == 1
    site.wait_alone()


def test_another_data_directory_under_the_same_host_name_proves_nothing(site: Site) -> None:
    gate = site.gate()
    site.writer(gate.wait)
    first = site.scheduler(lease=QUICK).wait_ready()
    site.wake("issue")
    site.wait_run("running")
    first.kill()
    second = site.scheduler(data=elsewhere(site), lease=QUICK).wait_ready()
    row = doubted(site)
    second.kill()
    site.scheduler(data=elsewhere(site), lease=QUICK).wait_ready()  # it has looked at everything
    again = site.run()
    assert (again["state"], again["generation"], again["attempt"]) == ("running", 2, 1)
    assert (again["claimed_by"], again["uncertain_at"]) == (row["claimed_by"], row["uncertain_at"])
    assert not list(site.data.glob("runs/*/*/*/void"))
    assert not list(elsewhere(site).glob("runs/*"))
    assert site.processes()


def test_a_host_that_was_renamed_finds_its_runs_by_its_files(site: Site) -> None:
    gate = site.gate()
    site.writer(gate.wait)
    first = site.scheduler(host="old").wait_ready()
    site.wake("issue")
    site.wait_run("running")
    first.kill()
    site.scheduler(host="new").wait_ready()
    assert site.run()["host"] == "new"
    gate.open()
    run = site.wait_run()
    assert (run["state"], run["generation"]) == ("succeeded", 1)


def test_a_scheduler_cut_off_from_its_database_stops_what_was_overtaken(site: Site) -> None:
    """Stopped for longer than lease and margin, its run is declared uncertain; it wakes up, and gives way."""
    gate = site.gate()
    site.writer(f'[ "${{WAKEFUL_RUN##*-}}" != 1 ] || {gate.wait}')
    first = site.scheduler(host="a", lease=QUICK).wait_ready()
    site.wake("issue")
    site.wait_run("running")
    site.scheduler(host="b", data=elsewhere(site), lease=QUICK).wait_ready()
    first.send(signal.SIGSTOP)
    doubted(site)
    first.send(signal.SIGCONT)
    run = site.wait_run()
    assert (run["state"], run["generation"], run["attempt"]) == ("succeeded", 3, 2)
    assert len(site.executions()) == 2
    site.wait_alone()


def test_a_run_directory_that_cannot_be_made_heals(site: Site) -> None:
    """Nothing can be written down about such a run, so nothing replaces it; once that is mended it starts."""
    site.writer()
    site.data.mkdir()
    (site.data / "runs").write_text("in the way")
    site.scheduler().wait_ready()
    site.wake("issue")
    row = doubted(site)
    assert (row["state"], row["generation"]) == ("starting", 2)
    os.unlink(site.data / "runs")
    run = site.wait_run()
    assert (run["state"], run["generation"], run["attempt"]) == ("succeeded", 3, 2)
    assert len(site.executions()) == 1
    assert actions(site) == [("resolved", "system:evidence")]


def test_a_stop_before_the_start_with_a_dead_claimer(site: Site) -> None:
    site.writer()
    first = site.scheduler(crash=CrashPoint.CLAIM_AFTER_COMMIT)
    site.wake("issue")
    first.dies()
    assert site.stop(site.run()["id"]) == "stopping"
    site.scheduler().wait_ready()
    run = site.wait_run()
    assert (run["state"], run["end_class"], run["attempt"]) == ("cancelled", "stopped", 1)
    assert site.executions() == []


def test_a_stop_while_no_scheduler_lives(site: Site) -> None:
    gate = site.gate()
    site.writer(gate.wait)
    first = site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run("running")
    first.kill()
    assert site.stop(run["id"]) == "stopping"
    site.scheduler().wait_ready()
    run = site.wait_run()
    assert (run["state"], run["end_class"], run["generation"]) == ("cancelled", "stopped", 1)
    site.wait_alone()


def test_a_forked_child_neither_ends_nor_outlives_its_parents_scheduler(site: Site) -> None:
    gate = site.gate()
    site.writer(gate.wait)
    first = site.scheduler(fork=True).wait_ready()
    site.wake("issue")
    run = site.wait_run("running")
    site.scheduler().wait_ready()
    assert site.run()["claimed_by"] == run["claimed_by"]  # the parent still counts as alive
    assert "control session lost" not in first.said()
    first.kill()
    site.scheduler().wait_ready()
    assert site.run()["claimed_by"] != run["claimed_by"]
    gate.open()
    assert site.wait_run()["state"] == "succeeded"
