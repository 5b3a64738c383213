"""Rows as other parts of wakeful would have made them, and looks at rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from wakeful import producers
from wakeful.producers import Statement

Conn = psycopg.Connection[Any]


def say(conn: Conn, *statements: Statement) -> None:
    """Run producers, one after another."""
    for statement in statements:
        producers.run(conn, statement)


def request(conn: Conn, issue: str | None = "I-1", *, agent: str = "coder", **arguments: Any) -> UUID:
    """Ask for a wake and return it."""
    made = producers.run(conn, producers.request_wake("acme", agent, issue, **arguments)).wake
    assert made is not None
    return made


def audits(conn: Conn) -> int:
    return conn.execute("SELECT count(*) FROM wakeful.audit").fetchone()[0]


def wake_of(conn: Conn, wake: UUID) -> Any:
    cursor = conn.cursor(row_factory=psycopg.rows.namedtuple_row)
    return cursor.execute("SELECT * FROM wakeful.wake WHERE id = %s", (wake,)).fetchone()


def linked_run(conn: Conn, wake: UUID, state: str = "queued") -> UUID:
    """Make the run that an admission would have made for the wake."""
    [run] = conn.execute(
        "INSERT INTO wakeful.run (company, agent, issue, wake, attempt, state, project)"
        " SELECT company, agent, issue, id, %s, %s, project FROM wakeful.wake WHERE id = %s RETURNING id",
        (0 if state == "queued" else 1, state, wake),
    ).fetchone()
    conn.execute(
        "UPDATE wakeful.wake SET state = 'linked', run = %s, ended_at = wakeful.now(), due_at = NULL WHERE id = %s",
        (run, wake),
    )
    return run


def end_run(conn: Conn, run: UUID, state: str = "failed") -> None:
    conn.execute("UPDATE wakeful.run SET state = %s, ended_at = wakeful.now() WHERE id = %s", (state, run))


def after(conn: Conn, seconds: float) -> datetime:
    """The moment so many seconds from the real time, as the database has it."""
    (moment,) = conn.execute("SELECT wakeful.wall() + make_interval(secs => %s)", (seconds,)).fetchone() or (None,)
    assert isinstance(moment, datetime)
    return moment


def count(conn: Conn, where: str) -> int:
    """How many wakes there are of which that is true."""
    (found,) = conn.execute(f"SELECT count(*) FROM wakeful.wake WHERE {where}").fetchone() or (0,)  # noqa: S608 - a test's own words
    return int(found)
