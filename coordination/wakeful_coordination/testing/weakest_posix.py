"""The weakest POSIX filesystem behind the seam: the real code runs on it, and every step can be the last."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable

from wakeful_coordination import layout
from wakeful_coordination.filesystem import Status
from wakeful_coordination.testing.disk import Disk
from wakeful_coordination.testing.flush import ROOT, Flush, kind_of, kind_of_place

#: The mount table that goes with it: an ext4 whose device number is 1.
MOUNTINFO = "1 0 0:1 / / rw - ext4 /dev/model rw\n"
_INSTANCES = f"{ROOT}/instances/"


class WeakestPosix:
    """One boot of one machine over a :class:`Disk`.

    ``after`` is called when a change has happened, ``before`` when it is about to (with its number, from 0);
    ``deaf`` says which fsyncs are left out; without ``noreplace`` a no-clobber rename is link and unlink.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        after: Callable[[], None] = lambda: None,
        before: Callable[[int], None] = lambda step: None,
        deaf: Callable[[Flush], bool] = lambda flush: False,
        noreplace: bool = True,
    ) -> None:
        self.disk = disk
        self.flushes: list[Flush] = []
        self.listings = 0
        self._after = after
        self._before = before
        self._deaf = deaf
        self._noreplace = noreplace
        self._step = 0
        self._uid = os.geteuid()
        self._open: dict[int, str | int] = {}
        self._next_fd = 3
        self._locks: dict[int, int] = {}
        self._standing = {ROOT, "/"}
        self.try_lock: Callable[[int], bool] = self._try_lock
        self.unlock: Callable[[int], None] = self._unlock
        self.seek: Callable[[int, int, int], int] = self._seek

    def _changing(self) -> None:
        self._before(self._step)
        self._step += 1

    def _path(self, at: int) -> str:
        found = self._open[at]
        if not isinstance(found, str):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return found

    def _find(self, path: str, at: int) -> int:
        here = self._path(at)
        *parents, name = path.split("/")
        for part in parents:
            here = self._below(here, part)
        found = self.disk.visible(here).get(name)
        if found is None:
            raise _missing(path)
        return found

    def _below(self, here: str, part: str) -> str:
        if _is_shelf(here, part):
            return f"{here}/{part}"
        inode = self.disk.visible(here).get(part)
        if inode is not None and inode in self.disk.directories:
            return self.disk.directories[inode]
        raise _missing(part)

    def _opened(self, what: str | int) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = what
        return self._next_fd

    def open_directory(self, path: str, at: int | None = None) -> int:
        """Open a directory."""
        if at is None:
            if path not in self._standing:
                raise _missing(path)
            return self._opened(path)
        here = self._path(at)
        for part in path.split("/"):
            here = self._below(here, part)
        return self._opened(here)

    def open_file(self, path: str, at: int, *, write: bool = False) -> int:
        """Open a file."""
        return self._opened(self._find(path, at))

    def create(self, name: str, at: int) -> int:
        """Create an empty file."""
        self._changing()
        path = self._path(at)
        if name in self.disk.visible(path):
            raise _taken(name)
        inode = self._new_inode()
        self.disk.files[inode] = (b"", b"")
        self.disk.change(path, (name, inode))
        self._after()
        return self._opened(inode)

    def _new_inode(self) -> int:
        self.disk.next_inode += 1
        return self.disk.next_inode

    def make_directory(self, name: str, at: int) -> bool:
        """Create a directory; the shelves of a root stand from the start."""
        path = self._path(at)
        if f"{path}/{name}" in self._standing or _is_shelf(path, name) or name in self.disk.visible(path):
            return False
        self._changing()
        inode = self._new_inode()
        self.disk.directories[inode] = f"{path}/{name}"
        self.disk.change(path, (name, inode))
        self._after()
        return True

    def _inode(self, fd: int) -> int:
        found = self._open[fd]
        if isinstance(found, str):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        return found

    def read(self, fd: int, limit: int) -> bytes:
        """Read a file."""
        return self.disk.files[self._inode(fd)][1][:limit]

    def write(self, fd: int, data: bytes) -> None:
        """Write at the start of a file."""
        self._changing()
        inode = self._inode(fd)
        durable, visible = self.disk.files[inode]
        self.disk.files[inode] = (durable, data + visible[len(data) :])
        self._after()

    def truncate(self, fd: int) -> None:
        """Empty a file."""
        self._changing()
        inode = self._inode(fd)
        self.disk.files[inode] = (self.disk.files[inode][0], b"")
        self._after()

    def _seek(self, fd: int, position: int, whence: int) -> int:
        return len(self.disk.files[self._inode(fd)][1])

    def status(self, fd: int) -> Status:
        """Describe an open file."""
        found = self._open[fd]
        if isinstance(found, str):
            return Status("directory", self._uid, 0o700, 2, 0, 1)
        return self._described(found)

    def _described(self, inode: int) -> Status:
        if inode in self.disk.directories:
            return Status("directory", self._uid, 0o700, 2, inode, 1)
        # Only leases are asked for their names, and those stand in one directory.
        links = 1
        for path in {*self.disk.durable, *self.disk.pending}:
            if path.startswith(_INSTANCES):
                links = max(links, list(self.disk.visible(path).values()).count(inode))
        return Status("file", self._uid, 0o600, links, inode, 1)

    def stat(self, name: str, at: int) -> Status | None:
        """Describe a name."""
        inode = self.disk.visible(self._path(at)).get(name)
        return None if inode is None else self._described(inode)

    def sync(self, fd: int) -> None:
        """Flush, unless this model is deaf to the flush in question."""
        found = self._open[fd]
        flush = self._flush(found)
        self.flushes.append(flush)
        if self._deaf(flush):
            return
        self._changing()
        if isinstance(found, str):
            self.disk.sync_directory(found)
        else:
            self.disk.sync_file(found)
        self._after()

    def _flush(self, found: str | int) -> Flush:
        if isinstance(found, str):
            names = {kind_of(name) for change in self.disk.pending.get(found, ()) for name, _ in change}
            return "directory", kind_of_place(found), tuple(sorted(names))
        for path in self.disk.pending:
            for name, inode in self.disk.visible(path).items():
                if inode == found:
                    return "file", kind_of_place(path), (kind_of(name),)
        return "file", "?", ()

    def rename(self, source: str, target: str, at: int) -> None:
        """Rename atomically within a directory."""
        self._rename(source, target, at, clobber=True)

    def _rename(self, source: str, target: str, at: int, *, clobber: bool) -> None:
        self._changing()
        path = self._path(at)
        if not clobber and target in self.disk.visible(path):
            raise _taken(target)
        inode = self.disk.visible(path).get(source)
        if inode is None:
            raise _missing(source)
        self.disk.change(path, (source, None), (target, inode))
        self._after()

    def rename_new(self, source: str, target: str, at: int) -> None:
        """Rename without clobbering: one step, or link and unlink."""
        if self._noreplace:
            self._rename(source, target, at, clobber=False)
        else:
            self.link(source, at, target, at)
            self.unlink(source, at)

    def link(self, source: str, source_at: int, target: str, target_at: int) -> None:
        """Add a name."""
        self._changing()
        inode = self._find(source, source_at)
        path = self._path(target_at)
        if target in self.disk.visible(path):
            raise _taken(target)
        self.disk.change(path, (target, inode))
        self._after()

    def unlink(self, name: str, at: int) -> None:
        """Remove a name."""
        self._changing()
        path = self._path(at)
        if name not in self.disk.visible(path):
            raise _missing(name)
        self.disk.change(path, (name, None))
        self._after()

    def names(self, fd: int) -> list[str]:
        """List a directory."""
        self.listings += 1
        return list(self.disk.visible(self._path(fd)))

    def touch(self, name: str, at: int) -> None:
        """Do nothing: no watcher lives in the model, and losing a ring is allowed."""

    def close(self, fd: int) -> None:
        """Close, and free the lock held through the descriptor."""
        found = self._open.pop(fd)
        if isinstance(found, int) and self._locks.get(found) == fd:
            del self._locks[found]

    def _try_lock(self, fd: int) -> bool:
        return self._locks.setdefault(self._inode(fd), fd) == fd

    def _unlock(self, fd: int) -> None:
        if self._locks.get(self._inode(fd)) == fd:
            del self._locks[self._inode(fd)]

    def lock(self, fd: int) -> None:
        """Refuse to wait: one process lives in the model, so it would wait for ever."""
        if not self._try_lock(fd):
            raise OSError(errno.EDEADLK, os.strerror(errno.EDEADLK))

    def try_share(self, fd: int) -> bool:
        """Say whether nobody holds the lock."""
        return self._locks.get(self._inode(fd), fd) == fd

    def guard_forks(self, before: Callable[[], None], parent: Callable[[], None], child: Callable[[], None]) -> None:
        """Nobody forks inside the model."""


@functools.cache
def _is_shelf(path: str, name: str) -> bool:
    below = path.removeprefix(ROOT).strip("/")
    if below == "":
        return path == ROOT and name in layout.DIRECTORIES
    return (below == "outbox" and name in layout.OUTBOX) or (
        below in ("instances", "receipts") and name in layout.SHARDS
    )


def _missing(name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _taken(name: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
