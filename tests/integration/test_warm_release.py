"""A warm scheduler releases by each kind of gate: real clock, real child, no restart, exactly one run with its output.

What is silent is shown elsewhere, by fixtures of its own: nothing here is virtual, reset or started anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from tests.conditions import wait_until
from tests.gate_table import GATES, SETUP, GateCase
from tests.integration.test_every_gate import is_parked_on, parked_on
from tests.quota import HostPlugin, open_quota

from wakeful import config, plugins, producers
from wakeful.scheduler import Scheduler
from wakeful.testing import Database

WORDS = ["sh", "-c", 'echo "awake for $WAKEFUL_ISSUE"']


@pytest.fixture
def conn(database: Database) -> psycopg.Connection[Any]:
    conn = database.connect()
    open_quota(conn)
    return conn


@pytest.fixture
def scheduler(database: Database, conn: psycopg.Connection[Any], tmp_path: Path) -> Iterator[Scheduler]:
    tmp_path.chmod(0o755)
    settings = config.load({"dsn": database.dsn, "data": str(tmp_path / "data")}, os.environ, tmp_path)
    running = Scheduler(settings, plugins.load(settings, plugins=[HostPlugin()]))
    running.start()
    assert running.wait_ready(30)
    yield running
    assert running.stop()


def ended(conn: Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT wake, state, stdout_tail FROM wakeful.run WHERE wake IS NOT NULL AND ended_at IS NOT NULL"
    ).fetchall()


@pytest.mark.parametrize("case", GATES, ids=lambda case: case.name)
def test_the_gates_own_commit_leads_to_one_run_with_its_output(
    case: GateCase, scheduler: Scheduler, conn: Connection[Any]
) -> None:
    for statement in SETUP:
        conn.execute(statement, {"c": "acme"})
    case.close(conn, "acme")
    conn.execute("UPDATE wakeful.agent SET executor = 'local', command = %s WHERE id = 'coder'", (WORDS,))
    wake = producers.run(conn, producers.request_wake("acme", "coder", "I-1")).wake
    wait_until(lambda: parked_on(conn, "acme"), what="the park")
    assert is_parked_on(conn, "acme", case), parked_on(conn, "acme")
    assert ended(conn) == []
    passes = scheduler.driver.passes
    case.open(conn, "acme")
    assert wait_until(lambda: ended(conn), what="the run") == [(wake, "succeeded", "awake for I-1\n")]
    assert scheduler.driver.passes > passes
    assert conn.execute("SELECT count(*) FROM wakeful.wake WHERE ended_at IS NULL").fetchone() == (0,)
