"""What every test may ask for: a real server, a database of its own, a company in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from wakeful.testing import Database, Server, Statements, VirtualClock

COMPANY = "acme"
AGENT = "coder"


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """WAKEFUL_DSN, or the embedded server that all test processes of this checkout share."""
    with Server(dsn=os.environ.get("WAKEFUL_DSN"), data=Path(pytestconfig.rootpath) / "build" / "server") as opened:
        yield opened


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A migrated database of the test's own."""
    with server.database() as made:
        yield made


@pytest.fixture
def empty_database(server: Server) -> Iterator[Database]:
    """A database without wakeful's schema."""
    with server.database(migrated=False) as made:
        yield made


@pytest.fixture
def conn(database: Database) -> psycopg.Connection[Any]:
    """An autocommit session of the test's database."""
    return database.connect()


@pytest.fixture
def company(conn: psycopg.Connection[Any]) -> str:
    """The company ``acme`` with one agent, ``coder``."""
    conn.execute("SELECT wakeful.add_company(company => %s)", (COMPANY,))
    conn.execute("SELECT wakeful.add_agent(company => %s, agent => %s, command => %s)", (COMPANY, AGENT, ["true"]))
    return COMPANY


@pytest.fixture
def clock(database: Database) -> VirtualClock:
    """The virtual clock of the test's database."""
    return VirtualClock(database.connect(purpose="test clock"))


@pytest.fixture
def statements(database: Database) -> Iterator[Statements]:
    """What the test's database executes."""
    with Statements(database) as counted:
        yield counted
