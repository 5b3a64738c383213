"""Runs of the company ``acme`` in a wanted state, and what is left of them. For tests of claims and terminals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from wakeful.claims import Claimant
from wakeful.executions import EndClass, ExitReport, Grade, Output, RunKey

Conn = psycopg.Connection[Any]
DATA = "d" * 32


def claimant(name: str = "one", **changes: Any) -> Claimant:
    fields = {"host": "here", "claimer": f"{DATA}/{name}", "labels": (), "executors": ("local",), "lease": 60.0}
    return Claimant(**fields | changes)


def queued(conn: Conn, issue: str | None = None, **columns: Any) -> UUID:
    """Insert a queued run."""
    if issue is not None:
        conn.execute("SELECT wakeful.create_issue('acme', %s)", (issue,))
    values = {"company": "acme", "agent": "coder", "issue": issue, **columns}
    text = (
        f"INSERT INTO wakeful.run ({', '.join(values)}) VALUES ({', '.join(f'%({n})s' for n in values)}) RETURNING id"  # noqa: S608 - our own names
    )
    row = conn.execute(text, values).fetchone()
    assert row is not None
    return row[0]


def row(conn: Conn, run: UUID) -> dict[str, Any]:
    with conn.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute("SELECT *, xmin::text AS version FROM wakeful.run WHERE id = %s", (run,)).fetchone()
    assert found is not None
    return found


def value(conn: Conn, text: str, *arguments: Any) -> Any:
    """Return the one value that a query answers."""
    found = conn.execute(text, arguments).fetchone()
    assert found is not None
    return found[0]


def report(key: RunKey, exit_code: int | None = 0, grade: Grade = Grade.CONTAINED, **changes: Any) -> ExitReport:
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    output = Output(f"/data/runs/{key.run}/stdout", 4, "f" * 64, "said")
    fields = {"signal": None, "ended_by": None, "started_at": moment, "ended_at": moment}
    return ExitReport(key, exit_code, **fields | {"grade": grade, "stdout": output, "stderr": output} | changes)


STOPPED = EndClass.STOPPED
