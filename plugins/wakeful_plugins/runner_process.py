"""The start of a runner: its command line, and a process that inherits nothing it should not have."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from wakeful.errors import ExecutorError
from wakeful.executions import RunKey, RunSpec
from wakeful_plugins.child_environment import check_argument

RUNNER = Path(__file__).with_name("runner.py")
READY = 3  # the runner's descriptor for its one message
ABOVE = 10  # the message pipe is moved up here first, so that it cannot be the descriptor it is copied to


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """What is the same for every runner of an executor.

    Arguments:
        python: path of the interpreter.
        poll: how often a runner looks for a stop request it was not told of.
        drain: how long it waits for the kernel to end what was killed.
        output_cap: bytes kept of each output; 0 means all.
        isolated: whether each command gets a pid namespace.
    """

    python: str
    poll: timedelta
    drain: timedelta
    output_cap: int
    isolated: bool

    def arguments(self, spec: RunSpec, key: RunKey, path: Path) -> list[str]:
        """Return the command line that runs ``spec`` in the run directory ``path``. Raises ExecutorError."""
        if not spec.command:
            raise ExecutorError("the agent has no command", hint="give its program and arguments as a list")
        for part in spec.command:
            check_argument("the agent's command", part)
        if not spec.command[0]:
            raise ExecutorError("the agent's command begins with an empty word", hint="name a program first")
        cwd = spec.cwd if spec.cwd is not None else str(path / "work")
        check_argument("the working directory", cwd)
        if not cwd.startswith("/"):
            raise ExecutorError(f"the working directory {cwd!r} is relative", hint="give an absolute path")
        flags = {
            "--directory": str(path),
            "--cookie": key.cookie,
            "--cwd": cwd,
            "--ready": str(READY),
            "--max-runtime": _limit("max_runtime", spec.max_runtime),
            "--silence-limit": _limit("silence_limit", spec.silence_limit),
            "--stop-grace": seconds("stop_grace", spec.stop_grace),
            "--poll": seconds("poll", self.poll),
            "--drain": seconds("drain", self.drain),
            "--output-cap": str(self.output_cap),
            "--isolation": "namespaces" if self.isolated else "none",
        }
        pairs = [word for pair in flags.items() for word in pair]
        return [self.python, "-I", "-S", "-X", "utf8", str(RUNNER), *pairs, "--", *spec.command]


def why_not_isolated(python: str) -> str | None:
    """Run a command in a pid namespace, for real. Returns why that does not work here, or None if it does.

    Arguments:
        python: the interpreter for the runner, and for the command.
    """
    with tempfile.TemporaryDirectory(prefix="wakeful-") as scratch:
        flags = ["--directory", scratch, "--cookie", "probe", "--isolation", "namespaces", "--max-runtime", "10"]
        command = [python, "-I", "-S", "-c", "import os; print(os.getpid(), os.readlink('/proc/self'))"]
        done = subprocess.run(
            [python, "-I", "-S", "-X", "utf8", str(RUNNER), *flags, "--", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            return done.stderr.strip()
        report = json.loads(Path(scratch, "exit.json").read_text())
        pids = Path(scratch, "stdout").read_text().split()
        if report["error"] or report["code"] != 0:
            return report["error"] or f"a command in a namespace ended with {report['code']}"
        return None if pids == ["2", "2"] else f"a command in a namespace saw itself as process {pids}"


def start_runner(arguments: list[str], environment: Mapping[str, str]) -> tuple[int, int]:
    """Start a runner; return its pid and the pipe that closes once its command runs. Raises OSError, ValueError."""
    ready, told = os.pipe()
    try:
        high = fcntl.fcntl(told, fcntl.F_DUPFD_CLOEXEC, ABOVE)
        try:
            pid = os.posix_spawn(
                arguments[0],
                arguments,
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    (os.POSIX_SPAWN_DUP2, high, READY),
                ],
            )
        finally:
            os.close(high)
    except BaseException:
        os.close(ready)
        raise
    finally:
        os.close(told)
    return pid, ready


def seconds(name: str, duration: timedelta) -> str:
    """Return a duration as decimal seconds. Raises ExecutorError for a negative one; ``name`` names it."""
    if duration < timedelta(0):
        raise ExecutorError(f"{name} is negative: {duration}", hint="give zero or more seconds")
    return f"{duration.total_seconds():.6f}"


def _limit(name: str, duration: timedelta | None) -> str:
    if duration is None:
        return "0"
    if duration <= timedelta(0):
        raise ExecutorError(
            f"{name} is not positive: {duration}", hint="give a positive duration, or none for no limit"
        )
    return seconds(name, duration)
