"""What it costs a host to save a request, against the bare INSERT of the same row and its NOTIFY."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import stage
import statements
from psycopg.types.json import Jsonb
from row import Row, paired
from stage import COMPANY, Stage

from wakeful.testing import Server


def rows(server: Server, *, quick: bool) -> list[Row]:
    """Save requests one by one, each committed alone, and many in one transaction, pipelined."""
    singles, many, rounds = (20, 100, 1) if quick else (500, 2000, 7)
    with stage.stage(server) as here:
        here.issues(100)
        found = []
        for name, once, calls, least in (
            ("enqueue_per_s", _singly, singles, 0.8),
            ("enqueue_bulk_per_s", _in_bulk, many, 0.4),
        ):
            once(here, "enqueue", calls // 10)
            once(here, "bare_enqueue", calls // 10)
            samples = [(once(here, "enqueue", calls), once(here, "bare_enqueue", calls)) for _ in range(rounds)]
            found.append(paired(name, "1/s", [s[0] for s in samples], [s[1] for s in samples], least=least))
        return found


def _calls(many: int) -> list[dict[str, Any]]:
    at = datetime.now(UTC) + timedelta(days=1)
    payload = Jsonb({"reason": "bench", "text": "x" * 100})
    return [
        {
            "company": COMPANY,
            "agent": f"agent{n % 100 + 1}",
            "issue": f"issue{n % 100 + 1}",
            "payload": payload,
            "at": at,
        }
        for n in range(many)
    ]


def _singly(here: Stage, block: str, many: int) -> float:
    calls = _calls(many)
    start = time.monotonic()
    for call in calls:
        statements.run(here.conn, block, call).fetchall()
    return many / (time.monotonic() - start)


def _in_bulk(here: Stage, block: str, many: int) -> float:
    calls = _calls(many)
    start = time.monotonic()
    with here.conn.transaction(), here.conn.pipeline():
        for call in calls:
            statements.run(here.conn, block, call)
    return many / (time.monotonic() - start)
