"""What passes between the dispatcher and an executor: plain values, so that a remote worker can speak them later.

An executor is idempotent on (company, run, generation): submitting twice starts one process. Every
engine's own retry is off. What an executor reports is *evidence with a grade*; policy stands elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True, order=True)
class RunKey:
    """One execution under one authority: the identity that an executor is idempotent on."""

    company: str
    run: UUID
    generation: int

    @property
    def cookie(self) -> str:
        """The value of WAKEFUL_RUN in every process of this execution: ``<run>-<generation>``."""
        return f"{self.run}-{self.generation}"


class Grade(StrEnum):
    """How a death is known (spec 3). The first three free an issue; ``reported`` does not."""

    CONTAINED = "contained"  # nothing of the run's tree is left, and that was seen
    WAITED = "waited"  # the main process was reaped; descendants may live
    ATTESTED = "attested"  # a person, or the node's deletion, says so
    REPORTED = "reported"  # an engine says so


class EndClass(StrEnum):
    """Why a run ended (spec 7)."""

    OK = "ok"
    FAILED = "failed"
    PROVIDER_LIMITED = "provider_limited"
    SESSION_LOST = "session_lost"
    AUTH_FAILED = "auth_failed"
    NEEDS_INPUT = "needs_input"
    TIMED_OUT = "timed_out"
    SILENT = "silent"
    BAD_RESULT = "bad_result"
    KILLED = "killed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything an executor needs to start one run.

    Arguments:
        command: argument vector; no shell.
        input: the value of ``input.json`` (v1), JSON-serialisable.
        cwd: absolute path, or None for the run's own directory.
        allow: names of the executor's own environment that are passed on.
        environment: literal values, set after ``allow``; WAKEFUL_ names are the executor's own.
        agent, issue: for WAKEFUL_AGENT and WAKEFUL_ISSUE.
        token: the outside-effect token, for WAKEFUL_TOKEN.
        coordination: path of the coordination root, for WAKEFUL_COORD; None means the one of the run's company.
        instance: token of the captured file generation, for WAKEFUL_INSTANCE; "" means one opened for this execution.
        max_runtime, silence_limit: None means no limit.
        stop_grace: between TERM and KILL.
    """

    command: tuple[str, ...]
    input: Mapping[str, Any]
    agent: str
    issue: str | None = None
    cwd: str | None = None
    allow: tuple[str, ...] = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
    environment: Mapping[str, str] = field(default_factory=dict)
    token: str = ""
    coordination: str | None = None
    instance: str = ""
    max_runtime: timedelta | None = timedelta(hours=1)
    silence_limit: timedelta | None = None
    stop_grace: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Output:
    """One saved output stream.

    ``tail`` holds at most 8 KiB of text (UTF-8 with replacement, NUL as U+FFFD); ``altered`` says that
    the text is not byte for byte what was printed; ``truncated`` that the cap cut the file.
    """

    path: str
    bytes: int
    sha256: str
    tail: str
    altered: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class ExitReport:
    """The durable exit record of one execution.

    ``ended_by`` is None when the command ended by itself, else what the runner did to it
    (timed_out, silent, stopped, killed). ``result`` holds the bytes of result.json as found (at most
    64 KiB + 1), or None. Exactly one of ``exit_code`` and ``signal`` is set unless the command could
    not be executed at all (then both are None and ``error`` says why). ``survivors_killed`` counts the processes that
    outlived the main one and were ended, ``processes_ended`` all that were told to end.
    """

    key: RunKey
    exit_code: int | None
    signal: int | None
    ended_by: EndClass | None
    grade: Grade
    started_at: datetime
    ended_at: datetime
    stdout: Output
    stderr: Output
    result: bytes | None = None
    survivors_killed: int = 0
    error: str | None = None
    processes_ended: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """Submitted; the command has not been executed yet."""


@dataclass(frozen=True, slots=True)
class Running:
    """The command runs. ``pid`` is diagnostic only."""

    started_at: datetime
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """An exit record exists and nothing of the tree is left (as far as its grade says)."""

    report: ExitReport


@dataclass(frozen=True, slots=True)
class NeverStarted:
    """Proven under the run's lock: the command was not and will never be executed (``void``).

    ``reason`` says what kept it from starting, as far as anybody knows.
    """

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Vanished:
    """The runner is dead without an exit record, and its tree is gone to this grade."""

    grade: Grade
    survivors_killed: int = 0


@dataclass(frozen=True, slots=True)
class Uncertain:
    """Nothing can be proven from here; ``reason`` says why. Frees nothing."""

    reason: str


Status = Pending | Running | Ended | NeverStarted | Vanished | Uncertain


class Executor(Protocol):
    """How runs are executed somewhere. Implementations are plugins (hook ``register_executors``)."""

    name: str

    def attach(self, changed: Callable[[], None]) -> None:
        """Remember a callback that is called, from any thread, whenever ``poll`` may have news."""

    def submit(self, spec: RunSpec, key: RunKey) -> None:
        """Start the run once; the same key again starts nothing. Raises ExecutorError."""

    def poll(self, keys: Sequence[RunKey]) -> Sequence[Status]:
        """Return the status of each key, in order, without blocking and without changing anything."""

    def examine(self, key: RunKey) -> Status:
        """Find out the truth about a run that another process may have started.

        Takes the run's lock if its holder is dead, voids a run that never started, clears survivors of a
        killed runner. A living run is adopted: from now on ``poll`` and ``changed`` cover it. May block
        for up to the stop grace.
        """

    def stop(self, key: RunKey, grace: timedelta) -> None:
        """Ask the run to end: TERM to the tree, KILL after ``grace``. A durable request; the result is seen by poll."""

    def logs(self, key: RunKey, stream: str, offset: int, limit: int) -> bytes:
        """Return up to ``limit`` bytes of ``stdout`` or ``stderr`` from a byte offset; empty at the end."""

    def forget(self, company: str) -> None:
        """Delete everything that is kept here for a company, of which no run is alive any more."""

    def close(self) -> None:
        """Stop watching. Leaves running children alone."""
