"""The seam between coordination and the filesystem: every file operation of this package goes through it.

Names are relative to an open directory descriptor ``at``. No implementation follows a link in any
component, and every failure is an ``OSError`` with its errno. The real one is
:class:`wakeful_coordination.posix.PosixFilesystem`; the proof runs the same code on an in-memory model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Status(NamedTuple):
    """What stands at a name: its kind, owner, permission bits, number of names, and identity.

    A named tuple, because one is made each time a lease file is opened and a dataclass costs four times as much.
    """

    kind: str
    uid: int
    mode: int
    links: int
    inode: int
    device: int


class Filesystem(Protocol):
    """The operations this package needs of a POSIX filesystem."""

    #: Lock without waiting; says whether it was granted. Attributes, because these are the hot path.
    try_lock: Callable[[int], bool]
    #: Give a lock back; the descriptor stays open.
    unlock: Callable[[int], None]
    #: ``lseek(fd, 0, SEEK_END)`` returns the length in bytes: the cheapest call that tells it.
    seek: Callable[[int, int, int], int]

    def open_directory(self, path: str, at: int | None = None) -> int:
        """Open a directory; ``at=None`` opens a root by its absolute path."""

    def open_file(self, path: str, at: int, *, write: bool = False) -> int:
        """Open an existing file without ever blocking on a FIFO."""

    def create(self, name: str, at: int) -> int:
        """Create a file that must not exist, for its owner only."""

    def make_directory(self, name: str, at: int) -> bool:
        """Create a directory for its owner only; False where the name is taken."""

    def read(self, fd: int, limit: int) -> bytes:
        """Read from the start, at most ``limit`` bytes."""

    def write(self, fd: int, data: bytes) -> None:
        """Write all of ``data`` at the start of the file, or raise."""

    def truncate(self, fd: int) -> None:
        """Empty the file."""

    def status(self, fd: int) -> Status:
        """Describe an open file."""

    def stat(self, name: str, at: int) -> Status | None:
        """Describe a name without following it; None where nothing stands."""

    def sync(self, fd: int) -> None:
        """Make a file's bytes, or a directory's names, survive power loss."""

    def rename(self, source: str, target: str, at: int) -> None:
        """Rename within one directory, replacing the target."""

    def rename_new(self, source: str, target: str, at: int) -> None:
        """Rename within one directory; FileExistsError where the target exists."""

    def link(self, source: str, source_at: int, target: str, target_at: int) -> None:
        """Add a name to a file; FileExistsError where the target exists."""

    def unlink(self, name: str, at: int) -> None:
        """Remove a name."""

    def names(self, fd: int) -> list[str]:
        """List a directory; never on a hot path."""

    def touch(self, name: str, at: int) -> None:
        """Create the file, or change its time: watchers of the directory are told."""

    def close(self, fd: int) -> None:
        """Close a descriptor; a lock held through it alone is freed."""

    def lock(self, fd: int) -> None:
        """Lock, waiting as long as it takes."""

    def guard_forks(self, before: Callable[[], None], parent: Callable[[], None], child: Callable[[], None]) -> None:
        """Have these called around every fork of this process, in the parent and in the child."""

    def try_share(self, fd: int) -> bool:
        """Take a shared lock without waiting; says whether it was granted."""
