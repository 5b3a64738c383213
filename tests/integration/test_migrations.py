"""Migrations: applied once however many start at once, in the way of nobody afterwards, the same by any tool."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import wakeful
from wakeful import connections, migrations
from wakeful.errors import SchemaMismatch
from wakeful.owners import PluginMigration
from wakeful.postgres import EmbeddedServer
from wakeful.testing import Database, Server, Statements, expect_blocked

Conn = psycopg.Connection[Any]
CHILD = Path(__file__).parents[1] / "children" / "migrate.py"
VERSIONS = [(step.version, step.name) for step in migrations.core()]


@contextmanager
def migrating(dsns: list[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start one process for each DSN, all connected and waiting for a line."""
    environ = os.environ | {"PYTHONPATH": str(Path(wakeful.__file__).parents[1])}
    command = [sys.executable, str(CHILD)]
    children = [
        subprocess.Popen(
            [*command, dsn],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
        for dsn in dsns
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        yield children
    finally:
        for child in children:
            child.kill()
            child.communicate()


def let_go(children: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    ends = []
    for child in children:
        out, err = child.communicate(timeout=60)
        ends.append((child.returncode, out, err))
    return ends


def recorded(conn: Conn) -> list[tuple[int, str]]:
    return conn.execute("SELECT version, name FROM wakeful.migration WHERE plugin = '' ORDER BY version").fetchall()


def test_six_first_starters_all_succeed_and_one_migrates(empty_database: Database) -> None:
    with migrating([empty_database.dsn] * 6) as children:
        ends = let_go(children)
    everything = " ".join(str(version) for version, _ in VERSIONS) + "\n"
    assert [code for code, _, _ in ends] == [0] * 6, [err for _, _, err in ends]
    assert sorted(out for _, out, _ in ends) == ["\n"] * 5 + [everything]
    assert recorded(empty_database.connect()) == VERSIONS


def test_two_databases_of_one_server_migrate_at_once(server: Server, empty_database: Database) -> None:
    """Roles belong to the whole server."""
    with server.database(migrated=False) as other, migrating([empty_database.dsn, other.dsn] * 2) as children:
        ends = let_go(children)
        assert [code for code, _, _ in ends] == [0] * 4, [err for _, _, err in ends]
        assert recorded(other.connect()) == recorded(empty_database.connect()) == VERSIONS


@pytest.mark.parametrize("kept", [False, True], ids=["first rolls back", "first commits"])
def test_a_migration_waits_for_roles_that_another_database_is_making(own_server: EmbeddedServer, kept: bool) -> None:
    with contextlib.ExitStack() as opened:
        admin = opened.enter_context(contextlib.closing(connections.connect(own_server.dsn, purpose="test")))
        names = [f"one_{kept:d}", f"two_{kept:d}"]
        for name in names:
            admin.execute(f"CREATE DATABASE {name}")
        first, second, watcher = (
            opened.enter_context(
                contextlib.closing(connections.connect(make_conninfo(own_server.dsn, dbname=name), purpose="test"))
            )
            for name in (names[0], names[1], names[1])
        )
        first.execute("BEGIN")
        assert len(migrations.apply(first)) == len(VERSIONS)
        with expect_blocked(lambda: migrations.apply(second), behind=first, watcher=watcher) as blocked:
            first.execute("COMMIT" if kept else "ROLLBACK")
            assert len(blocked.result()) == len(VERSIONS)
        assert recorded(second) == VERSIONS
    with psycopg.connect(own_server.admin_dsn, autocommit=True) as admin:
        for name in names:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        admin.execute("DROP ROLE wakeful_owner, wakeful_scheduler, wakeful_host, wakeful_viewer")


def test_a_repeated_migrate_only_reads(database: Database, statements: Statements) -> None:
    conn = database.connect()
    statements.reset()
    assert migrations.apply(conn) == []
    ran = statements.executed()
    assert len(ran) <= 2
    # PostgreSQL 15 counts a statement with the comment before it.
    assert all(re.sub("^(--.*\n)*", "", one.text).startswith("SELECT") for one in ran)


def test_a_repeated_migrate_delays_no_reader_and_waits_for_no_writer(database: Database, conn: Conn) -> None:
    """Under EXCLUSIVE locks on every table only ACCESS SHARE gets through: no reader is in the way, or delayed."""
    holder = database.connect(autocommit=False)
    tables = holder.execute(
        "SELECT string_agg('wakeful.' || relname, ', ') FROM pg_class"
        " WHERE relnamespace = 'wakeful'::regnamespace AND relkind = 'r'"
    ).fetchone()[0]
    holder.execute(f"SET LOCAL ROLE wakeful_owner; LOCK TABLE {tables} IN EXCLUSIVE MODE; RESET ROLE")
    with (
        pytest.raises(AssertionError, match="finished without waiting"),
        expect_blocked(lambda: migrations.apply(database.connect()), behind=holder, watcher=conn),
    ):
        pytest.fail("a repeated migrate waited")


ADD_COLUMN = PluginMigration("theirs", 1, "note", "ALTER TABLE wakeful.wake ADD COLUMN theirs_note text;")


def test_a_migration_that_cannot_have_its_lock_gives_way(
    database: Database, conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT", "100ms")
    reader = database.connect(autocommit=False)
    reader.execute("SELECT count(*) FROM wakeful.wake")
    before = catalogue(conn)
    with pytest.raises(SchemaMismatch, match="not free within 100ms") as raised:
        migrations.apply(conn, [ADD_COLUMN])
    assert "again" in (raised.value.hint or "")
    assert catalogue(conn) == before
    reader.rollback()
    assert [step.plugin for step in migrations.apply(conn, [ADD_COLUMN])] == ["theirs"]
    assert migrations.apply(conn, [ADD_COLUMN]) == []


def test_a_step_that_fails_keeps_nothing_of_the_call(empty_database: Database) -> None:
    conn = empty_database.connect()
    broken = PluginMigration("theirs", 2, "broken", "CREATE TABLE wakeful.fine (a int); SELECT 1 / 0;")
    with pytest.raises(SchemaMismatch, match="theirs 2 broken"):
        migrations.apply(conn, [ADD_COLUMN, broken])
    assert conn.execute("SELECT to_regnamespace('wakeful')").fetchone() == (None,)
    assert len(migrations.apply(conn, [ADD_COLUMN])) == len(VERSIONS) + 1


def test_a_login_without_the_right_is_told_what_to_do(database: Database) -> None:
    with (
        psycopg.connect(database.login("wakeful_viewer"), autocommit=True) as conn,
        pytest.raises(SchemaMismatch) as raised,
    ):
        migrations.apply(conn, [ADD_COLUMN])
    assert "--print" in (raised.value.hint or "")


def test_the_printed_text_makes_the_very_same_schema(
    server: Server, empty_database: Database, database: Database
) -> None:
    by_hand = empty_database.connect()
    by_hand.execute(migrations.text())
    conn = database.connect()
    assert catalogue(by_hand) == catalogue(conn)
    assert recorded(by_hand) == recorded(conn) == VERSIONS
    assert migrations.apply(by_hand) == []


def test_the_printed_text_holds_plugins_steps_too(empty_database: Database) -> None:
    conn = empty_database.connect()
    conn.execute(migrations.text([PluginMigration("it's", 1, "a 'name'", "SELECT 1;"), ADD_COLUMN]))
    assert migrations.apply(conn, [PluginMigration("it's", 1, "a 'name'", "SELECT 1;"), ADD_COLUMN]) == []


CATALOGUE = {
    "columns": """
        SELECT c.relname, c.relkind, pg_get_userbyid(c.relowner), c.relacl::text, c.relrowsecurity,
               c.relforcerowsecurity, c.reloptions, a.attnum, a.attname,
               format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'wakeful'::regnamespace ORDER BY c.relname, a.attnum""",
    "constraints": """
        SELECT conname, conrelid::regclass::text, contypid::regtype::text, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'wakeful'::regnamespace ORDER BY 1, 2, 3""",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'wakeful' ORDER BY 1",
    "functions": """
        SELECT pg_get_functiondef(oid), pg_get_userbyid(proowner), proacl::text FROM pg_proc
        WHERE pronamespace = 'wakeful'::regnamespace ORDER BY 1""",
    "types": """
        SELECT typname, typtype, pg_get_userbyid(typowner), format_type(typbasetype, typtypmod), typacl::text
        FROM pg_type WHERE typnamespace = 'wakeful'::regnamespace ORDER BY 1""",
    "triggers": """
        SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = 'wakeful'::regnamespace AND NOT tgisinternal ORDER BY 1""",
    "policies": "SELECT * FROM pg_policies WHERE schemaname = 'wakeful' ORDER BY tablename, policyname",
    "schema": "SELECT nspname, pg_get_userbyid(nspowner), nspacl::text FROM pg_namespace WHERE nspname = 'wakeful'",
    "rows": "SELECT (SELECT number FROM wakeful.epoch), (SELECT shift FROM wakeful.clock)",
}


def catalogue(conn: Conn) -> dict[str, Any]:
    found = {name: conn.execute(text).fetchall() for name, text in CATALOGUE.items()}
    assert len(found["functions"]) > 40
    return found
