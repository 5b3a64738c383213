"""What the system says of processes: who lives, since when, below whom.

A pid alone is never trusted: it counts together with the process's start ticks, and across time with the
boot id. Imports little of the standard library and nothing else, because the runner starts with it.
"""

from __future__ import annotations

import os

from wakeful_plugins import light_signal as signal

KERNEL_THREAD = 0x00200000  # PF_KTHREAD


class Stat:
    """One line of /proc/<pid>/stat, as far as it is needed; ``ticks`` is the start in clock ticks since boot."""

    __slots__ = ("flags", "parent", "pid", "state", "ticks")

    def __init__(self, pid: int, line: bytes) -> None:
        fields = line.rpartition(b")")[2].split()  # the name before it may hold blanks and parentheses
        self.pid = pid
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.flags = int(fields[6])
        self.ticks = int(fields[19])

    @property
    def lives(self) -> bool:
        """Whether it can still act: neither a zombie nor dead."""
        return self.state not in "ZX"


def system_text(path: str) -> str:
    """Return the text of a small system file, or "" where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def boot_id() -> str:
    """Return the id of this boot, or "" where the system has none."""
    return system_text("/proc/sys/kernel/random/boot_id")


def pid_namespace() -> int:
    """Return the number of this process's pid namespace, or 0 where there are none."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


class ProcessIdentity:
    """One process among all there ever were: pid, start ticks, boot id and pid namespace."""

    __slots__ = ("boot", "namespace", "pid", "ticks")

    def __init__(self, pid: int, ticks: int, boot: str, namespace: int) -> None:
        self.pid = pid
        self.ticks = ticks
        self.boot = boot
        self.namespace = namespace

    @classmethod
    def of_this_process(cls) -> ProcessIdentity:
        """Return the identity of the calling process."""
        stat = stat_of(os.getpid())
        return cls(os.getpid(), stat.ticks if stat else 0, boot_id(), pid_namespace())

    def as_json(self) -> dict[str, object]:
        """Return the fields by their names."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def same_boot(self) -> bool:
        """Whether it belongs to this boot. No process outlives its boot."""
        return self.boot == boot_id()

    @property
    def visible(self) -> bool:
        """Whether its pid means the same here as there: same boot, same pid namespace."""
        return self.same_boot and self.namespace == pid_namespace()


def stat_of(pid: int) -> Stat | None:
    """Return what the system says of ``pid``, or None when it is gone or there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return Stat(pid, file.read())
    except (OSError, IndexError):
        return None


def ancestors() -> list[int]:
    """Return the pids of the calling process's parent, its parent, and so on."""
    found: list[int] = []
    stat = stat_of(os.getpid())
    while stat is not None and stat.parent > 0:
        found.append(stat.parent)
        stat = stat_of(stat.parent)
    return found


def processes() -> list[Stat]:
    """Return every process this one can see."""
    return [stat for name in os.listdir("/proc") if name.isdigit() and (stat := stat_of(int(name))) is not None]


def descendants(root: int) -> list[Stat]:
    """Return every living process below ``root``. The orphans of a subreaper are its children."""
    children: dict[int, list[Stat]] = {}
    for stat in processes():
        children.setdefault(stat.parent, []).append(stat)
    tree: list[Stat] = []
    edge = children.get(root, [])
    while edge:
        tree += edge
        edge = [child for stat in edge for child in children.get(stat.pid, ())]
    return [stat for stat in tree if stat.lives]


def open_process(pid: int, ticks: int) -> int | None:
    """Return a descriptor (pidfd) of the living process ``pid`` that started at ``ticks``; None if it is gone.

    Raises OSError where the system has no pidfds.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    stat = stat_of(pid)  # read after the descriptor was made: the same start means the same process
    if stat is not None and stat.ticks == ticks and stat.lives:
        return handle
    os.close(handle)
    return None


def send(pid: int, ticks: int, number: int) -> bool:
    """Signal ``pid`` if it is still the process that started at ``ticks``. False: gone, or another user's."""
    try:
        handle = open_process(pid, ticks)
    except (OSError, AttributeError):  # no pidfds here: the start ticks alone must do
        stat = stat_of(pid)
        return stat is not None and stat.ticks == ticks and _kill(pid, number)
    if handle is None:
        return False
    try:
        signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True


def _kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
