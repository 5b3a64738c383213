"""What every test may ask for: a real server, a database of its own, a company in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.rows import end_run, linked_run, request, say

from wakeful import producers
from wakeful.postgres import EmbeddedServer
from wakeful.postgres_locks import is_held
from wakeful.testing import Database, Server, Statements, VirtualClock

COMPANY = "acme"
AGENT = "coder"
ROOM = 2 * 1024**3


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """WAKEFUL_DSN, or the embedded server that all test processes of this checkout share."""
    home = server_home(pytestconfig.rootpath)
    installed = os.environ.get("WAKEFUL_POSTGRES") == "path"
    data, binaries = (home / "installed", "path") if installed else (home, "wheel")
    with Server(dsn=os.environ.get("WAKEFUL_DSN"), data=data, binaries=binaries) as opened:
        yield opened


@pytest.fixture(scope="module")
def own_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedServer]:
    """A new server of the module's own, to be spoiled."""
    home = server_home(pytestconfig.rootpath)
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="own-", dir=home) as directory:
        Path(directory).chmod(0o755)  # a server of root's runs as another account
        with EmbeddedServer(Path(directory)) as opened:
            yield opened


def server_home(root: Path) -> Path:
    """Return where the test server's files lie: in memory where there is room, since nothing must survive."""
    memory = Path("/dev/shm")
    prefix = f"wakeful-tests-{os.geteuid()}-"
    home = memory / (prefix + hashlib.sha256(os.fsencode(root)).hexdigest()[:8])
    try:
        room = os.statvfs(memory)
        home.mkdir(mode=0o755, exist_ok=True)
        if home.lstat().st_uid != os.geteuid() or room.f_bavail * room.f_frsize < ROOM:
            return root / "build" / "server"
        (home / "checkout").write_bytes(os.fsencode(root))
        for other in memory.glob(f"{prefix}*"):
            forget_if_orphaned(other)
    except OSError:
        return root / "build" / "server"
    return home


def forget_if_orphaned(home: Path) -> None:
    """Remove the files of a checkout that is no more."""
    with contextlib.suppress(FileNotFoundError):
        checkout = Path(os.fsdecode((home / "checkout").read_bytes()))
        if not checkout.exists() and not is_held(home / "postgres.running"):
            shutil.rmtree(home)


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
def web(conn: psycopg.Connection[Any], company: str) -> None:
    """In the company: the project ``web`` with the issue ``I-1``, and a second agent, ``other``."""
    say(conn, producers.add_project(company, "web"), producers.create_issue(company, "I-1", project="web"))
    say(conn, producers.add_agent(company, "other", ["true"]))


@pytest.fixture
def failed_run(conn: psycopg.Connection[Any], company: str) -> UUID:
    """A run of the issue ``I-1`` that has failed, with the wake that it carried."""
    run = linked_run(conn, request(conn, payload={"a": 1}, priority=4, estimate=2))
    end_run(conn, run)
    return run


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
