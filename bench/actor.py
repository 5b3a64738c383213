"""The two programs that the bench times, each a process of its own: the scheduler, and the bare loop.

The bare loop is what a careful person would write without a scheduler: it waits for notifications and sends the
very statements that the scheduler sends for one release, in the same transactions and pipelines, judging nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import config, connections, plugins, store
from wakeful.scheduler import Scheduler

SLOTS = 1000
FIRST = UUID(int=0)


def schedule(dsn: str) -> None:
    """Run a scheduler until standard input closes."""
    from instant import Plugin  # the bench's own

    from wakeful_plugins import execution_wait, request, task_retry

    with tempfile.TemporaryDirectory() as data:
        settings = config.load({"dsn": dsn, "data": data, "host": "bench", "slots": SLOTS}, {}, Path(data))
        hooks = plugins.load(settings, plugins=[request, task_retry, execution_wait, Plugin()], discover=False)
        scheduler = Scheduler(settings, hooks)
        start = time.time()
        scheduler.start()
        assert scheduler.wait_ready(60), "the scheduler is not ready"
        _say_ready(start)
        sys.stdin.read()
        scheduler.stop()


def replay(dsn: str) -> None:
    """Run the bare loop until standard input closes."""
    with connections.connect(dsn, purpose="replay ear") as ear, connections.connect(dsn, purpose="replay") as conn:
        store.run(ear, "control.listen")
        threading.Thread(target=_end_with_parent, daemon=True).start()
        _say_ready(time.time())
        for notification in ear.notifies():
            signal = json.loads(notification.payload)
            if signal["t"] == "eligibility":
                _release(conn, signal)


def _release(conn: Connection[Any], signal: Mapping[str, Any]) -> None:
    company = signal["c"]
    if "w" in signal:
        ids = [UUID(signal["w"])]
        time.sleep(max(0.0, signal["at"] - time.time()))
    else:
        page = {"company": company, "gate": signal["g"], "key": signal["k"], "after": FIRST, "limit": 100}
        ids = [row.id for row in store.run(conn, "window.parked", page)]
    if ids:
        _admit(conn, company, ids)


def _admit(conn: Connection[Any], company: str, ids: list[UUID]) -> None:
    key = {"company": company, "ids": ids, "payload_kinds": []}
    with conn.transaction():
        with conn.pipeline():
            store.run(conn, "settings.cached_plans")
            store.run(conn, "admission.lock_issues", key)
            store.run(conn, "admission.lock_wakes", key)
            reading = conn.execute(store.query("admission.facts"), key)
            for block in ("admission.policies", "admission.agents"):
                store.run(conn, block, key)
            reading.fetchall()
        nothing = [None] * len(ids)
        runs = {"company": company, "wakes": ids, "retry_of": nothing, "comments": nothing, "authorities": nothing}
        store.run(conn, "admission.admit", runs).fetchall()
        with conn.pipeline():
            store.run(conn, "admission.announce", {"company": company})


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def _say_ready(start: float) -> None:
    sys.stdout.write(f"{start!r}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    {"schedule": schedule, "replay": replay}[sys.argv[1]](sys.argv[2])
