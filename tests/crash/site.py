"""A host on which schedulers live and die: one database, one data directory, and what happened there."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import dict_row
from tests.conditions import wait_until

from wakeful.testing import Database

SCRIPT = Path(__file__).with_name("scheduler_process.py")
COMPANY = "acme"
FINAL = ("succeeded", "failed", "cancelled", "lost")


class SchedulerProcess:
    """One scheduler process; its log is kept for failures."""

    def __init__(self, orders: dict[str, Any], log: Path) -> None:
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), json.dumps(orders)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    def wait_ready(self) -> SchedulerProcess:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 30)[0], self.said()
        assert self.process.stdout.readline() == b"ready\n", self.said()
        return self

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.ends() == -signal.SIGKILL

    def ends(self, within: float = 30) -> int:
        """Return its exit code."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the scheduler lives on after {within} s:\n{self.said()}") from None

    def dies(self) -> None:
        """Wait until it has killed itself."""
        assert self.ends() == -signal.SIGKILL, self.said()

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Site:
    """Everything one crash test needs."""

    def __init__(self, database: Database, root: Path) -> None:
        self.database = database
        self.root = root
        self.data = root / "data"
        self.truth = root / "truth"
        self.truth.touch()
        self.conn = self.connect()
        self.schedulers: list[SchedulerProcess] = []
        self.conn.execute("SELECT wakeful.add_company(%s)", (COMPANY,))

    def connect(self) -> Connection[dict[str, Any]]:
        conn = self.database.connect()
        conn.row_factory = dict_row
        return conn

    # ── actors ──────────────────────────────────────────────────────────────────────────────────────────

    def scheduler(
        self,
        *,
        crash: str = "",
        arrival: int = 1,
        host: str = "site",
        data: Path | None = None,
        dsn: str | None = None,
        grace: float = 10,
        stop_children: str = "leave",
        lease: tuple[float, float, float] = (60, 20, 20),
        environment: dict[str, str] | None = None,
        disk: str = "",
        fork: bool = False,
    ) -> SchedulerProcess:
        orders = {
            "dsn": dsn or self.database.dsn,
            "data": str(data or self.data),
            "host": host,
            "crash": crash,
            "arrival": arrival,
            "lease": lease,
            "grace": grace,
            "stop_children": stop_children,
            "environment": environment or {},
            "disk": disk,
            "fork": fork,
        }
        made = SchedulerProcess(orders, self.root / f"scheduler-{len(self.schedulers)}.log")
        self.schedulers.append(made)
        return made

    def agent(self, command: Sequence[str], agent: str = "coder", **contract: Any) -> None:
        named = ", ".join(f"{name} => %({name})s" for name in contract)
        text = f"SELECT wakeful.add_agent(%(company)s, %(agent)s, %(command)s{', ' + named if named else ''})"
        self.conn.execute(text, {"company": COMPANY, "agent": agent, "command": list(command), **contract})

    def writer(self, then: str = "", agent: str = "coder", **contract: Any) -> None:
        """Add an agent that writes a line to the truth file for each execution, and then does what ``then`` says."""
        self.agent(["sh", "-c", f'echo "$WAKEFUL_RUN" >> {self.truth}; {then}'], agent, **contract)

    def wake(self, issue: str | None = None, agent: str = "coder") -> None:
        self.conn.execute("SELECT wakeful.request_wake(%s, %s, %s)", (COMPANY, agent, issue))

    def stop(self, run: UUID) -> str:
        row = self.conn.execute("SELECT state FROM wakeful.stop_run(%s, %s)", (COMPANY, run)).fetchone()
        return row["state"]

    # ── what happened ───────────────────────────────────────────────────────────────────────────────────

    def runs(self) -> list[dict[str, Any]]:
        return self.conn.execute("SELECT * FROM wakeful.run ORDER BY id").fetchall()

    def run(self) -> dict[str, Any]:
        (found,) = self.runs()
        return found

    def wait_run(self, *states: str, within: float = 30) -> dict[str, Any]:
        """Return the one run there is once it is in one of the states (or, without any, final)."""
        wanted = states or FINAL

        def look() -> dict[str, Any] | None:
            found = self.runs()
            assert len(found) <= 1
            return found[0] if found and found[0]["state"] in wanted else None

        try:
            return wait_until(look, within=within, what=f"a run in state {' or '.join(wanted)}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.runs()}\n{self.logs()}") from None

    def executions(self) -> list[str]:
        """Return the cookie of each execution of a command, in order, as the command itself wrote it down."""
        return self.truth.read_text().split()

    def wait_executions(self, number: int) -> None:
        wait_until(lambda: len(self.executions()) >= number, what=f"{number} executions of a command")

    def stop_files(self) -> list[Path]:
        return list(self.data.glob("runs/*/*/*/stop"))

    def count(self, table: str) -> int:
        return self.conn.execute(f"SELECT count(*) AS n FROM wakeful.{table}").fetchone()["n"]  # noqa: S608 - our own name

    def processes(self) -> list[int]:
        """Return the pids of living processes that carry the cookie of any run of this site."""
        mark = f"{self.data}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or entry.name == str(os.getpid()):
                continue
            try:
                environment = (entry / "environ").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if b"WAKEFUL_RUN=" in environment and mark in environment and state not in "ZX":
                found.append(int(entry.name))
        return found

    def wait_alone(self) -> None:
        wait_until(lambda: not self.processes(), what="the end of every process of every run")

    def logs(self) -> str:
        return "\n".join(f"--- {one.log.name}\n{one.said()}" for one in self.schedulers)

    def gate(self) -> Gate:
        return Gate(self.root / f"gate-{os.urandom(3).hex()}")

    def close(self) -> None:
        for one in self.schedulers:
            one.close()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


class Gate:
    """A pipe in the file system on which a child waits until the test opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    @property
    def wait(self) -> str:
        """What a shell does to wait."""
        return f"read word < {self.path}"

    def open(self, word: str = "go") -> None:
        """Let one child pass, once it has come."""

        def put() -> bool:
            try:
                fd = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return False
            os.write(fd, f"{word}\n".encode())
            os.close(fd)
            return True

        wait_until(put, what="a child at the gate")
