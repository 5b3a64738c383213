"""Hosts that never come back: after `host dead` their work moves, and nothing that they say later counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conditions import wait_until
from tests.crash import site as processes
from tests.integration import scripted
from tests.integration.runs import row
from tests.integration.scripted import ScriptedExecutor
from tests.passes import WHO, admit
from tests.schedulers import running

from wakeful import claims, host_loss, post_mortem, terminals
from wakeful.crash_points import no_crash
from wakeful.doubt import declare_uncertain
from wakeful.executions import RunKey
from wakeful.explain import why
from wakeful.scheduler import Scheduler
from wakeful.testing import Database

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("company")


class Site:
    """Two hosts, ``lost`` and ``other``, that share nothing but the database."""

    def __init__(self, database: Database, root: Path) -> None:
        self._database = database
        self._root = root
        self.executors = {"lost": ScriptedExecutor(ends=False), "other": ScriptedExecutor()}

    def scheduler(self, host: str) -> Scheduler:
        return scripted.scheduler(self._database, self._root / host, self.executors[host], host=host)


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Site:
    return Site(database, tmp_path)


def wake(conn: Conn, issue: str | None = None, agent: str = "coder") -> None:
    conn.execute("SELECT wakeful.request_wake('acme', %s, %s)", (agent, issue))


def runs(conn: Conn, state: str) -> list[RunKey]:
    rows = conn.execute("SELECT company, id, generation FROM wakeful.run WHERE state = %s ORDER BY id", (state,))
    return [RunKey(*found) for found in rows]


def wait_runs(conn: Conn, state: str, number: int) -> list[RunKey]:
    wait_until(lambda: len(runs(conn, state)) == number, within=20, what=f"{number} runs that are {state}")
    return runs(conn, state)


def declare_dead(conn: Conn, host: str = "lost") -> str:
    return conn.execute("SELECT outcome FROM wakeful.declare_host_dead(%s, 'user:ann')", (host,)).fetchone()[0]


@contextmanager
def started_on_the_lost_host(conn: Conn, site: Site, number: int) -> Iterator[list[RunKey]]:
    with running(site.scheduler("lost")):
        for issue in range(number):
            wake(conn, f"I-{issue}")
        yield wait_runs(conn, "running", number)


def lost_runs(conn: Conn, site: Site, number: int) -> list[RunKey]:
    """Runs that a host was running when it disappeared."""
    with started_on_the_lost_host(conn, site, number) as keys:
        pass
    return keys


def test_running_and_uncertain_runs_are_requeued_and_run_elsewhere(conn: Conn, site: Site) -> None:
    running_one, uncertain = lost_runs(conn, site, 2)
    assert declare_uncertain(conn, uncertain, "it is silent", overdue=None)
    with running(site.scheduler("other")):
        assert declare_dead(conn) == "merged"
        wait_runs(conn, "succeeded", 2)
    assert (row(conn, running_one.run)["generation"], row(conn, uncertain.run)["generation"]) == (2, 3)
    for key in (running_one, uncertain):
        found = row(conn, key.run)
        assert (found["host"], found["attempt"], found["state"]) == ("other", 2, "succeeded")
    action = conn.execute("SELECT run, state, outcome, resolved_by FROM wakeful.recovery_action").fetchone()
    assert action == (uncertain.run, "resolved", "host dead", "user:ann")
    assert conn.execute("SELECT count(*) FROM wakeful.issue WHERE execution_run IS NOT NULL").fetchone() == (0,)


def test_what_was_to_stop_is_cancelled_by_that_word(conn: Conn, site: Site) -> None:
    (key,) = lost_runs(conn, site, 1)
    conn.execute("SELECT wakeful.stop_run('acme', %s)", (key.run,))
    with running(site.scheduler("other")):
        declare_dead(conn)
        wait_runs(conn, "cancelled", 1)
    found = row(conn, key.run)
    assert (found["evidence"], found["end_class"], found["error"]) == (
        "attested",
        "stopped",
        "user:ann declared host lost dead",
    )
    # A person's word frees the issue.
    assert conn.execute("SELECT execution_run FROM wakeful.issue WHERE id = 'I-0'").fetchone() == (None,)


def test_it_is_judged_at_the_start_of_a_scheduler_too(conn: Conn, site: Site) -> None:
    lost_runs(conn, site, 3)
    declare_dead(conn)
    assert len(runs(conn, "running")) == 3
    with running(site.scheduler("other")):
        wait_runs(conn, "succeeded", 3)


def test_more_than_a_page_of_several_companies(conn: Conn) -> None:
    conn.execute(
        "INSERT INTO wakeful.host (id, machine, dead_at, dead_by) VALUES ('lost', 'm', wakeful.now(), 'user:ann')"
    )
    for company in ("acme", "beta"):
        conn.execute(
            "SELECT wakeful.add_company(%s), wakeful.add_agent(%s, 'coder', ARRAY['true'])", (company, company)
        )
        conn.execute(
            "INSERT INTO wakeful.run (company, agent, state, host, attempt, claimed_by, renew_by)"
            " SELECT %s, 'coder', 'running', 'lost', 1, 'data/gone', wakeful.wall() FROM generate_series(1, 130)",
            (company,),
        )
    host_loss.settle(conn)
    assert len(runs(conn, "queued")) == 260


def test_a_bound_run_waits_for_its_host_says_so_and_moves_when_its_agent_may(conn: Conn, site: Site) -> None:
    conn.execute("SELECT wakeful.add_agent('acme', 'bound', ARRAY['true'], host => 'lost')")
    with running(site.scheduler("lost")):
        wake(conn, agent="bound")
        (begun,) = wait_runs(conn, "running", 1)
    wake(conn, agent="bound")
    with running(site.scheduler("other")):
        wait_runs(conn, "queued", 1)
        declare_dead(conn)
        wait_until(lambda: len(runs(conn, "queued")) == 2, what="the requeue")
        for key in runs(conn, "queued"):
            told = why(conn, "acme", key.run)
            assert told.because.startswith("it is bound to host lost, which was declared dead")
            assert told.host == "lost"
        conn.execute("SELECT wakeful.add_agent('acme', 'bound', ARRAY['true'])")
        wait_runs(conn, "succeeded", 2)
    assert row(conn, begun.run)["host"] == "other"


def test_late_writes_are_refused_and_kept(conn: Conn, site: Site) -> None:
    (late,) = lost_runs(conn, site, 1)
    declare_dead(conn)
    host_loss.settle(conn)
    before = row(conn, late.run)
    ending = post_mortem.ending(late, scripted.report(late, exit_code=7))
    assert terminals.record(conn, "acme", [ending], crash=no_crash).refused == {late}
    assert row(conn, late.run) == before
    kept = conn.execute("SELECT run, generation, report ->> 'exit_code' FROM wakeful.refused_report").fetchall()
    assert kept == [(late.run, 1, "7")]


def test_a_host_that_lives_after_all_loses_its_runs_and_claims_nothing(conn: Conn, site: Site) -> None:
    conn.execute("SELECT wakeful.add_agent('acme', 'bound', ARRAY['true'], host => 'lost')")
    lost = site.executors["lost"]
    with started_on_the_lost_host(conn, site, 1) as (key,):
        with running(site.scheduler("other")):
            declare_dead(conn)
            wait_runs(conn, "succeeded", 1)
            wait_until(lambda: key in lost.stopped, what="the stop of what was overtaken")
            lost.end(key, exit_code=9)
            wait_until(
                lambda: conn.execute("SELECT count(*) FROM wakeful.refused_report").fetchone() == (1,),
                what="the refusal",
            )
            wake(conn, agent="bound")
            wait_runs(conn, "queued", 1)
            # Its dispatcher has taken the signal of the new run when it has taken a later one.
            conn.execute("SELECT wakeful.set_setting('retention_days', '31')")
            wake(conn)
            wait_runs(conn, "succeeded", 2)
        assert len(runs(conn, "queued")) == 1
        assert len(lost.started) == 1


def test_no_claim_of_a_dead_host_is_written(conn: Conn) -> None:
    wake(conn)
    admit(conn, conn.execute("SELECT id FROM wakeful.wake").fetchone()[0])
    text = "INSERT INTO wakeful.host (id, machine, dead_at, dead_by) VALUES (%s, 'm', wakeful.now(), 'user:ann')"
    conn.execute(text, (WHO.host,))
    done = claims.claim(conn, "acme", WHO, limit=9, gate=None, crash=no_crash)
    assert (done.halted, done.started) == (True, ())
    assert len(runs(conn, "queued")) == 1


def test_a_host_that_registers_again_lives(conn: Conn, site: Site) -> None:
    conn.execute("SELECT wakeful.add_agent('acme', 'bound', ARRAY['true'], host => 'lost')")
    with running(site.scheduler("lost")):
        declare_dead(conn)
        wait_until(lambda: host_loss.is_dead(conn, "lost"))
        wake(conn, agent="bound")
        wait_runs(conn, "queued", 1)
        # A second scheduler of the host registers it: the first one claims again as well.
        with running(site.scheduler("lost")):
            assert not host_loss.is_dead(conn, "lost")
            wait_runs(conn, "running", 1)
    assert conn.execute("SELECT dead_at, dead_by FROM wakeful.host WHERE id = 'lost'").fetchone() == (None, None)


def test_a_wake_that_waited_behind_the_doubt_is_looked_at(conn: Conn, site: Site) -> None:
    (key,) = lost_runs(conn, site, 1)
    declare_uncertain(conn, key, "it is silent", overdue=None)
    with running(site.scheduler("other")):
        wake(conn, "I-0")
        wait_until(
            lambda: (
                conn.execute("SELECT wait_gate FROM wakeful.wake WHERE state = 'deferred'").fetchone() == ("recovery",)
            ),
            what="the park",
        )
        declare_dead(conn)
        wait_runs(conn, "succeeded", 2)


def test_one_signal_for_one_word(conn: Conn, site: Site, listener: Any) -> None:
    lost_runs(conn, site, 1)
    listener.heard()
    assert declare_dead(conn) == "merged"
    assert declare_dead(conn) == "existing"
    assert [(s["t"], s["s"]) for s in listener.heard()] == [("settings", "hosts")]


def test_a_killed_host_s_real_child_is_replaced_and_says_nothing_that_counts(
    conn: Conn, database: Database, tmp_path: Path
) -> None:
    killed = processes.Site(database, tmp_path)
    try:
        gate = killed.gate()
        killed.writer(gate.wait)
        killed.wake()
        lost = killed.scheduler(host="lost").wait_ready()
        killed.wait_executions(1)
        wait_runs(conn, "running", 1)
        lost.kill()
        declare_dead(conn)
        killed.scheduler(host="other", data=tmp_path / "elsewhere").wait_ready()
        killed.wait_executions(2)
        gate.open()
        gate.open()
        found = killed.wait_run("succeeded")
        assert killed.executions() == [f"{found['id']}-1", f"{found['id']}-2"]
        assert (found["host"], found["generation"], found["attempt"]) == ("other", 2, 2)
        # The lost host comes back, with an exit record of the first generation on its disk.
        killed.wait_alone()
        killed.scheduler(host="lost").wait_ready()
        assert killed.run() == found
    finally:
        killed.close()
