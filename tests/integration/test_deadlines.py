"""Frozen servers and silent networks: every call ends at its deadline, and nothing is ever cancelled."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import wakeful
from wakeful import connections
from wakeful.connections import Session, Watchdog
from wakeful.errors import (
    DatabaseUnavailable,
)
from wakeful.postgres import EmbeddedServer
from wakeful.testing import Database, Statements

SOON = timedelta(milliseconds=300)
# What a deadline may be late by on a busy machine; without it these calls hang for ever.
LATE = 15.0


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Freeze a server process: the kernel goes on acknowledging for it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with Session(database.dsn, purpose="test session", deadline=SOON) as opened:
        yield opened


@pytest.fixture
def own_processes() -> None:
    """Only an embedded server's processes can be frozen."""
    if os.environ.get("WAKEFUL_DSN"):
        pytest.skip("the server's processes are not ours")


@pytest.mark.usefixtures("own_processes")
def test_a_frozen_server_is_given_up_at_the_deadline(session: Session) -> None:
    with session.transaction() as conn:
        frozen = conn.info.backend_pid
    began = time.monotonic()
    with (
        stopped(frozen),
        pytest.raises(DatabaseUnavailable, match=r"did not answer within 0\.3 s"),
        session.transaction() as conn,
    ):
        conn.execute("SELECT 1")
    assert 0.3 <= time.monotonic() - began < LATE
    with session.transaction() as conn:
        assert conn.info.backend_pid != frozen


@pytest.mark.usefixtures("own_processes")
def test_a_commit_past_its_deadline_has_an_unknown_outcome_and_can_be_looked_up(
    session: Session, conn: psycopg.Connection[Any], company: str
) -> None:
    def request_and_freeze(frozen: contextlib.ExitStack) -> None:
        with session.transaction() as own:
            wakeful.run(own, wakeful.request_wake("acme", "coder", key="looked up"))
            frozen.enter_context(stopped(own.info.backend_pid))

    with contextlib.ExitStack() as frozen, pytest.raises(DatabaseUnavailable, match="did not answer") as raised:
        request_and_freeze(frozen)
    assert "may or may not" in (raised.value.hint or "")
    # The key tells: whatever became of the commit, the wake exists once after asking again.
    wakeful.run(conn, wakeful.request_wake("acme", "coder", key="looked up"))
    assert conn.execute("SELECT count(*) FROM wakeful.wake").fetchone() == (1,)


def test_a_call_that_waits_for_a_lock_is_given_up_too(database: Database, session: Session, company: str) -> None:
    holder = database.connect(autocommit=False)
    holder.execute("LOCK TABLE wakeful.company")
    with pytest.raises(DatabaseUnavailable, match="did not answer"), session.transaction() as own:
        own.execute("SELECT FROM wakeful.company")


def test_each_call_has_its_own_deadline(database: Database) -> None:
    """A later call with a nearer deadline is not kept waiting by an earlier one, and outlives its own success."""
    watchdog = Watchdog()
    patient, hasty = (Session(database.dsn, purpose="test", watchdog=watchdog) for _ in range(2))
    with patient.transaction(within=timedelta(seconds=60)) as one:
        one.execute("SELECT 1")
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable), hasty.transaction(within=SOON) as two:
            two.execute("SELECT pg_sleep(30)")
        assert time.monotonic() - began < LATE
        assert one.execute("SELECT 2").fetchone() == (2,)
    for _ in range(3):
        with hasty.transaction(within=SOON) as two:
            two.execute("SELECT 1")
    patient.close()
    hasty.close()
    watchdog.close()


def test_a_deadline_that_has_passed_in_peace_hurts_nobody(database: Database) -> None:
    watchdog = Watchdog()
    first, second = database.connect(), database.connect()
    with watchdog.guard(first, timedelta(milliseconds=20)):
        first.execute("SELECT 1")
    # The next deadline passes in earnest, so the first one is long past.
    with pytest.raises(DatabaseUnavailable, match="did not answer"), watchdog.guard(second, SOON):
        second.execute("SELECT pg_sleep(30)")
    assert first.execute("SELECT 1").fetchone() == (1,)
    watchdog.close()


def test_the_watchdog_is_one_thread_and_costs_no_statement(database: Database, statements: Statements) -> None:
    before = threading.active_count()
    watchdog = Watchdog()
    sessions = [Session(database.dsn, purpose="test", watchdog=watchdog) for _ in range(3)]
    for one in sessions:
        with one.transaction() as conn:
            statements.reset()
            conn.execute("SELECT 42")
    assert [one.text for one in statements.executed()] == ["COMMIT", "SELECT $1"]
    assert threading.active_count() == before + 1
    for one in sessions:
        one.close()
    watchdog.close()
    assert threading.active_count() == before


def test_closing_a_session_ends_its_own_watchdog(database: Database) -> None:
    before = threading.active_count()
    with Session(database.dsn, purpose="test") as one, one.transaction() as conn:
        conn.execute("SELECT 1")
    assert threading.active_count() == before


class Relay:
    """A TCP address that passes everything on to a server's socket, until it is told to swallow it."""

    def __init__(self, target: dict[str, Any]) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.swallow = threading.Event()
        self._pairs: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                host, port = self._target["host"], self._target.get("port", 5432)
                server = socket.socket(socket.AF_UNIX if host.startswith("/") else socket.AF_INET)
                server.connect(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, int(port)))
                self._pairs += [client, server]
                for source, drain in ((client, server), (server, client)):
                    thread = threading.Thread(target=self._pump, args=(source, drain), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pump(self, source: socket.socket, drain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.swallow.is_set():
                    drain.sendall(data)
            drain.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in [self._listening, *self._pairs]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def relay(database: Database) -> Iterator[Relay]:
    opened = Relay(conninfo_to_dict(database.dsn))
    yield opened
    opened.close()


def test_a_silent_cut_is_noticed_by_the_socket_itself(database: Database, relay: Relay) -> None:
    dsn = make_conninfo(database.dsn, host="127.0.0.1", port=relay.port)
    wanted = (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    )
    with (
        contextlib.closing(connections.connect(dsn, purpose="test")) as opened,
        socket.socket(fileno=os.dup(opened.fileno())) as copy,
    ):
        options = [copy.getsockopt(level, name) for level, name in wanted]
    assert options == [1, 5, 2, 3, 8000]


def test_a_peer_that_swallows_everything_is_given_up_at_the_deadline(database: Database, relay: Relay) -> None:
    dsn = make_conninfo(database.dsn, host="127.0.0.1", port=relay.port, connect_timeout=2)
    with Session(dsn, purpose="test", deadline=SOON) as one:
        with one.transaction() as own:
            own.execute("SELECT 1")
        relay.swallow.set()
        with pytest.raises(DatabaseUnavailable, match="did not answer"), one.transaction() as own:
            own.execute("SELECT 1")
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="no answer in time"), one.transaction():
            pytest.fail("connected")
        assert time.monotonic() - began < LATE
        relay.swallow.clear()
        with one.transaction() as own:
            assert own.execute("SELECT 1").fetchone() == (1,)


def test_a_frozen_postmaster_is_given_up(own_server: EmbeddedServer) -> None:
    with psycopg.connect(own_server.admin_dsn) as admin:
        directory = admin.execute("SHOW data_directory").fetchone()[0]
    postmaster = int(Path(directory, "postmaster.pid").read_text(encoding="ascii").splitlines()[0])
    began = time.monotonic()
    with stopped(postmaster), pytest.raises(DatabaseUnavailable, match="no answer in time"):
        connections.connect(make_conninfo(own_server.dsn, connect_timeout=2), purpose="test")
    assert time.monotonic() - began < LATE
