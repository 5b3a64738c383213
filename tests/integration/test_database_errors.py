"""What people are told when a server is missing, refuses, or answers with an error: why, what to do, no secrets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.conditions import wait_until

import wakeful
from wakeful import connections, database_errors
from wakeful.errors import (
    Conflict,
    DatabaseUnavailable,
    InvalidInput,
    SchemaMismatch,
    WakefulError,
)
from wakeful.postgres import EmbeddedServer
from wakeful.testing import Database

SECRET = "hunter2"


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
