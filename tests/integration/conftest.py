"""What the tests on a real server share beyond a company: schedulers, a watched clock, commands, an assigned issue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.schedulers import Schedulers, WatchedClock, schedulers
from tests.speaking import Host

from wakeful.testing import Database


@pytest.fixture
def fleet(database: Database, tmp_path: Path) -> Iterator[Schedulers]:
    """Schedulers of the test's database."""
    with schedulers(database, tmp_path) as made:
        yield made


@pytest.fixture
def watched(database: Database) -> WatchedClock:
    """A clock for schedulers of the test's database, which the test steps."""
    return WatchedClock(database.connect(purpose="test clock"))


@pytest.fixture
def assigned(conn: psycopg.Connection[Any], web: None) -> None:
    """The issue ``I-1`` is the agent's, and nothing waits on it."""
    conn.execute("UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = 'coder' WHERE id = 'I-1'")


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> CommandLine:
    """The program, on the test's database."""
    return CommandLine(tmp_path / "data", database.dsn)


@pytest.fixture
def host(database: Database, tmp_path: Path) -> Iterator[Host]:
    """A host whose agents speak by files."""
    made = Host(database, tmp_path)
    yield made
    made.close()
