"""A scheduler in a process of its own that kills itself at a crash point; ends by itself when it never gets there.

Orders arrive as one JSON object on standard input: dsn, data, plugins, point, wakes, patience.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from uuid import UUID


def main() -> int:
    """Follow the orders; return 0 when the receipts are settled and nobody died."""
    orders = json.load(sys.stdin)
    from wakeful import config, connections, store
    from wakeful.scheduler import Scheduler, Tuning
    from wakeful.testing.conformance.stage import COMPANY, hooks_of
    from wakeful.testing.crash import KillAt
    from wakeful.testing.instant import InstantExecutor

    flags = {"dsn": orders["dsn"], "data": orders["data"], "host": "killed"}
    settings = config.load(flags, {}, Path("/"))
    hooks = hooks_of(settings, orders["plugins"], InstantExecutor())
    scheduler = Scheduler(settings, hooks, tuning=Tuning(crash=KillAt(orders["point"])))
    scheduler.start()
    conn = connections.connect(orders["dsn"], purpose="conformance victim")
    wakes = [UUID(wake) for wake in orders["wakes"]]
    deadline = time.monotonic() + orders["patience"]
    while time.monotonic() < deadline:
        rows = [
            store.run(conn, "conformance.state_of", {"company": COMPANY, "wake": wake}).fetchone() for wake in wakes
        ]
        unended = store.run(conn, "conformance.unended", {"company": COMPANY}).fetchall()[0].runs
        if all(row.state not in ("deferred", "queued", "claimed", "error") for row in rows if row) and not unended:
            break
        time.sleep(0.02)
    scheduler.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
