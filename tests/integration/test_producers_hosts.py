"""Producers in a host's own transaction, through the drivers hosts use.

All arguments arrive as they were given, and a rollback leaves nothing. Every host logs in as a role that may only
execute producers and write its own table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import django
import psycopg
import pytest
import sqlalchemy as sa
from django.conf import settings as django_settings
from django.db import connections as django_connections
from django.db import transaction as django_transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import create_async_engine

import wakeful
from wakeful.producers import ProducerResult, Statement
from wakeful.testing import Database

AT = datetime(2040, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)
PAYLOAD = {"text": 'é %s :x $1 "quoted" \\u0000', "n": [1, 2.5, None, True], "empty": {}}
WAKE = wakeful.request_wake(
    "acme",
    "coder",
    "I-1",
    AT,
    key="k",
    payload=PAYLOAD,
    priority=-7,
    actor="user:ann",
    source="timer",
    estimate=Decimal("0.000001"),
)
AGENT = wakeful.add_agent(
    "acme",
    "second",
    ["python3", "a b", "%s", ":x", 'q"{},'],
    cwd="/tmp",
    env_allow=[],
    env_values={"A": "%:1"},
    max_runtime=None,
    silence_limit=timedelta(seconds=90),
    stop_grace=timedelta(milliseconds=2500),
    max_attempts=2,
    estimate=2,
    labels=["gpu", "é"],
    max_concurrent_runs=4,
)
UNASSIGN = wakeful.assign_issue("acme", "I-1", None, actor="agent:coder")
BUDGET = wakeful.set_budget("acme", "company", Decimal("99.5"), hard_stop=False, warn_percent=50)

Execute = Callable[[Statement], ProducerResult]
HostTransaction = Callable[[Callable[[Execute], None], bool], None]


@pytest.fixture
def host_dsn(database: Database, conn: psycopg.Connection[Any], company: str) -> str:
    """A login with no right but EXECUTE on the producers, and a table of the host's own."""
    dsn = database.login("wakeful_host")
    conn.execute("CREATE TABLE public.notes (text text)")
    conn.execute(f"GRANT ALL ON public.notes TO {database.logins[0]}")
    return dsn


# Each function runs `work` in one transaction of its driver, beside a write of the host's own, and commits or not.


def psycopg_sync(dsn: str, work: Callable[[Execute], None], commit: bool) -> None:
    with psycopg.connect(dsn) as host:
        host.execute("INSERT INTO notes VALUES ('mine')")
        work(lambda call: ProducerResult(*host.execute(*call.psycopg).fetchone()))
        host.commit() if commit else host.rollback()


def psycopg_run(dsn: str, work: Callable[[Execute], None], commit: bool) -> None:
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as host:
        host.execute("INSERT INTO notes VALUES ('mine')")
        work(lambda call: wakeful.run(host, call))
        host.commit() if commit else host.rollback()


def psycopg_client_cursor(dsn: str, work: Callable[[Execute], None], commit: bool) -> None:
    with psycopg.connect(dsn, cursor_factory=psycopg.ClientCursor) as host:
        host.execute("INSERT INTO notes VALUES ('mine')")
        work(lambda call: ProducerResult(*host.execute(*call.psycopg).fetchone()))
        host.commit() if commit else host.rollback()


def sqlalchemy_sync(dsn: str, work: Callable[[Execute], None], commit: bool) -> None:
    engine = sa.create_engine("postgresql+psycopg://", connect_args=keywords(dsn))
    with engine.connect() as host:
        host.execute(sa.text("INSERT INTO notes VALUES ('mine')"))

        def execute(call: Statement) -> ProducerResult:
            text, values = call.sqlalchemy
            return ProducerResult(*host.execute(sa.text(text), values).one())

        work(execute)
        host.commit() if commit else host.rollback()
    engine.dispose()


def sqlalchemy_bound(dsn: str, work: Callable[[Execute], None], commit: bool) -> None:
    """Bound values tell SQLAlchemy their types, and it writes casts for those it knows."""
    engine = sa.create_engine("postgresql+psycopg://", connect_args=keywords(dsn))
    with engine.connect() as host:
        host.execute(sa.text("INSERT INTO notes VALUES ('mine')"))

        def execute(call: Statement) -> ProducerResult:
            text, values = call.sqlalchemy
            return ProducerResult(*host.execute(sa.text(text).bindparams(**values)).one())

        work(execute)
        host.commit() if commit else host.rollback()
    engine.dispose()


def django_cursor(dsn: str, work: Callable[[Execute], None], commit: bool) -> None:
    parts = keywords(dsn)
    configured = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts["dbname"],
        "USER": parts["user"],
        "PASSWORD": parts["password"],
        "HOST": parts["host"],
        "PORT": parts.get("port", ""),
        "TIME_ZONE": None,
    }
    if not django_settings.configured:
        django_settings.configure(DATABASES={"default": {}}, USE_TZ=True, TIME_ZONE="Europe/Berlin")
        django.setup()
    django_connections.databases["host"] = django_connections.configure_settings({"host": configured, "default": {}})[
        "host"
    ]
    try:
        with contextmanager(django_atomic)(commit), django_connections["host"].cursor() as cursor:
            cursor.execute("INSERT INTO notes VALUES ('mine')")

            def execute(call: Statement) -> ProducerResult:
                cursor.execute(*call.django)
                return ProducerResult(*cursor.fetchone())

            work(execute)
    finally:
        django_connections["host"].close()
        del django_connections["host"]
        del django_connections.databases["host"]


def django_atomic(commit: bool) -> Iterator[None]:
    with django_transaction.atomic(using="host"):
        yield
        if not commit:
            django_transaction.set_rollback(True, using="host")


def keywords(dsn: str) -> dict[str, Any]:
    return {key: value for key, value in conninfo_to_dict(dsn).items() if value is not None}


HOSTS = [psycopg_sync, psycopg_run, psycopg_client_cursor, sqlalchemy_sync, sqlalchemy_bound, django_cursor]

# Async drivers run the same work as one list of statements, since `work` cannot await.


@asynccontextmanager
async def psycopg_async(dsn: str, commit: bool) -> AsyncIterator[Callable[[Statement], Any]]:
    async with await psycopg.AsyncConnection.connect(dsn) as host:
        await host.execute("INSERT INTO notes VALUES ('mine')")

        async def execute(call: Statement) -> Any:
            return await (await host.execute(*call.psycopg)).fetchone()

        yield execute
        await (host.commit() if commit else host.rollback())


@asynccontextmanager
async def asyncpg_native(dsn: str, commit: bool) -> AsyncIterator[Callable[[Statement], Any]]:
    host = await asyncpg.connect(**asyncpg_keywords(dsn))
    outer = host.transaction()
    await outer.start()
    await host.execute("INSERT INTO notes VALUES ('mine')")

    async def execute(call: Statement) -> Any:
        text, values = call.numbered
        return await host.fetchrow(text, *values)

    yield execute
    await (outer.commit() if commit else outer.rollback())
    await host.close()


def asyncpg_keywords(dsn: str) -> dict[str, Any]:
    parts = keywords(dsn)
    parts["database"] = parts.pop("dbname")
    return {key: parts[key] for key in ("host", "port", "user", "password", "database") if key in parts}


def sqlalchemy_async(driver: str) -> Callable[[str, bool], Any]:
    @asynccontextmanager
    async def opened(dsn: str, commit: bool) -> AsyncIterator[Callable[[Statement], Any]]:
        given = asyncpg_keywords(dsn) if driver == "asyncpg" else keywords(dsn)
        engine = create_async_engine(f"postgresql+{driver}://", connect_args=given)
        async with engine.connect() as host:
            await host.execute(sa.text("INSERT INTO notes VALUES ('mine')"))

            async def execute(call: Statement) -> Any:
                text, values = call.sqlalchemy
                return (await host.execute(sa.text(text), values)).one()

            yield execute
            await (host.commit() if commit else host.rollback())
        await engine.dispose()

    return opened


ASYNC_HOSTS = {
    "psycopg": psycopg_async,
    "asyncpg": asyncpg_native,
    "sqlalchemy psycopg": sqlalchemy_async("psycopg"),
    "sqlalchemy asyncpg": sqlalchemy_async("asyncpg"),
}
CALLS = [AGENT, WAKE, UNASSIGN, BUDGET]


def check_results(results: list[ProducerResult]) -> None:
    agent, wake, unassigned, budget = results
    assert (agent.outcome, agent.state) == ("inserted", "active")
    assert (wake.outcome, wake.state, str(wake.wake)[14]) == ("inserted", "deferred", "7")
    assert unassigned.outcome == "merged"
    assert budget == ProducerResult("inserted", None, None, None)


def check_stored(conn: psycopg.Connection[Any], kept: bool) -> None:
    assert conn.execute("SELECT count(*) FROM public.notes").fetchone() == (int(kept),)
    row = conn.execute(
        "SELECT due_at, payload, priority, estimate, actor_kind, actor, source, key FROM wakeful.wake"
    ).fetchone()
    assert row == ((AT, PAYLOAD, -7, Decimal("0.000001"), "user", "ann", "timer", "k") if kept else None)
    row = conn.execute(
        "SELECT command, env_allow, env_values, max_runtime, silence_limit, stop_grace, max_attempts, labels"
        " FROM wakeful.agent WHERE id = 'second'"
    ).fetchone()
    wanted = (
        ["python3", "a b", "%s", ":x", 'q"{},'],
        [],
        {"A": "%:1"},
        None,
        timedelta(seconds=90),
        timedelta(seconds=2.5),
        2,
        ["gpu", "é"],
    )
    assert row == (wanted if kept else None)
    issue = conn.execute("SELECT assignee FROM wakeful.issue").fetchone()
    assert issue == ((None,) if kept else None)
    assert conn.execute("SELECT hard_stop, amount FROM wakeful.budget").fetchone() == (
        (False, Decimal("99.5")) if kept else None
    )


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.__name__)
def test_host(host: Any, commit: bool, host_dsn: str, conn: psycopg.Connection[Any], listener: Any) -> None:
    results: list[ProducerResult] = []
    host(host_dsn, lambda execute: results.extend(execute(call) for call in CALLS), commit)
    check_results(results)
    check_stored(conn, commit)
    assert bool(listener.heard()) == commit


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("name", ASYNC_HOSTS)
def test_async_host(name: str, commit: bool, host_dsn: str, conn: psycopg.Connection[Any], listener: Any) -> None:
    async def main() -> list[ProducerResult]:
        async with ASYNC_HOSTS[name](host_dsn, commit) as execute:
            return [ProducerResult(*await execute(call)) for call in CALLS]

    check_results(asyncio.run(main()))
    check_stored(conn, commit)
    assert bool(listener.heard()) == commit


def test_another_language_calls_it_directly(host_dsn: str, conn: psycopg.Connection[Any]) -> None:
    with psycopg.connect(host_dsn, autocommit=True) as host:
        row = host.execute(
            "SELECT (wakeful.request_wake('acme', agent => 'coder', payload => '{\"a\": 1}', at => '2040-01-01Z')).*"
        ).fetchone()
    assert row[0] == "inserted"
