"""From an agent's word, a file, to its row, while a scheduler lives: doorbell, settlement, producer.

The limit is what a careful person would do by hand: such a file made durable by two flushes, and one committed INSERT.
Started with arguments it is the scheduler that the bench times.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import statements
from psycopg import Connection
from row import Row, paired, percentile, spread

from wakeful.testing import Database, Server
from wakeful_coordination import Coordination, Generation
from wakeful_plugins.run_directory import coordination_root

COMPANY = "bench"
BUILD = Path(__file__).resolve().parent.parent / "build"


def rows(server: Server, *, quick: bool) -> Iterator[Row]:
    """Measure single events, each after the one before has arrived, in turns with the limit."""
    BUILD.mkdir(exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="emit-", dir=BUILD))
    try:
        with server.database() as database:
            conn = database.connect(purpose="bench")
            statements.run(conn, "company", {"company": COMPANY})
            statements.run(conn, "tell_spend_function")
            statements.run(conn, "tell_spend")
            path = coordination_root(data, COMPANY)
            path.parent.mkdir(mode=0o700)
            with Coordination.open(str(path)) as root:
                captured = root.generations.open("bench.session")
                yield from _measured(database, conn, root, captured, data, 10 if quick else 300)
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _measured(
    database: Database,
    conn: Connection[Any],
    root: Coordination,
    captured: Generation,
    data: Path,
    n: int,
) -> Iterator[Row]:
    ear = database.connect(purpose="bench ear")
    ear.execute("LISTEN bench")
    command = [sys.executable, __file__, database.dsn, str(data)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as scheduler:
        try:
            assert scheduler.stdout is not None
            assert scheduler.stdout.readline() == b"ready\n", "the scheduler did not start"
            for _ in range(5):  # connections, plans and caches are made
                _ours(ear, root, captured)
            ours, limits = [], []
            for number in range(n):
                ours.append(_ours(ear, root, captured))
                limits.append(_by_hand(conn, data / f"event-{number}"))
        finally:
            assert scheduler.stdin is not None
            scheduler.stdin.close()
            scheduler.wait(30)
    yield paired("emit_to_row_p50_ms", "ms", ours, limits)
    p99 = percentile(ours, 99)
    yield Row("emit_to_row_p99_ms", p99, "ms", n=len(ours), spread=spread(ours))


def _ours(ear: Connection[Any], root: Coordination, captured: Generation) -> float:
    """Return the milliseconds from the call that publishes an event to the commit of its row."""
    start = time.perf_counter()
    txid = root.publish(root.transaction(captured, "spend", {"amount": "0.01"})).txid
    for heard in ear.notifies(timeout=30):
        if heard.payload == txid:
            return (time.perf_counter() - start) * 1e3
    raise AssertionError("the event did not become a row in time")


def _by_hand(conn: Connection[Any], path: Path) -> float:
    """Return the milliseconds of two flushes and one committed row."""
    start = time.perf_counter()
    spare = path.with_suffix(".new")
    fd = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, json.dumps({"amount": "0.01", "padding": "x" * 500}).encode())
    os.fsync(fd)
    os.close(fd)
    os.rename(spare, path)
    at = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(at)
    os.close(at)
    statements.run(conn, "spend_by_hand", {"company": COMPANY, "amount": Decimal("0.01"), "key": path.name})
    return (time.perf_counter() - start) * 1e3


def schedule(dsn: str, data: str) -> None:
    """Run a scheduler with file coordination until standard input closes."""
    from wakeful import config, plugins
    from wakeful.scheduler import Scheduler
    from wakeful_plugins import coordination, request

    settings = config.load({"dsn": dsn, "data": data, "host": "bench"}, {}, Path(data))
    scheduler = Scheduler(settings, plugins.load(settings, plugins=[request, coordination], discover=False))
    scheduler.start()
    assert scheduler.wait_ready(60), "the scheduler is not ready"
    print("ready", flush=True)
    sys.stdin.read()
    scheduler.stop()


if __name__ == "__main__":
    schedule(*sys.argv[1:])
