"""Connections to servers that are gone, frozen, read-only, or somebody else's."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.conditions import wait_until

import wakeful
from wakeful import connections, database_errors
from wakeful.connections import Session, Watchdog
from wakeful.errors import (
    ConfigError,
    Conflict,
    DatabaseUnavailable,
    InvalidInput,
    RunSuperseded,
    SchemaMismatch,
    WakefulError,
)
from wakeful.postgres import EmbeddedServer
from wakeful.testing import Database, Statements

SOON = timedelta(milliseconds=300)
# What a deadline may be late by on a busy machine; without it these calls hang for ever.
LATE = 15.0
SECRET = "hunter2"


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


# ── deadlines ───────────────────────────────────────────────────────────────────────────────────────────


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


# ── sessions ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_session_opens_when_first_used_and_keeps_its_connection(database: Database, conn: Any) -> None:
    count = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'wakeful lazy' AND datname = current_database()"
    )
    with Session(database.dsn, purpose="lazy") as one:
        assert conn.execute(count).fetchone() == (0,)
        with one.transaction() as first:
            pid = first.info.backend_pid
        with one.autocommit() as second:
            assert second.info.backend_pid == pid
            assert second.execute("SELECT current_setting('application_name')").fetchone() == ("wakeful lazy",)
    wait_until(lambda: conn.execute(count).fetchone() == (0,), what="the end of the session")


def test_a_terminated_session_is_told_once_and_then_opened_anew(session: Session, conn: Any) -> None:
    with session.transaction() as own:
        first = own.info.backend_pid
    conn.execute("SELECT pg_terminate_backend(%s, 10000)", (first,))
    with pytest.raises(DatabaseUnavailable, match="was lost") as raised, session.transaction() as own:
        own.execute("SELECT 1")
    assert database_errors.is_transient(raised.value)
    with session.transaction() as own:
        assert own.info.backend_pid != first


def test_any_exception_rolls_back_and_leaves_the_session_usable(session: Session, conn: Any, company: str) -> None:
    def request_and_raise(error: BaseException) -> None:
        with session.transaction() as own:
            wakeful.run(own, wakeful.request_wake("acme", "coder"))
            raise error

    for error in (ValueError(), RunSuperseded("acme", UUID(int=1), 1)):
        with pytest.raises(type(error)):
            request_and_raise(error)
    with pytest.raises(psycopg.errors.SyntaxError), session.transaction() as own:
        own.execute("SELEC")
    with session.transaction() as own:
        assert own.execute("SELECT count(*) FROM wakeful.wake").fetchone() == (0,)


def test_read_committed_whatever_the_database_says(database: Database, conn: Any) -> None:
    conn.execute(f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'serializable'")
    with Session(database.dsn, purpose="test") as one:
        with one.transaction() as own:
            assert own.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
        with one.autocommit() as own:
            assert own.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
            assert own.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("10s",)


def test_behind_a_pooler_nothing_is_set_for_the_session(database: Database) -> None:
    with Session(database.dsn, purpose="test", pooled=True) as one:
        with one.transaction() as own:
            assert own.prepare_threshold is None
            assert own.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("10s",)
            assert own.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
        with one.autocommit() as own:
            assert own.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("0",)


def test_a_poolers_refusal_of_options_is_known_by_its_words() -> None:
    said = "connection failed: FATAL:  unsupported startup parameter: options"
    assert database_errors.refuses_options(psycopg.OperationalError(said))
    assert not database_errors.refuses_options(psycopg.OperationalError(said.replace("options", "other")))


def test_a_server_that_turned_read_only_is_left(database: Database, conn: Any, company: str) -> None:
    with Session(database.dsn, purpose="test") as one:
        with one.transaction() as own:
            before = own.info.backend_pid
        with pytest.raises(DatabaseUnavailable, match="can only be read"), one.transaction() as own:
            own.execute("SET TRANSACTION READ ONLY; SELECT wakeful.pause_company('acme')")
        with one.transaction() as own:
            assert own.info.backend_pid != before


def test_of_several_hosts_the_one_that_can_be_written_to_is_chosen(database: Database, conn: Any) -> None:
    given = conninfo_to_dict(database.dsn)
    two = make_conninfo(database.dsn, host=f"/nonexistent,{given['host']}", port=str(given.get("port", 5432)))
    with contextlib.closing(connections.connect(two, purpose="test")) as opened:
        assert opened.execute("SELECT 1").fetchone() == (1,)
    conn.execute(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailable, match="none of them can be written to"):
        connections.connect(two, purpose="test")


def test_what_the_dsn_says_wins_over_the_defaults() -> None:
    made = conninfo_to_dict(connections.conninfo("host=a,b keepalives_idle=99 options='-c x.y=1'", purpose="p"))
    assert made["keepalives_idle"] == "99"
    assert made["target_session_attrs"] == "read-write"
    assert made["options"].endswith("-c x.y=1")
    assert made["connect_timeout"] == "3"
    assert "target_session_attrs" not in conninfo_to_dict(connections.conninfo("host=a", purpose="p"))
    assert "options" not in conninfo_to_dict(connections.conninfo("host=a", purpose="p", pooled=True))
    with pytest.raises(ConfigError) as raised:
        connections.conninfo(f"postgresql://ann:{SECRET}@host:port:port/x?nonsense", purpose="p")
    assert SECRET not in str(raised.value)


# ── the network ─────────────────────────────────────────────────────────────────────────────────────────


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


# ── who is told what ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def guarded(own_server: EmbeddedServer) -> EmbeddedServer:
    """A server that asks its ordinary login for a password."""
    with psycopg.connect(own_server.admin_dsn, autocommit=True) as admin:
        admin.execute(f"ALTER ROLE wakeful PASSWORD '{SECRET}'")
        hba = Path(admin.execute("SHOW hba_file").fetchone()[0])
        hba.write_text("local all postgres trust\nlocal all wakeful scram-sha-256\n", encoding="ascii")
        admin.execute("SELECT pg_reload_conf()")
        dsn = make_conninfo(own_server.dsn, password="not it", dbname="postgres")
        wait_until(lambda: refused(dsn), what="the new rules of admission")
    return own_server


def refused(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return True
    return False


UNREACHABLE: list[tuple[Callable[[str], str], str]] = [
    (lambda dsn: make_conninfo(dsn, password="wr0ng"), "refuses this login or its password"),
    (lambda dsn: make_conninfo(dsn), "wants a password"),
    (lambda dsn: make_conninfo(dsn, password=SECRET, dbname="nowhere"), "no such database"),
    (lambda dsn: make_conninfo(dsn, user="stranger", password=SECRET), "does not admit this login"),
    (lambda dsn: make_conninfo(dsn, user="wakeful_owner", password=SECRET), "does not admit this login"),
    (lambda dsn: make_conninfo(dsn, port=1, password=SECRET), "nobody listens there"),
    (lambda dsn: make_conninfo(dsn, host="127.0.0.1", port=1, password=SECRET), "nobody listens there"),
    (lambda dsn: make_conninfo(dsn, host="no-such-host.invalid", password=SECRET), "the host's name is unknown"),
]


@pytest.mark.parametrize(("spoil", "cause"), UNREACHABLE, ids=[cause for _, cause in UNREACHABLE])
def test_a_connection_that_fails_says_why_and_keeps_secrets(
    guarded: EmbeddedServer, spoil: Callable[[str], str], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSFILE", "/nonexistent")
    with pytest.raises(DatabaseUnavailable) as raised:
        connections.connect(spoil(guarded.dsn), purpose="test")
    error = raised.value
    assert cause in error.message
    assert (error.code, "\n" in error.message, bool(error.hint)) == (3, False, True)
    for secret in (SECRET, "wr0ng", "wakeful_owner", "stranger", "user=wakeful"):
        assert secret not in error.message + (error.hint or "")
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_the_right_password_opens(guarded: EmbeddedServer) -> None:
    with contextlib.closing(connections.connect(make_conninfo(guarded.dsn, password=SECRET), purpose="t")) as opened:
        assert opened.execute("SELECT 1").fetchone() == (1,)


def test_a_frozen_postmaster_is_given_up(guarded: EmbeddedServer) -> None:
    with psycopg.connect(guarded.admin_dsn) as admin:
        directory = admin.execute("SHOW data_directory").fetchone()[0]
    postmaster = int(Path(directory, "postmaster.pid").read_text(encoding="ascii").splitlines()[0])
    began = time.monotonic()
    with stopped(postmaster), pytest.raises(DatabaseUnavailable, match="no answer in time"):
        connections.connect(make_conninfo(guarded.dsn, connect_timeout=2, password=SECRET), purpose="test")
    assert time.monotonic() - began < LATE


def test_a_database_without_the_schema_says_so(empty_database: Database) -> None:
    with pytest.raises(SchemaMismatch) as raised:
        wakeful.run(empty_database.connect(), wakeful.pause_company("acme"))
    assert "wakeful migrate" in (raised.value.hint or "")


FAILING: list[tuple[str, type[WakefulError] | None]] = [
    ("SELECT * FROM wakeful.nothing", SchemaMismatch),
    ("SELECT nothing FROM wakeful.wake", SchemaMismatch),
    ("SELECT wakeful.nothing()", SchemaMismatch),
    ("SELECT 'x'::jsonb", InvalidInput),
    ("SELECT ''::wakeful.id", InvalidInput),
    ("INSERT INTO wakeful.company VALUES ('a'), ('a')", Conflict),
    ("INSERT INTO wakeful.project (company, id) VALUES ('nowhere', 'p')", InvalidInput),
    ("SELECT pg_terminate_backend(pg_backend_pid())", DatabaseUnavailable),
    ("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(5)", DatabaseUnavailable),
    ("SELEC", None),
]


@pytest.mark.parametrize(("text", "kind"), FAILING, ids=[text for text, _ in FAILING])
def test_what_the_server_says_is_translated(conn: Any, text: str, kind: type[WakefulError] | None) -> None:
    with pytest.raises(kind or psycopg.errors.SyntaxError) as raised, database_errors.translated():
        conn.execute(text)
    if kind is not None:
        assert type(raised.value) is kind
        assert isinstance(raised.value.__cause__, psycopg.Error)
        assert "wakeful." not in raised.value.message
        assert "\n" not in raised.value.message
