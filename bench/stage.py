"""A database to measure in, filled by hand, with one of the two programs at work on it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import statements
from psycopg import Connection

from wakeful.testing import Database, Server

COMPANY = "bench"
AGENTS = 100
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Acting:
    """A program at work: when it started, by this machine's clock, and the server process that admits for it."""

    start: float
    backend: int


class Stage:
    """One company in a database of its own.

    Arguments:
        database: migrated and empty.
        at_once: the agents' concurrency limit; None for none.
    """

    def __init__(self, database: Database, *, at_once: int | None = None) -> None:
        self.database = database
        self.conn = database.connect(purpose="bench")
        self.run("company")
        self.run("agents", many=AGENTS, at_once=at_once)
        self.run("projects", many=10)

    def run(self, block: str, **parameters: Any) -> Any:
        """Run one of the bench's statements for this company; return its rows, if it has any."""
        cursor = statements.run(self.conn, block, {"company": COMPANY} | parameters)
        return cursor.fetchall() if cursor.description else []

    def issues(self, many: int, *, agents: int = AGENTS, prefix: str = "issue") -> None:
        """Create issues, assigned to the first ``agents`` agents in turn."""
        self.run("issues", many=many, agents=agents, prefix=prefix)

    def ear(self) -> Connection[Any]:
        """Return a session of its own that listens to signals."""
        conn = self.database.connect(purpose="bench ear")
        conn.execute("LISTEN wakeful")
        return conn

    @contextlib.contextmanager
    def acting(self, program: Literal["schedule", "replay"]) -> Iterator[Acting]:
        """Have the scheduler or the bare loop work here."""
        command = [sys.executable, str(Path(__file__).with_name("actor.py")), program, self.database.dsn]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            try:
                assert child.stdout is not None
                said = child.stdout.readline()
                assert said, f"{program} did not start"
                name = "wakeful driver" if program == "schedule" else "wakeful replay"
                yield Acting(float(said), self.run("backend", name=name)[0][0])
            finally:
                assert child.stdin is not None
                child.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(30)
                child.kill()

    def offset(self) -> float:
        """Return how many seconds the server's clock is ahead of this process's."""
        best = None
        for _ in range(9):
            before = time.time()
            there = self.run("clock")[0][0]
            after = time.time()
            if best is None or after - before < best[0]:
                best = (after - before, there - (before + after) / 2)
        assert best is not None
        return float(best[1])


@contextlib.contextmanager
def stage(server: Server, *, at_once: int | None = None) -> Iterator[Stage]:
    """Lend a stage; its database is dropped afterwards."""
    with server.database() as database:
        yield Stage(database, at_once=at_once)


def admitted(ear: Connection[Any], backend: int, timeout: float = 30.0) -> float:
    """Wait until a commit that queued a run is heard of; return the moment by this process's clock."""
    for heard in ear.notifies(timeout=timeout):
        if heard.pid == backend and json.loads(heard.payload)["t"] == "dispatch":
            return time.time()
    raise AssertionError("no run was queued in time")
