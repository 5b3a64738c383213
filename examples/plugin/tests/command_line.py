"""The program ``wakeful`` as a person runs it, and the one way in which these tests wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def until(ask: Callable[[], T], what: str, *, within: float = 60.0) -> T:
    """Return the first true answer, asked for again and again until the deadline."""
    deadline = time.monotonic() + within
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"{what}: not within {within:g} s"
        time.sleep(0.01)
    return answer


@dataclass(frozen=True)
class CommandLine:
    """Runs ``wakeful`` on one database, with no settings of the surroundings."""

    dsn: str
    data: Path

    def environment(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WAKEFUL_")}
        return clean | {"WAKEFUL_DSN": self.dsn, "WAKEFUL_DATA": str(self.data), "HOME": str(self.data)}

    @staticmethod
    def words(*words: str) -> list[str]:
        return [str(Path(sys.executable).with_name("wakeful")), *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(*words), env=self.environment(), capture_output=True, text=True, timeout=90, check=False
        )

    def __call__(self, *words: str) -> str:
        """Return what a command that succeeds prints."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))
