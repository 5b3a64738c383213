"""The search for what is left of a run whose runner was killed.

Every process of a run carries ``WAKEFUL_RUN=<cookie>`` in its environment unless it took pains to lose it.
A process belongs to the run if it has the cookie, is the child of one that does, or holds the run's output
open for writing (which only inheritance gives).

What could hide is a process that started since the runner did, in the runner's control group or one below,
whose environment is empty or not ours to read (another user's), and whose parent is one that inherits orphans
of the run: an ancestor of the runner, or pid 1. As long as one lives nothing is certain.

Not seen at all: a process that gave itself another, non-empty environment, closed its output and lost its
parent; and processes that asked someone else (cron, a container engine) to start something.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from wakeful.executions import Grade, Uncertain, Vanished
from wakeful_plugins.process_table import KERNEL_THREAD, Stat, processes, send, system_text
from wakeful_plugins.run_files import RunFiles
from wakeful_plugins.run_record import Started

QUICK, SLOW = 0.01, 0.25  # seconds between two searches
SETTLE = 0.5  # seconds for a process between fork and exec, whose environment reads as empty, to show who it is


@dataclass(frozen=True, slots=True)
class Search:
    """One look at all processes: those of the run, and those that might be."""

    ours: tuple[Stat, ...]
    hidden: tuple[Stat, ...]


def carriers(cookie: str) -> tuple[int, ...]:
    """Return the pids of the living processes that carry a run's cookie, this one left out."""
    mark = _mark(cookie)
    return tuple(
        stat.pid for stat in processes() if stat.lives and stat.pid != os.getpid() and mark in _environment(stat.pid)
    )


def clear_survivors(started: Started, cookie: str, files: RunFiles, drain: float) -> Vanished | Uncertain:
    """End what is left of a run whose runner is dead, and say what is proven then. The run's lock must be held.

    TERM, then KILL after the run's stop grace, then up to ``drain`` seconds for the kernel to do it.
    """
    if not started.runner.boot:
        return Uncertain("the runner was killed, and this system cannot be searched for its children")
    if not started.runner.visible:
        return _elsewhere(started)
    outputs = _identities(files)
    begin = time.monotonic()
    kill_at, killed, hidden_since, pause = begin + started.grace, dict[tuple[int, int], bool](), begin, QUICK
    while True:
        search = look(started, cookie, outputs)
        now = time.monotonic()
        for stat in search.ours:
            one = (stat.pid, stat.ticks)
            if one not in killed or now >= kill_at:
                killed[one] = send(*one, signal.SIGKILL if now >= kill_at else signal.SIGTERM)
                send(*one, signal.SIGCONT)
        if search.ours:
            hidden_since = now
            if now >= kill_at + drain:
                return Uncertain(f"cannot end {_names(search.ours)} of this run: kill them as their own user")
        elif not search.hidden:
            if not look(started, cookie, outputs).ours:  # once more: one may have forked behind the search's back
                return Vanished(Grade.CONTAINED, len(killed))
        elif now >= hidden_since + SETTLE:
            return Uncertain(
                f"the runner was killed, and {_names(search.hidden)}, which started since, hide their environment"
            )
        time.sleep(pause)
        pause = min(2 * pause, SLOW)


def look(started: Started, cookie: str, outputs: frozenset[tuple[int, int]]) -> Search:
    """Search all processes once.

    Arguments:
        outputs: (device, inode) of the run's output files.
    """
    mark = _mark(cookie)
    ours: dict[int, Stat] = {}
    hidden: dict[int, Stat] = {}
    for stat in sorted(processes(), key=lambda stat: (stat.ticks, stat.pid)):  # parents before their children
        if not stat.lives or stat.flags & KERNEL_THREAD or stat.ticks < started.runner.ticks or stat.pid == os.getpid():
            continue
        environment = _environment(stat.pid)
        if mark in environment or stat.parent in ours or _writes_to(stat.pid, outputs):
            ours[stat.pid] = stat
        elif (
            len(environment) <= 2
            and (stat.parent == 1 or stat.parent in started.ancestors or stat.parent in hidden)
            and within(started.cgroup, system_text(f"/proc/{stat.pid}/cgroup"))
        ):
            hidden[stat.pid] = stat
    return Search(tuple(ours.values()), tuple(hidden.values()))


def within(outer: str, inner: str) -> bool:
    """Say whether control groups ``inner`` lie in ``outer`` or below, in every hierarchy; unknown counts as yes."""
    if not outer or not inner:
        return True
    groups = dict(line.rpartition(":")[::2] for line in inner.splitlines())
    for line in outer.splitlines():
        hierarchy, _, path = line.rpartition(":")
        below = groups.get(hierarchy, path)
        if below != path and not below.startswith(path.rstrip("/") + "/"):
            return False
    return True


def _elsewhere(started: Started) -> Vanished | Uncertain:
    """Judge a run of another boot or another pid namespace, whose processes cannot be searched for from here."""
    if not started.runner.same_boot:
        return Vanished(Grade.CONTAINED)  # no process outlives its boot
    return Uncertain(
        "the runner is dead, but it ran in another pid namespace (a container?), which cannot be searched from here:"
        " if that container is gone, so is the run"
    )


def _mark(cookie: str) -> bytes:
    return f"\0WAKEFUL_RUN={cookie}\0".encode()


def _environment(pid: int) -> bytes:
    """Return a process's environment between NULs; nothing but those where it is empty or not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0" + file.read() + b"\0"
    except OSError:
        return b"\0\0"


def _writes_to(pid: int, outputs: frozenset[tuple[int, int]]) -> bool:
    """Say whether a process holds one of the run's outputs open for writing."""
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                found = os.stat(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if (found.st_dev, found.st_ino) in outputs:
                flags = system_text(f"/proc/{pid}/fdinfo/{fd}").partition("flags:")[2].split()
                if flags and int(flags[0], 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
    except OSError:
        return False
    return False


def _identities(files: RunFiles) -> frozenset[tuple[int, int]]:
    found = set()
    for name in ("stdout", "stderr"):
        try:
            stat = os.stat(name, dir_fd=files.fd, follow_symlinks=False)
        except OSError:
            continue
        found.add((stat.st_dev, stat.st_ino))
    return frozenset(found)


def _names(found: tuple[Stat, ...]) -> str:
    return "processes " + ", ".join(f"{stat.pid} ({system_text(f'/proc/{stat.pid}/comm')})" for stat in found[:5])
