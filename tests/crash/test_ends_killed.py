"""Ends of runs and of their files, and their words, across a real SIGKILL: another life finishes them, once."""

from __future__ import annotations

import json
import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.conditions import wait_until
from tests.crash.site import Site
from tests.speaking import AGENT, ENVIRONMENT

from wakeful.crash_points import CrashPoint


def crashed(site: Site, disk: str, *, ended: bool = False) -> tuple[dict[str, Any], Path]:
    """Run one agent under a scheduler that kills itself at a step of its end; return the run and its instance."""
    site.agent([sys.executable, str(AGENT), f"line={site.truth}", "cache", "spend=0.5"], env_values=ENVIRONMENT)
    first = site.scheduler(disk=disk)
    site.wake("issue")
    first.dies()
    run = site.run()
    assert (run["ended_at"] is not None) is ended
    (home,) = site.data.glob(f"coord/*/instances/*/{run['id']}-1")
    return run, home


def taken_over(site: Site, home: Path) -> None:
    """Start another scheduler, and see everything ended once."""
    site.scheduler().wait_ready()
    run = site.wait_run()
    assert (run["state"], run["generation"]) == ("succeeded", 1), site.logs()
    wait_until(lambda: list(home.glob("end-*")), what="agent.end")
    assert len(list(home.glob("terminal-*"))) == 1
    assert not list(home.glob("held-*")) + list(home.glob("cache")) + list(home.glob("retained-*"))
    assert len(site.executions()) == 1
    assert [row["amount"] for row in site.conn.execute("SELECT amount FROM wakeful.spend")] == [Decimal("0.5")]
    assert not [name for name in os.listdir(home.parents[2] / "outbox/pending") if name.endswith(".json")]


def test_crash_control_before_the_terminal(site: Site) -> None:
    _, home = crashed(site, "rename_new terminal-")
    assert not list(home.glob("terminal-*"))
    assert (home / "cache").exists()
    taken_over(site, home)


def test_crash_control_after_the_cache_was_set_aside(site: Site) -> None:
    _, home = crashed(site, "after rename held-")
    (terminal,) = home.glob("terminal-*")
    (held,) = home.glob("held-*")
    nonce = json.loads(terminal.read_text())["nonce"]
    assert held.name.endswith(nonce)
    assert not (home / "cache").exists()
    before = json.loads(terminal.read_text())
    taken_over(site, home)
    assert json.loads(terminal.read_text()) == before


STEPS = {
    "after rename_new terminal-": False,
    "rename held-": False,
    "unlink held-": False,
    "after unlink held-": False,
    "rename generation.json": False,
    "after rename generation.json": False,
    "after unlink 0": False,
    "rename_new end-": True,
    "after rename_new end-": True,
}


@pytest.mark.nightly
@pytest.mark.parametrize(("step", "ended"), STEPS.items())
def test_invariant_19_a_kill_at_any_step_of_an_end_repeats_nothing(site: Site, step: str, *, ended: bool) -> None:
    _, home = crashed(site, step, ended=ended)
    taken_over(site, home)


@pytest.mark.parametrize(
    ("word", "table"), [("spend=0.5", "spend"), ("comment=x", "comment"), ("status=in_review", "status_decision")]
)
def test_crash_between_the_commit_of_an_event_and_its_acknowledgement_doubles_nothing(
    site: Site, word: str, table: str
) -> None:
    """Killed after the row is committed, before the outbox forgets it."""
    site.agent([sys.executable, str(AGENT), f"line={site.truth}", word], env_values=ENVIRONMENT)
    first = site.scheduler(disk="unlink 0")  # txids begin with the time, which begins with 0
    site.wake("issue")
    first.dies()
    assert site.count(table) == 1
    assert site.run()["ended_at"] is None
    (pending,) = site.data.glob("coord/*/outbox/pending/*.json")
    site.scheduler().wait_ready()
    assert site.wait_run()["state"] == "succeeded", site.logs()
    assert not pending.exists()
    assert not list(site.data.glob("coord/*/outbox/pending/*.reason"))
    assert (site.count(table), len(site.executions())) == (1, 1)


def test_a_decision_that_was_recorded_is_not_taken_again_after_a_newer_one(site: Site) -> None:
    """Killed before the outbox forgot it, and a person decided otherwise before the next life."""
    site.agent([sys.executable, str(AGENT), "status=in_review"], env_values=ENVIRONMENT)
    first = site.scheduler(disk="unlink 0")
    site.wake("issue")
    first.dies()
    site.conn.execute("SELECT wakeful.commit_status('acme', 'issue', 'blocked', actor => 'user:ann')")
    site.scheduler().wait_ready()
    assert site.wait_run()["state"] == "succeeded", site.logs()
    wait_until(lambda: not list(site.data.glob("coord/*/outbox/pending/*.json")), what="an empty outbox")
    (issue,) = site.conn.execute("SELECT status FROM wakeful.issue").fetchall()
    assert (issue["status"], site.count("status_decision")) == ("blocked", 2)


def test_agent_end_is_made_good_when_its_scheduler_died_right_after_the_row(site: Site) -> None:
    site.writer("echo said", env_values=ENVIRONMENT)
    first = site.scheduler(crash=CrashPoint.TERMINAL_AFTER_COMMIT)
    site.wake("issue")
    first.dies()
    run = site.run()
    assert run["state"] == "succeeded"
    assert not list(site.data.glob("coord/*/instances/*/*/end-*"))
    site.scheduler().wait_ready()
    wait_until(lambda: list(site.data.glob("coord/*/instances/*/*/end-*")), what="agent.end")
    assert len(site.executions()) == 1
