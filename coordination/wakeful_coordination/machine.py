"""Who this process is to others on the same host: for messages, and for the one proof a new boot gives."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from wakeful_coordination.errors import InDoubt


@dataclass(frozen=True, slots=True)
class Machine:
    """The kernel and the process that opened a root.

    Only ``boot_id`` proves anything: a process of another boot is dead. The rest tells people where to look.
    """

    boot_id: str
    host: str
    pid: int
    start_ticks: int
    pid_namespace: str

    @classmethod
    def here(cls, proc: Path = Path("/proc")) -> Machine:
        """Read the identity of the calling process; raises InDoubt where the kernel does not tell."""
        try:
            stat = (proc / "self/stat").read_text(errors="replace")
            boot_id = (proc / "sys/kernel/random/boot_id").read_text().strip()
            namespace = (proc / "self/ns/pid").readlink().name
        except OSError as error:
            raise InDoubt(
                f"{error.filename}: {error.strerror}: without it nobody's death can be proven", hint="mount /proc"
            ) from error
        # The program's name may contain blanks and parentheses: count from its end.
        ticks = int(stat.rpartition(")")[2].split()[19])
        return cls(boot_id, socket.gethostname(), os.getpid(), ticks, namespace)


def lock_owners(inode: int, locks: str) -> list[int]:
    """Return the process ids that /proc/locks (its text) names for an inode: for messages only."""
    owners = []
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            owners.append(int(fields[4]))
    return owners
