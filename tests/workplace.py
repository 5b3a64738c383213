"""A company whose agent obeys its wakes, under a scheduler in this process: real children, real database."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from tests.conditions import wait_until

import wakeful
from wakeful import config, plugins
from wakeful.scheduler import Scheduler, Tuning

ROOT = Path(__file__).parents[1]
OBEDIENT = (sys.executable, "-I", "-S", str(ROOT / "tests" / "children" / "obedient_agent.py"))
ENDED = ("succeeded", "failed", "cancelled", "lost")


@dataclass(frozen=True)
class Run:
    """A run as its row stands; ``given`` is the session that its program found in input.json."""

    id: UUID
    state: str
    end_class: str | None
    reason: str | None
    message: str | None
    error: str | None
    result: Any
    attempt: int
    output: str | None

    @property
    def given(self) -> str | None:
        return given(self.output or "")


def given(output: str) -> str | None:
    session: str | None = json.loads(output.splitlines()[0])["given"]
    return session


class Workplace:
    """Wakes the agents of ``acme`` and waits for what becomes of it."""

    def __init__(self, conn: psycopg.Connection[Any], data: Path) -> None:
        self.conn = conn
        self.data = data

    def do(self, statement: wakeful.Statement) -> wakeful.ProducerResult:
        return wakeful.run(self.conn, statement)

    def agent(self, agent: str = "coder", **contract: Any) -> None:
        self.do(wakeful.add_agent("acme", agent, OBEDIENT, **contract))

    def wake(self, payload: dict[str, Any], issue: str | None = None, *, agent: str = "coder", **how: Any) -> UUID:
        """Ask for a run and wait until it exists."""
        made = self.do(wakeful.request_wake("acme", agent, issue, payload=payload, **how)).wake
        assert made is not None
        return self.run_of(made)

    def run_of(self, wake: UUID) -> UUID:
        def run() -> UUID | None:
            row = self.conn.execute("SELECT run FROM wakeful.wake WHERE id = %s", (wake,)).fetchone()
            found: UUID | None = row[0] if row else None
            return found

        found = wait_until(run, what="the run of the wake")
        assert found is not None
        return found

    def work(self, payload: dict[str, Any], issue: str | None = None, **how: Any) -> Run:
        """Have something done and wait for its end."""
        return self.end(self.wake(payload, issue, **how))

    def end(self, run: UUID) -> Run:
        return wait_until(
            lambda: (found := self.run(run)) and found.state in ENDED and found, within=20, what="the end"
        )  # type: ignore[return-value]  # a run, not False

    def run(self, run: UUID) -> Run | None:
        row = self.conn.execute(
            "SELECT id, state, end_class, reason, message, error, result, attempt, stdout_tail"
            " FROM wakeful.run WHERE id = %s",
            (run,),
        ).fetchone()
        return Run(*row) if row else None

    def blocked(self, run: UUID) -> None:
        """Wait until the run's program has done all it was told, and only blocks."""
        pattern = f"runs/*/{run}/*/stdout"
        wait_until(
            lambda: any('{"blocked": true}' in path.read_text() for path in self.data.glob(pattern)),
            what="the program's last line",
        )
        wait_until(lambda: (found := self.run(run)) and found.state == "running", what="the run's start")

    def rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        return self.conn.execute(query, arguments).fetchall()  # type: ignore[arg-type]  # a test's own words


def scheduler(dsn: str, data: Path, *, tuning: Tuning | None = None, more: list[object] | None = None) -> Scheduler:
    """Return a running scheduler that has looked around."""
    settings = config.load({"dsn": dsn, "data": str(data), "stop_children": "kill"}, os.environ, data)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shipped = [EntryPoint(name, value, "wakeful") for name, value in project["entry-points"]["wakeful"].items()]
    made = Scheduler(settings, plugins.load(settings, entry_points=shipped, plugins=more or []), tuning=tuning)
    made.start()
    assert made.wait_ready(30)
    return made
