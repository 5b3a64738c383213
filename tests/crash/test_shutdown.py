"""A scheduler is told to end: by a signal, by two, with children alive, with its database frozen or gone."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

from tests.conditions import wait_until
from tests.crash.proxy import Proxy
from tests.crash.site import Site

from wakeful import migrations
from wakeful.postgres import EmbeddedServer
from wakeful.testing import Database


def test_term_leaves_a_child_running_for_the_next_scheduler(site: Site) -> None:
    gate = site.gate()
    site.writer(f"{gate.wait}; exit 7")
    first = site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run("running")
    first.send(signal.SIGTERM)
    assert first.ends() == 0
    assert site.run()["state"] == "running"
    assert site.processes()
    site.scheduler().wait_ready()
    assert site.run()["claimed_by"] != run["claimed_by"]
    gate.open()
    run = site.wait_run()
    assert (run["state"], run["exit_code"], run["generation"], run["attempt"]) == ("failed", 7, 1, 1)
    assert len(site.executions()) == 1


def test_a_child_that_ended_while_no_scheduler_lived_is_recorded_once(site: Site) -> None:
    gate = site.gate()
    site.writer(f"{gate.wait}; echo out")
    first = site.scheduler().wait_ready()
    site.wake("issue")
    site.wait_run("running")
    first.kill()
    gate.open()
    site.wait_alone()
    assert site.run()["state"] == "running"
    site.scheduler().wait_ready()
    run = site.wait_run()
    assert (run["state"], run["stdout_tail"], run["generation"]) == ("succeeded", "out\n", 1)
    assert (len(site.executions()), site.count("refused_report")) == (1, 0)


def test_term_stops_children_where_told_so(site: Site) -> None:
    gate = site.gate()
    site.writer(gate.wait)
    first = site.scheduler(stop_children="kill").wait_ready()
    site.wake("issue")
    site.wait_run("running")
    first.send(signal.SIGTERM)
    assert first.ends() == 0, first.said()
    run = site.run()
    assert (run["state"], run["end_class"]) == ("cancelled", "stopped")
    assert "STOP_CHILDREN" in run["message"]
    assert not site.processes()


def test_a_frozen_database_delays_the_end_by_the_grace_at_most(site: Site) -> None:
    site.writer()
    with Proxy(site.database.dsn) as proxy:
        first = site.scheduler(dsn=proxy.dsn, grace=2).wait_ready()
        proxy.freeze()
        # Its next keep-alive goes nowhere, and nobody hangs up.
        assert proxy.frozen_calls.acquire(timeout=10)
        began = time.monotonic()
        first.send(signal.SIGTERM)
        assert first.ends() in (0, 1)
        assert time.monotonic() - began < 6


def test_a_dispatcher_that_waits_for_a_frozen_database_is_left_behind(site: Site) -> None:
    gate = site.gate()
    site.writer(gate.wait)
    with Proxy(site.database.dsn) as proxy:
        first = site.scheduler(dsn=proxy.dsn, grace=2).wait_ready()
        site.wake("issue")
        site.wait_run("running")
        proxy.freeze()
        gate.open()
        site.wait_alone()  # its end is on disk, and the dispatcher is about to write it
        for _ in range(3):
            assert proxy.frozen_calls.acquire(timeout=10)
        began = time.monotonic()
        first.send(signal.SIGTERM)
        assert first.ends() == 1
        assert time.monotonic() - began < 6
    assert "not everything ended" in first.said()
    site.scheduler().wait_ready()
    assert site.wait_run()["state"] == "succeeded"
    assert len(site.executions()) == 1


def test_a_second_signal_ends_it_at_once(site: Site) -> None:
    gate = site.gate()
    site.writer(f"trap '' TERM; {gate.wait}")
    first = site.scheduler(stop_children="kill", grace=60).wait_ready()
    site.wake("issue")
    site.wait_run("running")
    site.wait_executions(1)
    first.send(signal.SIGTERM)
    wait_until(lambda: site.stop_files(), what="the scheduler's request to its child")
    began = time.monotonic()
    first.send(signal.SIGTERM)
    assert first.ends() == 128 + signal.SIGTERM
    assert time.monotonic() - began < 20


def test_a_server_that_restarts_under_a_running_scheduler(tmp_path: Path) -> None:
    """Children end meanwhile; afterwards everything goes on, once."""
    home = tempfile.TemporaryDirectory(prefix="wkf-", dir="/tmp")  # short enough for the socket to come back there
    Path(home.name).chmod(0o755)
    server = EmbeddedServer(Path(home.name))
    server.start()
    database = Database(server.dsn, server.admin_dsn, "wakeful", server.dsn)
    try:
        migrations.apply(database.connect())
        site = Site(database, tmp_path)
        try:
            gate = site.gate()
            site.writer(f"{gate.wait}; echo out")
            scheduler = site.scheduler().wait_ready()
            site.wake("issue")
            site.wait_run("running")
            database.close()
            server.stop()
            gate.open()
            site.wait_alone()
            server = EmbeddedServer(Path(home.name))
            server.start()
            site.conn = site.connect()
            run = site.wait_run(within=60)
            assert (run["state"], run["stdout_tail"], run["generation"]) == ("succeeded", "out\n", 1)
            site.agent(["true"], "other")
            site.wake(None, "other")
            wait_until(lambda: [r["state"] for r in site.runs()] == ["succeeded"] * 2, within=60, what="the next run")
            assert scheduler.process.poll() is None
            assert len(site.executions()) == 1
        finally:
            site.close()
    finally:
        database.close()
        server.stop()
        home.cleanup()
