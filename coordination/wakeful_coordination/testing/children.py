"""Real child processes that tests talk to line by line, with a deadline on every answer."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType

#: Seconds after which an answer counts as missing.
DEADLINE = 30.0

_PRELUDE = """
import os, signal, sys
from wakeful_coordination import *
def say(*words):
    # One write: threads that speak at once do not mix their words.
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()
def hear(): return sys.stdin.readline().strip()
"""


class Child:
    """A Python process running ``script``, which may ``say`` and ``hear`` lines; arguments are in sys.argv[1:]."""

    def __init__(self, script: str, *arguments: str, wrapper: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*wrapper, sys.executable, "-c", _PRELUDE + script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._heard = b""

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def tell(self, line: str) -> None:
        """Send one line."""
        if self._process.stdin is not None:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def hear(self, timeout: float = DEADLINE) -> str:
        """Return the next line the child says; raises TimeoutError, or EOFError with its stderr."""
        out = self._process.stdout
        if out is None:
            raise EOFError
        deadline = time.monotonic() + timeout
        while b"\n" not in self._heard:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                raise TimeoutError(f"nothing heard in {timeout} s")
            chunk = os.read(out.fileno(), 65536)
            if not chunk:
                raise EOFError(self._process.communicate()[1].decode(errors="replace"))
            self._heard += chunk
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def silent(self, seconds: float) -> bool:
        """Say whether the child says nothing for that long."""
        try:
            self._heard = self.hear(seconds).encode() + b"\n" + self._heard
        except TimeoutError:
            return True
        return False

    def kill(self, number: int = 9) -> None:
        """Send a signal; after a SIGKILL also wait for the death."""
        self._process.send_signal(number)
        if number == 9:
            self._process.wait(DEADLINE)

    def end(self) -> int:
        """Close its input and wait for its end; returns the exit code."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        return self._process.wait(DEADLINE)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def until(condition: Callable[[], bool], timeout: float = DEADLINE) -> None:
    """Poll a condition until it holds; raises TimeoutError at the deadline."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true")
        select.select([], [], [], 0.005)
