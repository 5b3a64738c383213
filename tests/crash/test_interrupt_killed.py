"""SIGKILL at each commit of an interrupt and of a release: nothing by halves, nothing twice, nothing lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from tests.command_line import ROOTS
from tests.conditions import wait_until
from tests.crash.site import COMPANY, Site

from wakeful import producers
from wakeful.crash_points import CrashPoint

HOST = Path(__file__).parents[1] / "children" / "interrupting_host.py"
ANN = "user:ann"


def interrupting_host(site: Site, moment: str) -> str:
    """Interrupt and be killed; return what the producer had answered."""
    command = [sys.executable, str(HOST), site.database.dsn, moment]
    environment = {"PYTHONPATH": ":".join(ROOTS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()


def save(site: Site, id: str = "c-1") -> UUID:
    made = site.conn.execute(
        "SELECT wake FROM wakeful.save_comment(%s, 'issue', 'words', %s, id => %s, agent => 'coder')",
        (COMPANY, ANN, id),
    ).fetchone()
    wake: UUID = made["wake"]
    return wake


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_host_killed_at_the_commit_of_its_interrupt(site: Site, moment: str) -> None:
    gate = site.gate()
    site.writer(gate.wait, stop_grace="5 seconds")
    site.scheduler().wait_ready()
    site.wake("issue")
    first = site.wait_run("running")
    wake = save(site)
    assert interrupting_host(site, moment) == "merged"
    [row] = site.conn.execute("SELECT * FROM wakeful.wake WHERE id = %s", (wake,)).fetchall()
    [run] = [run for run in site.runs() if run["id"] == first["id"]]
    if moment == "before":
        assert (row["interrupt_by"], run["state"], run["named_wake"], run["teardowns"]) == (None, "running", None, 0)
        site.conn.execute(*producers.interrupt_issue(COMPANY, "issue", actor=ANN).psycopg)
    else:
        assert (row["interrupt_by"], run["named_wake"], run["teardowns"]) == (ANN, wake, 1)
    wait_until(lambda: len(site.executions()) == 2, what="the run of the messages")
    gate.open()
    wait_until(lambda: all(run["ended_at"] for run in site.runs()), what="both ends")
    old, new = site.runs()
    assert (old["state"], old["evidence"]) == ("cancelled", "contained")
    assert (new["state"], new["wake"], new["comments"]) == ("succeeded", wake, ["c-1"])
    assert len(site.executions()) == 2
    site.wait_alone()


@pytest.mark.parametrize("point", [CrashPoint.TERMINAL_BEFORE_COMMIT, CrashPoint.TERMINAL_AFTER_COMMIT])
def test_a_scheduler_killed_at_the_commit_that_releases_what_the_run_names(site: Site, point: CrashPoint) -> None:
    gate = site.gate()
    site.writer(gate.wait, stop_grace="5 seconds")
    killed = site.scheduler(crash=point).wait_ready()
    site.wake("issue")
    site.wait_run("running")
    wake = save(site)
    site.conn.execute(*producers.interrupt_issue(COMPANY, "issue", actor=ANN).psycopg)
    killed.dies()
    site.scheduler().wait_ready()
    wait_until(lambda: len(site.executions()) == 2, what="the run of the messages")
    gate.open()
    wait_until(lambda: all(run["ended_at"] for run in site.runs()), what="both ends")
    old, new = site.runs()
    assert (old["state"], new["wake"], new["comments"]) == ("cancelled", wake, ["c-1"])


@pytest.mark.parametrize("point", [CrashPoint.ADMISSION_BEFORE_COMMIT, CrashPoint.ADMISSION_AFTER_COMMIT])
def test_a_scheduler_killed_at_the_commit_of_a_release(site: Site, point: CrashPoint) -> None:
    """A cancelled run of another version names a receipt that no clock and no gate would bring up."""
    site.writer()
    site.wake("issue")
    (wake,) = site.conn.execute("UPDATE wakeful.wake SET due_at = NULL RETURNING id").fetchall()
    site.conn.execute(
        "INSERT INTO wakeful.run (company, agent, state, ended_at, evidence, named_wake)"
        " VALUES (%s, 'coder', 'cancelled', now(), 'contained', %s)",
        (COMPANY, wake["id"]),
    )
    site.scheduler(crash=point).dies()
    site.scheduler().wait_ready()
    wait_until(lambda: [run["state"] for run in site.runs()][1:] == ["succeeded"], what="its run")
    assert len(site.executions()) == 1
    assert site.conn.execute("SELECT state, failures FROM wakeful.wake").fetchall() == [
        {"state": "linked", "failures": 0}
    ]
