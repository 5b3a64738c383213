"""Runs as child processes on this host, each under a runner of its own that outlives the scheduler."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import wakeful
from wakeful.crash_points import CrashPoint, no_crash
from wakeful.errors import ExecutorError
from wakeful.executions import Executor, RunKey, RunSpec, Status
from wakeful_plugins.child_environment import child_environment
from wakeful_plugins.process_table import send
from wakeful_plugins.run_directory import RunDirectories
from wakeful_plugins.run_evidence import RunEvidence
from wakeful_plugins.run_files import RunFiles
from wakeful_plugins.run_instance import RunInstances
from wakeful_plugins.run_record import read_holder, read_started
from wakeful_plugins.runner_process import RunnerSettings, seconds, start_runner, why_not_isolated

if TYPE_CHECKING:
    from wakeful.config import Config

OUTPUTS = ("stdout", "stderr")


@wakeful.hookimpl
def register_executors(config: Config) -> list[Executor]:
    """Offer the executor named ``local``, with its files below the data directory."""
    return [LocalExecutor(config.data)]


class LocalExecutor:
    """The executor for processes of this host (protocol ``Executor``); usable from any thread.

    Arguments:
        data: the data root.
        poll: how often a runner looks for a stop request it was not told of.
        drain: how long a runner, or ``examine``, waits for the kernel to end what was killed.
        patience: how long, beside stop grace and drain, ``examine`` waits for the holder of a run's lock to show
            itself (it may be another examiner at work).
        output_cap: bytes kept of each output; 0 means all.
        environ: where allow-listed variables come from; None means this process's own environment.
        namespaces: give each command a pid namespace of its own, which the kernel clears and nothing in it can
            hide from; refused at submit where that does not work (see ``why_no_namespaces``).
        python: the interpreter that runs the runner.
        crash: called at each ``CrashPoint``; for tests.
    """

    name = "local"

    def __init__(
        self,
        data: Path,
        *,
        poll: timedelta = timedelta(seconds=2),
        drain: timedelta = timedelta(seconds=10),
        patience: timedelta = timedelta(seconds=10),
        output_cap: int = 64 << 20,
        environ: Mapping[str, str] | None = None,
        namespaces: bool = False,
        python: str = sys.executable,
        crash: Callable[[str], None] = no_crash,
    ) -> None:
        self._directories = RunDirectories(data)
        self._instances = RunInstances(data)
        self._settings = RunnerSettings(
            python=python, poll=poll, drain=drain, output_cap=output_cap, isolated=namespaces
        )
        self._namespaces_work = False  # until they were tried
        self._evidence = RunEvidence(self._directories, patience=patience, drain=drain, poll=poll, crash=crash)
        self._environ = environ
        self._crash = crash
        self._spawning = threading.Lock()

    def attach(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` from now on, from any thread, whenever a run has started or ended."""
        self._evidence.changed = changed

    def why_no_namespaces(self) -> str | None:
        """Try a command in a pid namespace now; return why that does not work on this host, or None if it does."""
        return why_not_isolated(self._settings.python)

    def submit(self, spec: RunSpec, key: RunKey) -> None:
        """Prepare the run's directory and start its runner, unless the run has ever had one. Raises ExecutorError."""
        self._check_namespaces()
        path = self._directories.path(key)
        coordination = self._directories.coordination(key)
        environment = child_environment(
            spec,
            key,
            os.environ if self._environ is None else self._environ,
            input_path=str(path / "input.json"),
            result_path=str(path / "result.json"),
            coordination=spec.coordination or str(coordination),
        )
        arguments = self._settings.arguments(spec, key, path)
        document = _document(spec)
        files = self._directories.create(key)
        try:
            self._crash(CrashPoint.RUN_DIRECTORY)
            if self._is_taken(files, spec, key):
                return
            self._directories.create_beside(coordination)
            self._directories.create_beside(path / "work")
            files.publish("input.json", document)
            if spec.coordination is None and not spec.instance:
                environment["WAKEFUL_INSTANCE"] = self._instances.token(key, files)
            self._crash(CrashPoint.RUN_INPUT)
            with self._spawning:
                if not self._evidence.watches(key):
                    pid, ready = start_runner(arguments, environment)
                    self._crash(CrashPoint.SPAWN_BEFORE_STARTED)
                    self._evidence.watch_child(key, pid, ready)
        except (OSError, ValueError) as error:
            raise ExecutorError(
                f"run {key.run} (generation {key.generation}) cannot be started: {error}",
                hint=f"look at {path} and at the room on its disk",
            ) from error
        finally:
            files.close()

    def poll(self, keys: Sequence[RunKey]) -> Sequence[Status]:
        """Return what the files say of each run, in order.

        A runner that died without an exit record is Uncertain here; ``examine`` finds out more.
        """
        return [self._evidence.look(key) for key in keys]

    def examine(self, key: RunKey) -> Status:
        """Find out the truth about a run: adopt it if it lives, clear up after its runner if that was killed."""
        return self._evidence.settle(key)

    def stop(self, key: RunKey, grace: timedelta) -> None:
        """Ask for the run's end, durably, and tell its runner. A run that has not started never will.

        Raises ExecutorError if the request could not be made durable.
        """
        request = f'{{"v": 1, "grace": {seconds("grace", grace)}}}'.encode()
        files = self._directories.create(key)
        try:
            if files.has("void") or files.has("exit.json"):
                return
            files.publish("stop", request)
            self._crash(CrashPoint.STOP_REQUEST)
            if not files.has("started") and self._evidence.void(files, "stopped before it started"):
                self._evidence.changed()
            elif (holder := read_holder(files)) is not None and holder.visible:
                send(holder.pid, holder.ticks, signal.SIGTERM)
        except OSError as error:
            raise ExecutorError(
                f"run {key.run} cannot be asked to stop: {error}", hint="ask again once its disk has room"
            ) from error
        finally:
            files.close()

    def logs(self, key: RunKey, stream: str, offset: int, limit: int) -> bytes:
        """Return up to ``limit`` bytes of ``stdout`` or ``stderr`` from a byte offset; empty at the end.

        Raises ExecutorError for another stream, a negative number, or a run that has no files here.
        """
        if stream not in OUTPUTS or offset < 0 or limit < 0:
            raise ExecutorError(
                f"no bytes {offset} to {offset + limit} of {stream!r}", hint="ask for stdout or stderr, from 0 on"
            )
        files = self._directories.open(key)
        if files is None:
            raise ExecutorError(
                f"no files of run {key.run} are on this host", hint="its output lies on the host that ran it"
            )
        try:
            cap = self._settings.output_cap
            if cap and not files.has("exit.json"):  # what is over the cap will be cut, and something else stand there
                limit = max(0, min(limit, cap - offset))
            with open(files.open(stream, os.O_RDONLY), "rb", buffering=0) as file:
                return os.pread(file.fileno(), max(0, min(limit, os.fstat(file.fileno()).st_size - offset)), offset)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise ExecutorError(f"{stream} of run {key.run} cannot be read: {error}") from error
        finally:
            files.close()

    def forget(self, company: str) -> None:
        """Delete the run directories and the coordination root of a company. Follows no link."""
        self._directories.forget(company)

    def close(self) -> None:
        """Stop watching. Leaves running children alone."""
        self._evidence.close()
        self._instances.close()

    def _check_namespaces(self) -> None:
        """Raise ExecutorError if pid namespaces are asked for and do not work; tried until they do, then no more."""
        if not self._settings.isolated or self._namespaces_work:
            return
        if refusal := self.why_no_namespaces():
            raise ExecutorError(
                f"pid namespaces do not work here: {refusal}",
                hint="run without them, or let this user make user namespaces",
            )
        self._namespaces_work = True

    def _is_taken(self, files: RunFiles, spec: RunSpec, key: RunKey) -> bool:
        """Say whether this execution has or had its runner; a living one is watched from now on."""
        started = read_started(files)
        if started is not None and started.token != spec.token:
            raise ExecutorError(
                f"run {key.run} (generation {key.generation}) was executed under another token: {started.token!r}",
                hint="the files are ahead of the database, as after a restore from backup: see `wakeful restored`",
            )
        if started is not None and not files.has("exit.json"):
            self._evidence.adopt(key, started.runner)
        return started is not None or files.has("void") or files.has("exit.json")


def _document(spec: RunSpec) -> bytes:
    """Return input.json. Raises ExecutorError for what JSON cannot say."""
    try:
        return json.dumps(dict(spec.input), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ExecutorError(f"the run's input is no JSON: {error}", hint="this is an error of the caller") from error
