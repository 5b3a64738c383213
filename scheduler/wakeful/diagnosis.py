"""What wakeful needs of its surroundings, tried out for real: each check says what was found, and what would help."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import psycopg

from wakeful import migrations, standings, store
from wakeful.config import Config
from wakeful.connections import connect
from wakeful.database_errors import translated
from wakeful.errors import WakefulError

Verdict = Literal["ok", "warning", "failed"]
Connection = psycopg.Connection[Any]

_PING = timedelta(seconds=5)
_SKEW = timedelta(seconds=2)
_ROOM = 256 << 20
_POOLER = "name a direct connection in WAKEFUL_LISTEN_DSN: a pooler in transaction mode cannot do this"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. A warning stops nothing; a failure does."""

    name: str
    verdict: Verdict
    found: str
    remedy: str | None = None


def data_directory(path: Path) -> Check:
    """Check that the data directory, or the place where it will be made, is this account's alone and has room."""
    name = "data directory"
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        found = there.stat()
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Check(name, "failed", f"{there}: {error.strerror}", "choose another with --data or WAKEFUL_DATA")
    if not stat.S_ISDIR(found.st_mode) or not os.access(there, os.W_OK | os.X_OK):
        return Check(name, "failed", f"{there} cannot be written to", "choose another with --data or WAKEFUL_DATA")
    if there == path and found.st_mode & 0o022:
        return Check(name, "failed", f"others may write to {path}", f"chmod go-w {path}")
    if free < _ROOM:
        return Check(name, "warning", f"{path} has {free >> 20} MiB left", "free some space")
    return Check(name, "ok", str(path) if there == path else f"{path}, to be made")


def database(config: Config, dsn: str, owners: Iterable[str] | None = None) -> Iterator[Check]:
    """Check a server, step by step; what depends on a step that failed is left out.

    Arguments:
        config: for ``listen_dsn``.
        dsn: the server, the embedded one's included.
        owners: whose wakes the plugins of this process look after; None where that is not known.
    """
    try:
        conn = connect(dsn, purpose="doctor")
    except WakefulError as error:
        yield Check("database", "failed", error.message, error.hint)
        return
    with conn:
        for probe in (_server, _login, _schema):
            check = _tried(probe, conn)
            yield check
            if check.verdict == "failed":
                return
        yield _tried(_row_security, conn)
        yield _tried(_skip_locked, conn, dsn)
        yield from _control(config.listen_dsn or dsn)
        yield _tried(_queue, conn)
        yield _tried(_clock, conn)
        yield _tried(_schedulers, conn)
        yield from _brakes(conn)
        yield from _orphans(conn, owners)


def _tried(probe: Callable[..., Check], *arguments: object) -> Check:
    """Run one probe; what it raises is its finding."""
    name = probe.__name__.strip("_").replace("_", " ")
    try:
        with translated():
            return probe(*arguments)
    except WakefulError as error:
        return Check(name, "failed", error.message, error.hint)
    except psycopg.Error as error:
        return Check(name, "failed", f"the server refused the probe ({type(error).__name__})")


def _row(conn: Connection, name: str, **params: object) -> Any:
    return store.run(conn, f"doctor.{name}", params, prepare=False).fetchone()


def _server(conn: Connection) -> Check:
    row = _row(conn, "server")
    if row.number < migrations.OLDEST_SERVER:
        return Check("server", "failed", f"PostgreSQL {row.version}", "wakeful needs PostgreSQL 15 or newer")
    return Check("server", "ok", f"PostgreSQL {row.version}")


def _login(conn: Connection) -> Check:
    row = _row(conn, "login")
    if len(row.roles) < 4:
        return Check("login", "failed", "wakeful's roles are missing", "run: wakeful migrate")
    if row.unbound:
        remedy = "use a login that is no superuser and has the role: GRANT wakeful_scheduler TO <login>"
        return Check("login", "warning", "row-level security does not bind this login", remedy)
    if "wakeful_scheduler" not in row.held:
        held = ", ".join(row.held) or "none of wakeful's roles"
        return Check("login", "failed", f"has {held}", "a scheduler needs: GRANT wakeful_scheduler TO <login>")
    return Check("login", "ok", f"bound by row-level security; has {', '.join(row.held)}")


def _schema(conn: Connection) -> Check:
    missing = migrations.pending(conn, migrations.core())
    if missing:
        return Check("schema", "failed", f"{len(missing)} migrations are missing", "run: wakeful migrate")
    return Check("schema", "ok", f"version {migrations.core()[-1].version}")


def _row_security(conn: Connection) -> Check:
    names = [row.name for row in store.run(conn, "doctor.unforced", prepare=False)]
    if names:
        return Check("row security", "failed", f"not forced on {len(names)} tables", "restore it: ALTER TABLE … FORCE")
    return Check("row security", "ok", "forced on every table")


def _skip_locked(conn: Connection, dsn: str) -> Check:
    with connect(dsn, purpose="doctor") as other, conn.transaction():
        _row(conn, "hold_row")
        seen = _row(other, "skip_row")
    if seen is not None:
        return Check("skip locked", "failed", "a locked row was not skipped", "use a real PostgreSQL server")
    return Check("skip locked", "ok", "a row that another session has locked is skipped")


def _control(dsn: str) -> Iterator[Check]:
    """Check what the control session needs: notifications, and locks that stay with the session."""
    try:
        with connect(dsn, purpose="doctor") as one, connect(dsn, purpose="doctor") as other:
            yield _tried(notifications, one, other)
            yield _tried(session_locks, one, other)
    except WakefulError as error:
        yield Check("control session", "failed", error.message, error.hint)


def notifications(listener: Connection, sender: Connection, within: timedelta = _PING) -> Check:
    """Check that what one session notifies reaches another one that listens."""
    token = secrets.token_hex(8)
    store.run(listener, "doctor.listen")
    _row(sender, "ping", token=token)
    for notification in listener.notifies(timeout=within.total_seconds(), stop_after=1):
        if notification.payload == token:
            return Check("notifications", "ok", "a NOTIFY of one session reached another")
    return Check("notifications", "failed", f"no NOTIFY arrived within {within.total_seconds():g} s", _POOLER)


def session_locks(one: Connection, other: Connection) -> Check:
    """Check that an advisory lock stays with the session that took it, across statements."""
    token = "wakeful doctor " + secrets.token_hex(8)
    held = _row(one, "try_lock", token=token).held
    taken = _row(other, "try_lock", token=token).held
    kept = _row(one, "unlock", token=token).freed
    if taken:
        _row(other, "unlock", token=token)
    if not held or taken or not kept:
        return Check("session locks", "failed", "an advisory lock did not stay with its session", _POOLER)
    return Check("session locks", "ok", "an advisory lock stays with its session")


def _queue(conn: Connection) -> Check:
    usage = float(_row(conn, "queue").usage)
    verdict: Verdict = "failed" if usage > 0.9 else "warning" if usage > 0.5 else "ok"
    remedy = None if verdict == "ok" else "a session listens and reads nothing: find it in pg_stat_activity"
    return Check("notification queue", verdict, f"{usage:.0%} full", remedy)


def _clock(conn: Connection) -> Check:
    before = datetime.now(UTC)
    at = _row(conn, "server").at
    after = datetime.now(UTC)
    skew = at - (before + (after - before) / 2)
    words = (
        f"this host is {abs(skew.total_seconds()):.3f} s {'behind' if skew > timedelta() else 'ahead of'} the server"
    )
    if abs(skew) > _SKEW:
        return Check("clock", "warning", words, "synchronise the clocks; wakeful itself goes by the server's")
    return Check("clock", "ok", words)


def _schedulers(conn: Connection) -> Check:
    silent = [f"{row.host} ({row.runs} runs)" for row in store.run(conn, "doctor.hosts", prepare=False)]
    if silent:
        return Check(
            "schedulers", "warning", f"nobody renews the runs of {', '.join(silent)}", "start `wakeful up` there"
        )
    if not _row(conn, "owners_lock").holders:
        return Check("schedulers", "warning", "none is at work on this database", "start `wakeful up`")
    return Check("schedulers", "ok", "one has the owners' lock, and every live run is renewed")


def _brakes(conn: Connection) -> Iterator[Check]:
    with translated():
        names = [row.name for row in store.run(conn, "explain.brakes", prepare=False)]
    for name in names:
        if name != "unowned":  # the schedulers' own check says that
            yield Check("settings", "warning", standings.BRAKES[name])


def _orphans(conn: Connection, owners: Iterable[str] | None) -> Iterator[Check]:
    if owners is None:
        return
    with translated():
        rows = store.run(conn, "window.owners", {"known": list(owners)}, prepare=False).fetchall()
    if rows:
        whose = ", ".join(sorted(row.owner for row in rows))
        remedy = "install that plugin where `wakeful up` runs, and start it again"
        yield Check("wakes", "warning", f"no plugin here looks after the wakes of {whose}", remedy)
