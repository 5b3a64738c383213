"""What every test may ask for: a real server, a database of its own, a company in it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from wakeful.testing import Database, Server, Statements, VirtualClock

COMPANY = "acme"
AGENT = "coder"
ROOM = 2 * 1024**3


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """WAKEFUL_DSN, or the embedded server that all test processes of this checkout share."""
    with Server(dsn=os.environ.get("WAKEFUL_DSN"), data=server_home(pytestconfig.rootpath)) as opened:
        yield opened


def server_home(root: Path) -> Path:
    """Return where the test server's files lie: in memory where there is room, since nothing must survive."""
    shared = Path("/dev/shm")
    home = shared / f"wakeful-tests-{os.geteuid()}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:8]}"
    try:
        room = os.statvfs(shared)
        home.mkdir(mode=0o755, exist_ok=True)
        if home.lstat().st_uid == os.geteuid() and room.f_bavail * room.f_frsize > ROOM:
            return home
    except OSError:
        pass  # no such memory here
    return root / "build" / "server"


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


class Listener:
    """Hears the signals of one database."""

    def __init__(self, database: Database) -> None:
        self._ear = database.connect(purpose="test listener")
        self._ear.execute("LISTEN wakeful")
        self._mouth = database.connect(purpose="test listener's end mark")

    def heard(self) -> list[dict[str, Any]]:
        """Return every signal committed since the last call, in order of commit; waits for no silence."""
        signals = []
        self._mouth.execute("SELECT pg_notify('wakeful', 'end')")
        for notification in self._ear.notifies(timeout=30):
            if notification.payload == "end":
                return signals
            signals.append(json.loads(notification.payload))
        raise AssertionError("the end mark never came")

    def gates(self) -> list[tuple[str, str, str]]:
        """Return (topic, gate, key) of every gate signal heard, and fail on any other."""
        return [(signal["t"], signal["g"], signal["k"]) for signal in self.heard()]


@pytest.fixture
def listener(database: Database) -> Listener:
    """The signals of the test's database, from now on."""
    return Listener(database)
