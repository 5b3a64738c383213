"""Schema migrations: numbered ``.sql`` files, applied once, forward only.

Six first starters at once are safe: a transaction-scoped advisory lock is taken before the version is read.
A repeated migrate only reads, so it delays nobody. ``text`` is for hosts that run migrations with a tool of
their own. Rolling upgrades: schema N serves code N and N-1 (expand, then contract).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection

from wakeful import store
from wakeful.errors import DatabaseUnavailable, SchemaMismatch

if TYPE_CHECKING:
    from wakeful.owners import PluginMigration

OLDEST_SERVER = 150000
# A migration that cannot have its locks soon gives way instead of queueing everybody behind it.
LOCK_TIMEOUT = "5s"
# Waiting for another migration is no such lock: it ends, or its connection does.
TURN_TIMEOUT = "120s"


@dataclass(frozen=True, slots=True, order=True)
class Migration:
    """One step: the core's have an empty plugin name."""

    plugin: str
    version: int
    name: str
    text: str


def core() -> list[Migration]:
    """Return the core's migrations in order."""
    found = []
    for entry in files("wakeful").joinpath("sql", "migrations").iterdir():
        number, _, rest = entry.name.partition("_")
        if entry.name.endswith(".sql"):
            found.append(Migration("", int(number), rest.removesuffix(".sql"), entry.read_text(encoding="utf-8")))
    return sorted(found)


def all_of(plugins: Iterable[PluginMigration]) -> list[Migration]:
    """Return the core's migrations followed by the plugins' own, each plugin's in its order."""
    return core() + sorted(Migration(p.plugin, p.version, p.name, p.text) for p in plugins)


def text(plugins: Iterable[PluginMigration] = ()) -> str:
    """Return all SQL as one script, for a host's own migration tool."""
    parts = ["BEGIN;", _roles(), f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}';"]
    for step in all_of(plugins):
        parts.append(f"-- {step.plugin or 'wakeful'} {step.version:04d} {step.name}\n{step.text}")
        record = {"plugin": _literal(step.plugin), "version": step.version, "name": _literal(step.name)}
        parts.append(f"{store.query('migrations.record')};" % record)
    return "\n\n".join([*parts, "COMMIT;"]) + "\n"


def pending(conn: Connection[Any], steps: Sequence[Migration]) -> list[Migration]:
    """Return the steps not yet applied; reads only."""
    if not store.run(conn, "migrations.has_journal").fetchall()[0].found:
        return list(steps)
    done = {(row.plugin, row.version) for row in store.run(conn, "migrations.applied")}
    return [step for step in steps if (step.plugin, step.version) not in done]


def apply(conn: Connection[Any], plugins: Iterable[PluginMigration] = ()) -> list[Migration]:
    """Apply what is missing, in one transaction, and return it.

    Arguments:
        conn: an autocommit connection of a login that may create roles (or finds them made) and a schema.
        plugins: further migrations, after the core's.

    Raises:
        SchemaMismatch: a step failed; nothing of this call was kept.
        DatabaseUnavailable: the server is older than PostgreSQL 15.
    """
    if conn.info.server_version < OLDEST_SERVER:
        raise DatabaseUnavailable(
            f"the server is PostgreSQL {conn.info.server_version // 10000}; wakeful needs 15 or newer",
            hint="name a newer server in WAKEFUL_DSN, or unset it for the embedded one",
        )
    steps = all_of(plugins)
    try:
        if not pending(conn, steps):
            return []
        with conn.transaction():
            store.run(conn, "migrations.give_up_after", {"timeout": TURN_TIMEOUT})
            store.run(conn, "migrations.take_turn")
            missing = pending(conn, steps)
            if missing:
                conn.execute(_roles())
            store.run(conn, "migrations.give_up_after", {"timeout": LOCK_TIMEOUT})
            for step in missing:
                _apply(conn, step)
            return missing
    except psycopg.errors.LockNotAvailable as error:
        raise SchemaMismatch(
            f"a lock that the migration needs was not free within {LOCK_TIMEOUT}",
            hint="run `wakeful migrate` again when long transactions on the wakeful tables have ended",
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaMismatch(
            f"this login may not migrate: {error.diag.message_primary}",
            hint="let an administrator run the output of `wakeful migrate --print`",
        ) from error


def _apply(conn: Connection[Any], step: Migration) -> None:
    try:
        conn.execute(step.text)
        record = {"plugin": step.plugin, "version": step.version, "name": step.name}
        store.run(conn, "migrations.record", record)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.InsufficientPrivilege):
        raise
    except psycopg.Error as error:
        cause = error.diag.message_primary or "the connection was lost"
        raise SchemaMismatch(
            f"migration {step.plugin or 'wakeful'} {step.version} {step.name} failed: {cause}",
            hint="nothing of it was kept; run `wakeful migrate` again when the cause is gone",
        ) from error


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _roles() -> str:
    return files("wakeful").joinpath("sql", "roles.sql").read_text(encoding="utf-8")
