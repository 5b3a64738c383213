"""The program ``wakeful`` as anybody runs it: a process of its own, with nothing of this one's settings."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wakeful

ROOTS = [str(Path(wakeful.__file__).parents[2] / root) for root in ("scheduler", "coordination", "plugins")]


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """A short directory that other accounts may pass through: root's embedded server runs as another one."""
    with tempfile.TemporaryDirectory(prefix="wkf-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@dataclass(frozen=True)
class Done:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on standard output."""
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """Runs ``wakeful`` with this environment and nothing else of WAKEFUL_."""

    data: Path
    dsn: str | None = None
    environ: dict[str, str] = field(default_factory=dict)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of the command."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("WAKEFUL_", "PG"))}
        clean |= {"HOME": str(self.data.parent), "WAKEFUL_DATA": str(self.data), "PYTHONPATH": os.pathsep.join(ROOTS)}
        if self.dsn is not None:
            clean["WAKEFUL_DSN"] = self.dsn
        return clean | self.environ | more

    @staticmethod
    def words(*words: str) -> list[str]:
        """Return the argument vector of a command."""
        return [sys.executable, "-W", "error", "-m", "wakeful.cli.main", *words]

    def __call__(self, *words: str, stdin: str = "", **environ: str) -> Done:
        """Run one command to its end."""
        done = subprocess.run(
            self.words(*words),
            env=self.environment(**environ),
            input=stdin.encode(),
            capture_output=True,
            timeout=90,
            check=False,
            cwd=self.data.parent,
        )
        return Done(done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="replace"))

    def start(self, *words: str, **how: Any) -> subprocess.Popen[bytes]:
        """Start one command; the caller waits for it."""
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        return subprocess.Popen(self.words(*words), env=self.environment(), cwd=self.data.parent, **how)
