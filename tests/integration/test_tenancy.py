"""Who may see and do what: row-level security, the four roles, and attacks on the producers' rights."""

# ruff: noqa: S608 - table names are this file's own

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors

import wakeful
from wakeful import listings
from wakeful.errors import DatabaseUnavailable, NotFound
from wakeful.testing import Database

Conn = psycopg.Connection[Any]
TENANT_TABLES = [
    *("company", "project", "agent", "issue", "run", "wake", "wake_key", "budget", "spend", "reservation", "audit"),
    *("refused_report", "recovery_action"),
]


@pytest.fixture
def two(database: Database, conn: Conn) -> dict[str, Any]:
    """Companies a and b with a row in each table; the wakes by company."""
    wakes = {}
    for name in ("a", "b"):
        wakeful.run(conn, wakeful.add_company(name))
        wakeful.run(conn, wakeful.add_project(name, "p"))
        wakeful.run(conn, wakeful.add_agent(name, "coder", ["true"]))
        wakeful.run(conn, wakeful.set_budget(name, "company", 5))
        wakeful.run(conn, wakeful.add_spend(name, 1))
        wakes[name] = wakeful.run(conn, wakeful.request_wake(name, "coder", "I-1", key="k")).wake
        [run] = conn.execute(
            "INSERT INTO wakeful.run (company, agent) VALUES (%s, 'coder') RETURNING id", (name,)
        ).fetchone()
        conn.execute(
            "INSERT INTO wakeful.reservation (company, run, policy, amount) VALUES (%s, %s, 'company', 1)", (name, run)
        )
        conn.execute(
            "INSERT INTO wakeful.refused_report (company, run, generation, report) VALUES (%s, %s, 1, '{}')",
            (name, run),
        )
        conn.execute("INSERT INTO wakeful.recovery_action (company, run, cause) VALUES (%s, %s, 'x')", (name, run))
    return wakes


@pytest.fixture
def viewer(database: Database, two: Any) -> Any:
    """A real login that may only read."""
    with psycopg.connect(database.login("wakeful_viewer"), autocommit=True) as opened:
        yield opened


@pytest.fixture
def host(database: Database, two: Any) -> Any:
    """A real login that may only execute producers."""
    with psycopg.connect(database.login("wakeful_host"), autocommit=True) as opened:
        yield opened


def test_every_table_of_the_schema_is_under_forced_row_level_security(conn: Conn) -> None:
    rows = conn.execute(
        "SELECT relname, relrowsecurity, relforcerowsecurity, EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid)"
        " FROM pg_class c WHERE relnamespace = 'wakeful'::regnamespace AND relkind IN ('r', 'p')"
    ).fetchall()
    assert {name for name, *_ in rows} >= set(TENANT_TABLES)
    assert [row for row in rows if row[1:] != (True, True, True)] == []


def test_every_tenants_table_has_the_same_two_policies(conn: Conn) -> None:
    conn.execute("SET search_path = wakeful, pg_catalog")
    rows = conn.execute(
        "SELECT c.relname, p.policyname, p.roles::text[], p.cmd, p.permissive, p.qual, p.with_check FROM pg_class c"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'company'"
        " LEFT JOIN pg_policies p ON p.schemaname = 'wakeful' AND p.tablename = c.relname"
        " WHERE c.relnamespace = 'wakeful'::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1, 2"
    ).fetchall()
    own = "((company)::text = tenant())"
    wanted = [
        ("scheduler", ["wakeful_scheduler"], "ALL", "PERMISSIVE", "true", "true"),
        ("tenant", ["public"], "ALL", "PERMISSIVE", own, own),
    ]
    tables = {row[0] for row in rows}
    assert tables >= set(TENANT_TABLES)
    for table in tables:
        assert [row[1:] for row in rows if row[0] == table] == wanted, table


def test_no_role_of_the_schema_may_log_in_or_bypass(conn: Conn) -> None:
    rows = conn.execute(
        "SELECT rolname, rolcanlogin, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles"
        " WHERE rolname IN ('wakeful_owner', 'wakeful_scheduler', 'wakeful_host', 'wakeful_viewer')"
    ).fetchall()
    assert len(rows) == 4
    assert [row for row in rows if any(row[1:])] == []


@pytest.mark.parametrize("table", TENANT_TABLES)
def test_a_viewer_sees_its_company_and_no_other(viewer: Conn, table: str) -> None:
    count = f"SELECT count(*), count(*) FILTER (WHERE company = 'a') FROM wakeful.{table}"
    assert viewer.execute(count).fetchone() == (0, 0)
    viewer.execute("SET wakeful.company = ''")
    assert viewer.execute(count).fetchone() == (0, 0)
    viewer.execute("SET wakeful.company = 'a'")
    all_rows, own = viewer.execute(count).fetchone()
    assert all_rows == own > 0
    for change in (
        f"DELETE FROM wakeful.{table}",
        f"UPDATE wakeful.{table} SET company = 'a'",
        f"LOCK wakeful.{table}",
    ):
        with pytest.raises(errors.InsufficientPrivilege), viewer.transaction():
            viewer.execute(change)


def test_a_viewer_reads_the_names_of_an_agents_variables_and_not_their_values(viewer: Conn, conn: Conn) -> None:
    secrets = {"TOKEN": "secret", "COLOUR": "red"}
    wakeful.run(conn, wakeful.add_agent("a", "rich", ["true"], env_values=secrets))
    viewer.execute("SET wakeful.company = 'a'")
    found = listings.one(viewer, "agents", "a", "rich")
    assert sorted(found["env_values"]) == ["COLOUR", "TOKEN"]
    for query in ("SELECT env_values FROM wakeful.agent", "SELECT a FROM wakeful.agent a", "TABLE wakeful.agent"):
        with pytest.raises(errors.InsufficientPrivilege):
            viewer.execute(query)


def test_a_viewer_of_no_company_sees_nothing_of_the_instance(viewer: Conn) -> None:
    assert viewer.execute("SELECT count(*) FROM wakeful.migration").fetchone() == (0,)
    viewer.execute("SET wakeful.company = 'a'")
    assert viewer.execute("SELECT count(*) > 0 FROM wakeful.migration").fetchone() == (True,)


def test_the_tenant_of_a_transaction_does_not_outlive_it(viewer: Conn) -> None:
    """A pool lends one connection to the next caller."""
    with viewer.transaction():
        viewer.execute("SELECT set_config('wakeful.company', 'a', true)")
        assert viewer.execute("SELECT count(*) FROM wakeful.wake").fetchone() == (1,)
    assert viewer.execute("SELECT count(*) FROM wakeful.wake").fetchone() == (0,)


def test_a_producer_leaves_no_tenant_behind(host: Conn) -> None:
    wakeful.run(host, wakeful.pause_company("a"))
    assert host.execute("SELECT coalesce(current_setting('wakeful.company', true), '')").fetchone() == ("",)
    with host.transaction():
        wakeful.run(host, wakeful.assign_issue("a", "I-1", "user:ann"))
        assert host.execute("SELECT current_setting('wakeful.company', true)").fetchone() == ("",)


def test_a_hosts_own_tenant_setting_is_left_as_it_was(host: Conn) -> None:
    with host.transaction():
        host.execute("SET LOCAL wakeful.company = 'mine'")
        wakeful.run(host, wakeful.assign_issue("a", "I-1", "agent:coder"))
        assert host.execute("SELECT current_setting('wakeful.company')").fetchone() == ("mine",)
        with pytest.raises(NotFound), host.transaction():
            wakeful.run(host, wakeful.stop_run("a", UUID(int=7)))
        assert host.execute("SELECT current_setting('wakeful.company')").fetchone() == ("mine",)


def test_another_tenants_ids_do_not_exist(host: Conn, two: dict[str, Any]) -> None:
    for call in (
        wakeful.retire_wake("b", two["a"]),
        wakeful.rearm_wake("b", two["a"]),
        wakeful.request_retry("b", two["a"]),
        wakeful.stop_run("b", two["a"]),
    ):
        with pytest.raises(NotFound):
            wakeful.run(host, call)
    assert wakeful.run(host, wakeful.request_wake("b", "coder", key="k")).wake == two["b"]


def test_a_host_executes_producers_and_touches_no_table(host: Conn) -> None:
    assert wakeful.run(host, wakeful.request_wake("a", "coder")).outcome == "inserted"
    for table in [*TENANT_TABLES, "setting", "host", "epoch", "migration", "instance_audit"]:
        for attempt in ("SELECT FROM wakeful.{}", "DELETE FROM wakeful.{}", "TRUNCATE wakeful.{}"):
            with pytest.raises(errors.InsufficientPrivilege):
                host.execute(attempt.format(table))
    with pytest.raises(errors.InsufficientPrivilege):
        host.execute("UPDATE wakeful.clock SET shift = '1 day'")
    with pytest.raises(errors.InsufficientPrivilege):
        host.execute("CREATE TABLE wakeful.mine (a int)")


def test_the_inner_functions_are_nobodys(conn: Conn, host: Conn) -> None:
    inner = conn.execute(
        "SELECT p.oid, p.proname FROM pg_proc p WHERE pronamespace = 'wakeful'::regnamespace"
        " AND NOT prosecdef AND prorettype <> 'trigger'::regtype AND proname NOT IN"
        " ('now', 'wall', 'uuid7', 'tenant', 'window_start', 'spent', 'reserved')"
    ).fetchall()
    assert len(inner) > 15
    may = "SELECT has_function_privilege(%s::oid, 'EXECUTE')"
    allowed = [name for oid, name in inner if host.execute(may, (oid,)).fetchone()[0]]
    assert allowed == []
    public = conn.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'wakeful'::regnamespace"
        " AND has_function_privilege('public', oid, 'EXECUTE')"
    ).fetchall()
    assert public == []


def test_a_login_without_the_role_is_told_how_to_get_it(database: Database, two: Any) -> None:
    with psycopg.connect(database.login("wakeful_viewer"), autocommit=True) as stranger:
        with pytest.raises(DatabaseUnavailable) as raised:
            wakeful.run(stranger, wakeful.pause_company("a"))
        assert "wakeful_host" in (raised.value.hint or "")
        assert "pause_company" not in raised.value.message


def test_producers_run_as_the_owner_with_a_fixed_path(conn: Conn) -> None:
    rows = conn.execute(
        "SELECT proname, pg_get_userbyid(proowner), proconfig FROM pg_proc"
        " WHERE pronamespace = 'wakeful'::regnamespace AND prosecdef"
    ).fetchall()
    assert len(rows) >= 23
    wrong = [row for row in rows if row[1:] != ("wakeful_owner", ["search_path=pg_catalog, pg_temp"])]
    assert wrong == []


def test_a_callers_search_path_changes_nothing(database: Database, conn: Conn, two: Any) -> None:
    """The caller puts functions, operators, types and tables of its own before the system's."""
    dsn = database.login("wakeful_host")
    conn.execute("CREATE SCHEMA evil")
    conn.execute("GRANT ALL ON SCHEMA evil TO PUBLIC")
    with psycopg.connect(dsn, autocommit=True) as host:
        trap = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trapped'; END $$"
        for schema in ("evil", "pg_temp"):
            for signature, returns in (
                ("length(text)", "integer"), ("format(text, VARIADIC text[])", "text"), ("now()", "timestamptz"),
                ("set_config(text, text, boolean)", "text"), ("pg_notify(text, text)", "void"),
                ("jsonb_build_object(VARIADIC text[])", "jsonb"), ("octet_length(text)", "integer"),
                ("hashtextextended(text, bigint)", "bigint"), ("split_part(text, text, integer)", "text"),
                ("same(text, text)", "boolean"),
            ):  # fmt: skip
                host.execute(f"CREATE FUNCTION {schema}.{signature} RETURNS {returns} {trap}")
            host.execute(f"CREATE OPERATOR {schema}.= (LEFTARG = text, RIGHTARG = text, FUNCTION = {schema}.same)")
            host.execute(f"CREATE OPERATOR {schema}.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = {schema}.same)")
            host.execute(f"CREATE DOMAIN {schema}.text AS pg_catalog.text CHECK (false)")
            for table in ("wake", "company", "agent", "setting"):
                host.execute(f"CREATE TABLE {schema}.{table} (company pg_catalog.text)")
        host.execute("SET search_path = evil, pg_temp, wakeful, pg_catalog")
        with pytest.raises(psycopg.DatabaseError, match="trapped"):
            host.execute("SELECT evil.now()")
        for call in (
            wakeful.request_wake("a", "coder", "I-2", key="x", payload={"a": 1}, actor="user:ann"),
            wakeful.assign_issue("a", "I-3", "agent:coder"),
            wakeful.set_budget("a", "agent:coder", 7),
            wakeful.add_spend("a", 1, agent="coder"),
            wakeful.pause_company("a"),
            wakeful.resume_company("a"),
            wakeful.set_setting("draining", False),
        ):
            assert wakeful.run(host, call).outcome in ("inserted", "merged")
    assert conn.execute("SELECT count(*) FROM wakeful.wake WHERE company = 'a'").fetchone() == (3,)


def test_the_scheduler_crosses_companies_by_policy_alone(database: Database, two: Any) -> None:
    with psycopg.connect(database.login("wakeful_scheduler"), autocommit=True) as scheduler:
        rows = scheduler.execute("SELECT DISTINCT company FROM wakeful.wake ORDER BY 1").fetchall()
        assert rows == [("a",), ("b",)]
        with pytest.raises(errors.InsufficientPrivilege):
            scheduler.execute("DELETE FROM wakeful.migration")
