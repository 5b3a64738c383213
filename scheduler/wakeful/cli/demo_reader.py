"""The demo's reader: a process of its own that knows a database and a company, and nothing of the actors.

``python -m wakeful.cli.demo_reader quiet SECONDS`` counts what the server executed meanwhile; ``look`` prints the
rows and the run directories. Both print one JSON object. It reads WAKEFUL_DEMO_DSN, _MAINTENANCE, _DATABASE,
_COMPANY and _DATA.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def quiet(seconds: float, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return how many statements the server counted in the demo's database during ``seconds``."""
    from wakeful.testing import Database, Statements

    name = environ["WAKEFUL_DEMO_DATABASE"]
    dsn, maintenance = environ["WAKEFUL_DEMO_DSN"], environ["WAKEFUL_DEMO_MAINTENANCE"]
    with Statements(Database(dsn, dsn, name, maintenance), nested=False) as statements:
        begun = time.monotonic()
        time.sleep(seconds)  # the measurement is the waiting
        executed = statements.executed()
    return {
        "idle_seconds": round(time.monotonic() - begun, 2),
        "idle_statements": sum(one.calls for one in executed),
        "executed": [[one.calls, one.text] for one in executed],
    }


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the company's rows, and the generations whose run directory says that a command was executed."""
    from wakeful import store
    from wakeful.connections import connect

    company = {"company": environ["WAKEFUL_DEMO_COMPANY"]}
    with connect(environ["WAKEFUL_DEMO_DSN"], purpose="demo reader") as conn:
        found: dict[str, Any] = {
            block: [row._asdict() for row in store.run(conn, f"demo.{block}", company)]
            for block in ("runs", "wakes", "keys", "audit")
        }
    executed: dict[str, int] = {}
    for record in Path(environ["WAKEFUL_DEMO_DATA"]).glob("runs/*/*/*/started"):
        executed[record.parent.parent.name] = executed.get(record.parent.parent.name, 0) + 1
    found["executed"] = executed
    return found


def main(arguments: list[str]) -> int:
    """Print what was asked for as JSON."""
    found = quiet(float(arguments[1]), os.environ) if arguments[0] == "quiet" else look(os.environ)
    json.dump(found, sys.stdout, default=str)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
