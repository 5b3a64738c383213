"""The testing kit itself: a proof is worth as much as its tools."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.conditions import wait_until

from wakeful.connections import connect
from wakeful.testing import Database, HoldAt, Server, Statements, VirtualClock, expect_blocked


def test_each_test_has_a_fresh_database(database: Database) -> None:
    conn = database.connect()
    assert conn.execute("SELECT count(*) FROM wakeful.company").fetchone() == (0,)


def test_making_a_database_is_quick(server):
    with server.database():
        pass
    began = time.monotonic()
    for _ in range(5):
        with server.database() as made:
            made.connect()
    each = (time.monotonic() - began) / 5
    assert each < 2.0


def test_clock_moves_database_and_process_together(database: Database, clock: VirtualClock) -> None:
    conn = database.connect()
    before = clock.monotonic()
    clock.advance(1500)
    assert 1500 <= clock.monotonic() - before < 1530
    ahead, in_order = conn.execute(
        "SELECT wakeful.now() - statement_timestamp(),"
        " wakeful.wall() BETWEEN wakeful.now() AND clock_timestamp() + interval '1500 s'"
    ).fetchone()
    assert (ahead, in_order) == (timedelta(seconds=1500), True)


def test_advance_ends_waits_and_finds_the_database_moved(database: Database, clock: VirtualClock) -> None:
    conn = database.connect()
    condition = threading.Condition()
    waits, seen = threading.Event(), []

    def sleeper() -> None:
        with condition:
            due = clock.monotonic() + 3600
            waits.set()
            while (left := due - clock.monotonic()) > 0:
                clock.wait(condition, left)
            seen.append(conn.execute("SELECT wakeful.now() - statement_timestamp()").fetchone()[0])

    thread = threading.Thread(target=sleeper)
    thread.start()
    waits.wait(10)
    clock.advance(1800)
    clock.advance(1801)
    thread.join(10)
    assert seen == [timedelta(seconds=3601)]


def test_wait_ends_at_once_when_the_time_jumped_since_it_was_read(clock: VirtualClock) -> None:
    condition = threading.Condition()
    clock.monotonic()
    jump = threading.Thread(target=clock.advance, args=(60,))
    jump.start()
    jump.join()
    began = time.monotonic()
    with condition:
        clock.wait(condition, 60)
    assert time.monotonic() - began < 30


def test_expect_blocked_passes_when_the_writer_waits(database: Database, conn, company) -> None:
    holder, writer = database.connect(), database.connect()

    def write() -> int:
        return writer.execute("UPDATE wakeful.company SET name = 'w' WHERE company = 'acme'").rowcount

    with holder.transaction():
        holder.execute("SELECT FROM wakeful.company WHERE company = 'acme' FOR UPDATE")
        with expect_blocked(write, behind=holder, watcher=conn, lock="transactionid") as blocked:
            assert blocked.pid == writer.info.backend_pid
            assert not blocked.finished
            holder.execute("COMMIT")
            assert blocked.result() == 1
            holder.execute("BEGIN")


def test_expect_blocked_fails_at_once_when_the_writer_finishes(database: Database, conn) -> None:
    holder = database.connect()
    with (
        holder.transaction(),
        pytest.raises(AssertionError, match="finished without waiting"),
        expect_blocked(lambda: 1, behind=holder, watcher=conn),
    ):
        pytest.fail("entered")


def test_expect_blocked_releases_at_once_when_its_block_fails(database: Database, conn, company) -> None:
    holder, writer = database.connect(), database.connect()
    ended: list[int] = []

    def write() -> None:
        ended.append(writer.execute("UPDATE wakeful.company SET name = 'w' WHERE company = 'acme'").rowcount)

    def fail() -> None:
        with holder.transaction():
            holder.execute("SELECT FROM wakeful.company WHERE company = 'acme' FOR UPDATE")
            with expect_blocked(write, behind=holder, watcher=conn):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert ended == [1]
    assert not holder.closed, "the server had to end the session that held the lock"


def test_statements_counts_nested_ones_and_not_itself(database: Database, statements: Statements) -> None:
    conn = database.connect()
    statements.reset()
    assert statements.count() == 0
    conn.execute("SELECT wakeful.add_company(company => 'a')")
    texts = [one.text for one in statements.executed()]
    assert any("INSERT INTO wakeful.company" in text for text in texts)
    with statements.none():
        conn.execute("", prepare=False)
    with pytest.raises(AssertionError, match="SELECT \\$1"), statements.none():
        conn.execute("SELECT 1")


def test_statements_of_other_accounts_count_though_they_have_no_id(database: Database) -> None:
    host = database.connect_as("wakeful_host")
    plain = make_conninfo(
        database.login("wakeful_viewer"), dbname=conninfo_to_dict(database.maintenance_dsn).get("dbname")
    )
    with Statements(Database(database.dsn, database.admin_dsn, database.name, plain)) as statements:
        for text in ("SELECT 1", "SELECT 2, 3", "SELECT 4, 5, 6"):
            host.execute(text)
        assert statements.count() == 3


def test_a_server_that_does_not_count_is_told_apart(database: Database, empty_database: Database) -> None:
    with psycopg.connect(empty_database.admin_dsn) as admin:
        admin.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
    uncounted = Database(database.dsn, database.admin_dsn, database.name, empty_database.dsn)
    with pytest.raises(
        AssertionError, match=f"CREATE EXTENSION pg_stat_statements in the database {empty_database.name}"
    ):
        Statements(uncounted)


def test_kill_at_kills_at_the_named_arrival_and_runs_nothing_more() -> None:
    code = (
        "from wakeful.testing import KillAt\nat = KillAt('b', 2)\n"
        "for place in 'abab':\n    print(place, flush=True)\n    at(place)\nprint('alive')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, ["a", "b", "a", "b"])


def test_hold_at_holds_until_released() -> None:
    hold = HoldAt("here")
    passed = []

    def walk() -> None:
        for place in ("there", "here", "beyond"):
            hold(place)
            passed.append(place)

    thread = threading.Thread(target=walk)
    thread.start()
    hold.wait_reached()
    assert passed == ["there"]
    hold.release()
    thread.join(10)
    assert passed == ["there", "here", "beyond"]
    with pytest.raises(AssertionError, match="never released"):
        HoldAt("here", within=0.01)("here")
    with pytest.raises(AssertionError, match="nobody reached"):
        HoldAt("here", within=0.01).wait_reached()


def test_what_a_killed_test_left_is_swept_by_the_next_server(server: Server) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom wakeful.testing import KillAt, Server\n"
        "with Server(dsn=sys.argv[1], data=Path()) as server, server.database() as made:\n"
        "    made.login('wakeful_host')\n    print(made.name, flush=True)\n    KillAt('now')('now')"
    )
    done = subprocess.run([sys.executable, "-c", code, server.dsn], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    name = done.stdout.strip()
    left = (
        "SELECT (SELECT count(*) FROM pg_database WHERE datname = %(name)s),"
        " (SELECT count(*) FROM pg_roles WHERE rolname LIKE %(name)s || '%%')"
    )
    with closing(connect(server.dsn, purpose="test")) as conn:
        assert conn.execute(left, {"name": name}).fetchone() == (1, 1)

        def swept() -> bool:
            with Server(dsn=server.dsn, data=Path()):
                return conn.execute(left, {"name": name}).fetchone() == (0, 0)

        # The server may take a moment to see that its client is dead.
        wait_until(swept, what="the sweep")
