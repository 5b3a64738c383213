"""One execution of a command, from its start to the record of its end.

Imports the standard library only, because the runner starts with it.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time

from wakeful_plugins.command import Command
from wakeful_plugins.process_table import ProcessIdentity, ancestors, stat_of, system_text
from wakeful_plugins.process_tree import ProcessTree, become_subreaper
from wakeful_plugins.run_files import Draft, RunFiles, encoded, utc
from wakeful_plugins.run_output import Output

RESERVE = 4096  # bytes set aside for exit.json
QUICK, SLOW = 0.02, 0.25  # seconds between two looks: the shortest, and the longest while a tree is being ended


class Orders:
    """What the executor asks for; durations in seconds, sizes in bytes, 0 meaning no limit."""

    def __init__(self, arguments: list[str]) -> None:
        cut = arguments.index("--")
        given = dict(zip(arguments[0:cut:2], arguments[1:cut:2], strict=True))
        self.command = arguments[cut + 1 :]
        self.directory = given.pop("--directory")
        self.cookie = given.pop("--cookie")
        self.cwd = given.pop("--cwd", "/")
        self.ready = int(given.pop("--ready", "2"))
        self.max_runtime = float(given.pop("--max-runtime", "0"))
        self.silence_limit = float(given.pop("--silence-limit", "0"))
        self.stop_grace = float(given.pop("--stop-grace", "10"))
        self.poll = float(given.pop("--poll", "2"))
        self.drain = float(given.pop("--drain", "10"))
        self.output_cap = int(given.pop("--output-cap", str(64 << 20)))
        self.containment = given.pop("--containment", "subreaper" if sys.platform == "linux" else "group")
        self.isolation = given.pop("--isolation", "none")
        if given or not self.command:
            raise ValueError(f"unknown flags: {' '.join(given)}" if given else "no command")


class Run:
    """One execution: start the command, end it where a limit or a request says so, record how it ended.

    Arguments:
        files: the run's directory, its lock held.
        identity: who this runner is, for ``started``.
        wake: a descriptor that becomes readable when a signal arrives.

    Raises OSError, here and in ``start``, when the run's files cannot be made: then nothing was executed.
    """

    def __init__(self, orders: Orders, files: RunFiles, identity: ProcessIdentity, wake: int) -> None:
        self.orders, self.files, self.identity, self.wake = orders, files, identity, wake
        self.tree = ProcessTree(contained=orders.containment == "subreaper" and become_subreaper())
        self.outputs = [Output(files, name, orders.output_cap) for name in ("stdout", "stderr")]
        self.reserve: Draft | None = files.draft("exit.json")
        set_aside(self.reserve.fd, RESERVE)
        self.error: str | None = None
        self.ended_by: str | None = None
        self.stop_seen = 0  # the inode of the stop request that was obeyed last
        self.kill_at = 0.0  # by the monotonic clock; 0 while nothing is being ended
        self.pause = QUICK

    def start(self) -> None:
        """Execute the command, once ``started`` is durable."""
        orders, (stdout, stderr) = self.orders, (output.fd for output in self.outputs)
        command = Command(orders.command, orders.cwd, stdout, stderr, isolated=orders.isolation == "namespaces")
        self.tree.main, self.tree.told = command.pid, command.told
        self.started_at = time.time()
        main = stat_of(command.pid)
        started = {
            "v": 1, "cookie": self.orders.cookie, "pid": command.pid, "ticks": main.ticks if main else 0,
            "runner": self.identity.as_json(), "cgroup": system_text("/proc/self/cgroup"), "ancestors": ancestors(),
            "grace": self.orders.stop_grace, "token": os.environ.get("WAKEFUL_TOKEN", ""),
            "started_at": utc(self.started_at),
        }  # fmt: skip
        try:
            self.files.publish("started", encoded(started).encode())
        except OSError:
            command.abandon()
            self.files.remove("started")
            raise
        self.began = self.grown = self.looked = time.monotonic()
        self.error = command.release()

    def watch(self) -> None:
        """Stay until nothing of the tree is left, ending it where it must end."""
        while self.tree.reap():
            now = time.monotonic()
            pause = self._look(now)
            self._judge(now, self._stop_request())
            if self.kill_at:
                self.tree.end(kill=now >= self.kill_at)
                if self.tree.status is not None and now >= self.kill_at + self.orders.drain:
                    self.tree.contained = False  # processes of another user, which no signal of ours reaches
                    break
            self._wait(now + pause)
        self.ended_at = time.time()
        for output in self.outputs:
            output.finish()

    def _stop_request(self) -> int:
        """Return the inode of the file ``stop``, or 0; a new request, with a shorter grace, has a new inode."""
        try:
            return os.stat("stop", dir_fd=self.files.fd, follow_symlinks=False).st_ino
        except OSError:
            return 0

    def _judge(self, now: float, stop: int) -> None:
        """Decide whether the tree has to end, and by when; the first reason is the one that is recorded."""
        orders, grace, reason = self.orders, self.orders.stop_grace, None
        if stop and stop != self.stop_seen:
            self.stop_seen, reason, grace = stop, "stopped", asked_grace(self.files, grace)
        elif orders.max_runtime and now >= self.began + orders.max_runtime:
            reason = "timed_out"
        elif orders.silence_limit and now >= self.grown + orders.silence_limit:
            reason = "silent"
        if self.tree.status is None:
            self.ended_by = self.ended_by or reason
        if reason or self.tree.status is not None:
            self.kill_at = min(self.kill_at or now + grace, now + grace)

    def _look(self, now: float) -> float:
        """See how the output grew; return the seconds until the next look, fewer where it nears its cap."""
        change = sum([output.look() for output in self.outputs])
        limit = SLOW if self.kill_at else self.orders.poll
        self.pause = min(2 * self.pause, limit) if self.orders.output_cap else limit
        if change:
            self.grown = now
            if self.orders.output_cap:
                room = min(output.room for output in self.outputs)
                self.pause = min(limit, room * (now - self.looked) / change / 2)
        self.looked = now
        self.pause = max(QUICK, self.pause)
        return self.pause

    def _wait(self, until: float) -> None:
        """Wait for a signal, the moment ``until``, or the next one at which there is something to decide."""
        orders, moments = self.orders, [until]
        if self.kill_at:
            moments += [self.kill_at] if self.kill_at > self.looked else []
        else:
            moments += [self.began + orders.max_runtime] if orders.max_runtime else []
            moments += [self.grown + orders.silence_limit] if orders.silence_limit else []
        sources = [self.wake] if self.tree.told < 0 else [self.wake, self.tree.told]
        if self.wake in select.select(sources, [], [], max(0.0, min(moments) - time.monotonic()))[0]:
            os.read(self.wake, 4096)

    def record(self) -> bool:
        """Write ``exit.json``, however long the disk stays full. False if the run's directory was removed."""
        code = os.waitstatus_to_exitcode(self.tree.status or 0)
        report = {
            "v": 1, "cookie": self.orders.cookie, "code": code if code >= 0 and not self.error else None,
            "signal": -code if code < 0 and not self.error else None, "ended_by": self.ended_by, "error": self.error,
            "grade": "contained" if self.tree.contained else "waited", "started_at": utc(self.started_at),
            "ended_at": utc(self.ended_at), "survivors_killed": len(self.tree.outlived),
            "processes_ended": len(self.tree.ended),
            "truncated": [output.name for output in self.outputs if output.cut],
        }  # fmt: skip
        pause = 0.1
        while True:
            try:
                self.files.publish("exit.json", encoded(report).encode(), self.reserve)
                return True
            except OSError:
                if os.fstat(self.files.fd).st_nlink == 0:
                    return False
            time.sleep(pause)
            self.reserve, pause = None, min(2 * pause, 5.0)


def set_aside(fd: int, size: int) -> None:
    """Claim disk space for a file. Raises OSError on a full disk; does nothing where that cannot be asked for."""
    try:
        os.posix_fallocate(fd, 0, size)
    except AttributeError:
        return
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise


def asked_grace(files: RunFiles, default: float) -> float:
    """Return the grace in seconds that the stop request names, or ``default``."""
    import json

    try:
        return max(0.0, float(json.loads(files.read("stop") or b"")["grace"]))
    except (OSError, ValueError, TypeError, KeyError):
        return default
