"""A host in this process whose agents are real children that use their files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from tests.command_line import ROOTS
from tests.conditions import wait_until

import wakeful
from wakeful import config, plugins
from wakeful.crash_points import Crash, no_crash
from wakeful.executions import RunKey
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing import Database
from wakeful_coordination import Coordination, Generation
from wakeful_coordination.filesystem import Filesystem
from wakeful_plugins.local_executor import LocalExecutor
from wakeful_plugins.run_directory import coordination_root
from wakeful_plugins.run_ends import RunEnds

COMPANY = "acme"
AGENT = Path(__file__).with_name("children") / "speaking_agent.py"
TICK = timedelta(seconds=0.1)
ENVIRONMENT = json.dumps({"PYTHONPATH": os.pathsep.join(ROOTS)})


class Plugins:
    """The local executor and the ends of runs, with short waits, on a disk of the test's."""

    def __init__(self, **how: Any) -> None:
        self._how = how

    @wakeful.hookimpl
    def register_executors(self, config: config.Config) -> list[LocalExecutor]:
        patience = timedelta(seconds=5)
        return [LocalExecutor(config.data, poll=TICK, drain=patience, patience=patience)]

    @wakeful.hookimpl
    def register_attendants(self, config: config.Config) -> list[RunEnds]:
        return [RunEnds(config.data, lease=TICK, **self._how)]


class Host:
    """One host, its database and its files."""

    def __init__(self, database: Database, home: Path) -> None:
        self.database = database
        self.data = home / "data"
        self.home = home
        self.conn: psycopg.Connection[dict[str, Any]] = database.connect()
        self.conn.row_factory = dict_row
        self.conn.execute("SELECT wakeful.add_company(%s)", (COMPANY,))

    def scheduler(
        self,
        *,
        files: Callable[[], Filesystem] | None = None,
        crash: Crash = no_crash,
        rescan: timedelta = timedelta(hours=1),
        watched: int | None = None,
        patience: timedelta = timedelta(seconds=30),
        dsn: str | None = None,
    ) -> Scheduler:
        """Return a scheduler that is not started yet. By default nothing is looked at that does not ring."""
        flags = {"dsn": dsn or self.database.dsn, "data": str(self.data), "host": "here"}
        settings = config.load(flags | {"plugins_disabled": "local_executor,coordination"}, {}, Path("/"))
        hooks = plugins.load(
            settings, plugins=[Plugins(files=files, rescan=rescan, watched=watched, patience=patience)]
        )
        return Scheduler(settings, hooks, tuning=Tuning(crash=crash))

    def agent(self, *things: str, agent: str = "coder", before: str = "", after: str = "", **contract: Any) -> None:
        """Add an agent that does these things (see children/speaking_agent.py), inside a shell where one is needed."""
        command = [sys.executable, str(AGENT), *things]
        if before or after:
            words = " ".join(f"'{word}'" for word in command)
            command = ["sh", "-c", f"{before} {words} {after}"]
        named = "".join(f", {name} => %({name})s" for name in contract)
        text = f"SELECT wakeful.add_agent(%(c)s, %(agent)s, %(command)s, env_values => %(values)s{named})"
        given = {"c": COMPANY, "agent": agent, "command": command, "values": ENVIRONMENT, **contract}
        self.conn.execute(text, given)

    def wake(self, issue: str | None = None, agent: str = "coder") -> None:
        self.conn.execute("SELECT wakeful.request_wake(%s, %s, %s)", (COMPANY, agent, issue))

    def rows(self, text: str, *values: Any) -> list[dict[str, Any]]:
        return self.conn.execute(text, values).fetchall()

    def run(self, *states: str, agent: str = "coder") -> dict[str, Any]:
        """Return the agent's one run, once it is in one of the states; without any, once it has ended."""

        def look() -> dict[str, Any] | None:
            found = self.rows("SELECT * FROM wakeful.run WHERE agent = %s ORDER BY id", agent)
            assert len(found) <= 1
            over = found and (found[0]["state"] in states if states else found[0]["ended_at"] is not None)
            return found[0] if over else None

        found = wait_until(look, what=f"a run {states or 'that has ended'}")
        assert found is not None
        return found

    def key(self, run: UUID, generation: int = 1) -> RunKey:
        return RunKey(COMPANY, run, generation)

    def close(self) -> None:
        """Kill what a failed test left alive."""
        mark = f"WAKEFUL_COORD={self.path}".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
        self.conn.close()

    @property
    def path(self) -> Path:
        return coordination_root(self.data, COMPANY)

    @contextlib.contextmanager
    def root(self) -> Iterator[Coordination]:
        """Open the company's root beside the scheduler's."""
        with Coordination.open(str(self.path), create=False) as opened:
            yield opened

    def carried(self, run: UUID, generation: int = 1) -> Generation:
        """Return the generation that was captured when the run was dispatched."""
        (found,) = self.data.glob(f"runs/*/{run}/{generation}/instance")
        return Generation.parse(found.read_text())

    def files(self, run: UUID, generation: int = 1) -> list[str]:
        """Return the names in the directory of an execution's instance."""
        (home,) = self.path.glob(f"instances/*/{run}-{generation}")
        return sorted(os.listdir(home))

    def pending(self) -> list[str]:
        return sorted(name for name in os.listdir(self.path / "outbox/pending") if name.endswith(".json"))

    def gate(self, name: str = "gate") -> Path:
        """Return a FIFO at which an agent waits until :meth:`open`."""
        path = self.home / name
        os.mkfifo(path)
        return path

    def open(self, gate: Path) -> None:
        def put() -> bool:
            try:
                fd = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return False
            os.write(fd, b"go\n")
            os.close(fd)
            return True

        wait_until(put, what="an agent at the gate")

    def end_of(self, run: UUID, generation: int = 1) -> str | None:
        """Return the outcome that agent.end records, if there is one."""
        with self.root() as root:
            found = root.ends.read(self.carried(run, generation))
        return None if found is None else found.outcome
