"""What can be proven of a run from its files, its lock and its processes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import timedelta

from wakeful.crash_points import CrashPoint
from wakeful.errors import ExecutorError
from wakeful.executions import Ended, NeverStarted, Pending, RunKey, Running, Status, Uncertain
from wakeful_plugins.containment import carriers, clear_survivors
from wakeful_plugins.process_table import ProcessIdentity, open_process, stat_of
from wakeful_plugins.run_directory import RunDirectories
from wakeful_plugins.run_files import RunFiles
from wakeful_plugins.run_record import read_end, read_holder, read_started
from wakeful_plugins.runner_watch import RunnerWatch, Watched

RETRY = 0.01  # seconds between two tries for a lock that somebody else examines


class RunEvidence:
    """Looks at runs, watches their runners, and settles what a dead one left open.

    Only a runner and an examiner ever take a run's lock. Held by a runner: the run lives. Free: the runner
    is dead, whatever its pid says. ``changed`` is called, from any thread, when a look may bring news.

    Arguments:
        patience: how long to wait, beside stop grace and drain, for the holder of a lock to show itself.
        drain: how long to wait for the kernel to end what was killed.
        poll: how often locks are looked at where the system has no pidfds.
    """

    def __init__(
        self,
        directories: RunDirectories,
        *,
        patience: timedelta,
        drain: timedelta,
        poll: timedelta,
        crash: Callable[[str], None],
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._directories = directories
        self._patience, self._drain = patience.total_seconds(), drain.total_seconds()
        self._crash = crash
        self._failures: dict[RunKey, str] = {}
        self._watch = RunnerWatch(self, self._is_held, poll.total_seconds())

    def close(self) -> None:
        """Stop watching; leave every runner alone."""
        self._watch.close()

    def watches(self, key: RunKey) -> bool:
        """Say whether the run's runner is under watch."""
        return self._watch.knows(key)

    def watch_child(self, key: RunKey, pid: int, ready: int) -> None:
        """Watch a runner just started by this process, with the pipe it reports on."""
        try:
            handle = os.pidfd_open(pid)  # not collected yet, so this is still the same process
        except (OSError, AttributeError):
            handle = None
        self._watch.add(Watched(key, handle, pid, ready))

    def adopt(self, key: RunKey, runner: ProcessIdentity) -> bool:
        """Watch a runner that another process started. False if it is dead."""
        if self._watch.knows(key):
            return True
        if not runner.same_boot:
            return False
        handle = None
        if runner.visible:
            try:
                if (handle := open_process(runner.pid, runner.ticks)) is None:
                    return False
            except (OSError, AttributeError):
                stat = stat_of(runner.pid)
                if stat is not None and stat.ticks != runner.ticks:
                    return False
        self._watch.add(Watched(key, handle))
        return True

    def look(self, key: RunKey) -> Status:
        """Return what the run's files say, changing nothing and waiting for nothing."""
        try:
            files = self._directories.open(key)
        except ExecutorError as error:
            return Uncertain(error.message)
        if files is None:
            return Uncertain("nothing of this run is on this host: it was never submitted here, or its files are gone")
        try:
            return self._status(files, key)
        finally:
            files.close()

    def settle(self, key: RunKey) -> Status:
        """Find out the truth, adopting a living runner and clearing up after a dead one."""
        self._failures.pop(key, None)
        try:
            files = self._directories.open(key)
            if files is None:
                if lost := carriers(key.cookie):
                    return Uncertain(f"the run's directory is gone, but processes of it live: {lost[:5]}")
                files = self._directories.create(key)
        except (ExecutorError, OSError) as error:
            return Uncertain(str(error))
        try:
            return self._settle(files, key)
        except (OSError, ValueError) as error:
            return Uncertain(f"{self._directories.path(key)}: {error}")
        finally:
            files.close()

    def void(self, files: RunFiles, reason: str) -> bool:
        """Make sure that a run which has not started never will. False if it has, or its lock is held."""
        lock = files.lock()
        if lock is None:
            return False
        try:
            if files.has("started") or files.has("exit.json"):
                return False
            if not files.has("void"):
                files.publish("void", json.dumps({"v": 1, "reason": reason}).encode())
            return True
        finally:
            os.close(lock)

    def runner_started(self, key: RunKey) -> None:
        """Pass on that the command runs (called by the watch)."""
        self._crash(CrashPoint.SPAWN_AFTER_STARTED)
        self.changed()

    def runner_ended(self, key: RunKey, message: str) -> None:
        """Settle what needs no waiting, and pass on that the runner is dead (called by the watch)."""
        try:
            files = self._directories.open(key)
            if files is not None:
                try:
                    self._close_gap(files, key, message or "its runner ended before it executed anything")
                finally:
                    files.close()
        except (ExecutorError, OSError) as error:
            self._failures[key] = f"{message or 'its runner ended before it executed anything'} ({error})"
        self.changed()

    def _close_gap(self, files: RunFiles, key: RunKey, reason: str) -> None:
        """Void a run whose runner executed nothing. If another runner was first, watch that one."""
        if files.has("void") or files.has("exit.json") or (not files.has("started") and self.void(files, reason)):
            return
        if (holder := read_holder(files)) is not None:
            self.adopt(key, holder)

    def _status(self, files: RunFiles, key: RunKey) -> Status:
        path = self._directories.path(key)
        status: Status | None = read_end(files, key, path)
        if status is None:
            try:
                started = read_started(files)
                if started is None:
                    return Uncertain(self._failures[key]) if key in self._failures else Pending()
                if self._watch.knows(key) or _is_held(files):
                    return Running(started.started_at, started.pid)
            except (OSError, ValueError) as error:
                return Uncertain(f"{path}: {error}")
            status = read_end(files, key, path) or Uncertain("its runner died without an exit record: examine the run")
        if isinstance(status, Ended):
            self._crash(CrashPoint.EXIT_RECORD)
        return status

    def _settle(self, files: RunFiles, key: RunKey) -> Status:
        started = read_started(files)
        deadline = time.monotonic() + self._patience + self._drain + (started.grace if started else 0)
        while (lock := files.lock()) is None:
            holder, late = read_holder(files), time.monotonic() >= deadline
            if holder is not None and self.adopt(key, holder):
                status = self._status(files, key)
                if late or not isinstance(status, Pending):  # nobody else would tell that it has started
                    return status
            elif late:
                return Uncertain("the run's lock is held, but not by a runner that can be found from here")
            time.sleep(RETRY)
        try:
            return self._settle_locked(files, key)
        finally:
            os.close(lock)

    def _settle_locked(self, files: RunFiles, key: RunKey) -> Status:
        """Judge a run whose runner does not live; no new one can begin meanwhile."""
        status = read_end(files, key, self._directories.path(key))
        if status is not None:
            if isinstance(status, Ended):
                self._crash(CrashPoint.EXIT_RECORD)
            return status
        started = read_started(files)
        if started is not None:
            return clear_survivors(started, key.cookie, files, self._drain)
        if self._watch.knows(key):
            return Pending()  # our own runner, on its way to the lock
        files.publish("void", json.dumps({"v": 1, "reason": "nothing had been executed when it was examined"}).encode())
        return NeverStarted("nothing had been executed when it was examined")

    def _is_held(self, key: RunKey) -> bool:
        """Say whether the run's lock is held; a run that cannot be looked at counts as held."""
        try:
            files = self._directories.open(key)
            if files is None:
                return False
            try:
                return _is_held(files)
            finally:
                files.close()
        except (ExecutorError, OSError):
            return True


def _is_held(files: RunFiles) -> bool:
    """Say whether a runner or an examiner holds the run's lock. Shared, so that two who ask do not meet."""
    lock = files.lock(shared=True)
    if lock is None:
        return True
    os.close(lock)
    return False
