"""Sessions that are lost, read-only, forked or pooled are opened anew, and set what they need."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.conditions import wait_until

import wakeful
from wakeful import connections, database_errors
from wakeful.connections import Session
from wakeful.errors import (
    ConfigError,
    DatabaseUnavailable,
    RunSuperseded,
)
from wakeful.testing import Database

SOON = timedelta(milliseconds=300)


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with Session(database.dsn, purpose="test session", deadline=SOON) as opened:
        yield opened


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
        connections.conninfo("postgresql://ann:hunter2@host:port:port/x?nonsense", purpose="p")
    assert "hunter2" not in str(raised.value)


def test_a_connection_made_before_a_fork_serves_parent_and_child(database: Database, company: str) -> None:
    session = Session(database.dsn, purpose="test")
    with session.transaction() as conn:
        wakeful.run(conn, wakeful.create_issue("acme", "before"))
    parent_pid = conn.info.backend_pid

    def child(answer: Any) -> None:
        for number in range(50):
            with session.transaction() as own:
                wakeful.run(own, wakeful.create_issue("acme", f"child {number}"))
        answer.send(own.info.backend_pid)
        session.close()
        os._exit(0)  # without the interpreter's own clean-up, as after a crash

    ours, theirs = multiprocessing.Pipe()
    forked = multiprocessing.get_context("fork").Process(target=child, args=(theirs,))
    forked.start()
    theirs.close()
    for number in range(50):
        with session.transaction() as conn:
            wakeful.run(conn, wakeful.create_issue("acme", f"parent {number}"))
    assert conn.info.backend_pid == parent_pid
    assert ours.recv() != parent_pid
    forked.join(30)
    assert forked.exitcode == 0
    with session.transaction() as conn:
        assert conn.info.backend_pid == parent_pid
        assert conn.execute("SELECT count(*) FROM wakeful.issue").fetchone() == (101,)
    session.close()
