"""The real filesystem of Linux behind the seam."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Callable

from wakeful_coordination.filesystem import Status

_OPENAT2 = 437  # one number on every architecture
_NO_SYMLINKS_BENEATH = 0x04 | 0x08
_NOREPLACE = 1
#: Read at first: more than any record but a long one holds.
_CHUNK = 1 << 16
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_READ = os.O_RDONLY | _OPEN
_WRITE = os.O_RDWR | _OPEN
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | _OPEN
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo"}
#: The kernel, or a sandbox around it, does not offer the call: fall back to the portable one.
_ABSENT = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_SIZE = ctypes.sizeof(_OpenHow)


class PosixFilesystem:
    """Linux system calls, with flock for locks and no link followed anywhere below a root."""

    def __init__(self) -> None:
        # filelock costs 45 ms to import: only a process that opens a root pays for it.
        from filelock import lock_descriptor, unlock_descriptor

        libc = ctypes.CDLL(None, use_errno=True)
        self._syscall = libc.syscall
        self._renameat2 = getattr(libc, "renameat2", None)
        self._openat2 = True
        #: How to open, by flags: made once, only ever read by the kernel.
        self._hows = {
            flags: ctypes.byref(_OpenHow(flags, 0, _NO_SYMLINKS_BENEATH)) for flags in (_READ, _WRITE, _DIRECTORY)
        }
        self.unlock: Callable[[int], None] = unlock_descriptor

        def try_lock(fd: int) -> bool:
            return lock_descriptor(fd, blocking=False)

        self.try_lock: Callable[[int], bool] = try_lock
        self.seek: Callable[[int, int, int], int] = os.lseek

    def open_directory(self, path: str, at: int | None = None) -> int:
        """Open a directory without following a link."""
        if at is None:
            return os.open(path, _DIRECTORY)
        return self._open(path, _DIRECTORY, at)

    def open_file(self, path: str, at: int, *, write: bool = False) -> int:
        """Open an existing file without following a link or waiting for a FIFO's other end."""
        return self._open(path, _WRITE if write else _READ, at)

    def _open(self, path: str, flags: int, at: int) -> int:
        if "/" not in path:
            return os.open(path, flags, dir_fd=at)
        if self._openat2:
            syscall = self._syscall
            fd: int = syscall(_OPENAT2, at, path.encode(), self._hows[flags], _HOW_SIZE)
            if fd >= 0:
                return fd
            number = ctypes.get_errno()
            if number not in _ABSENT:
                raise OSError(number, os.strerror(number), path)
            self._openat2 = False
        return self._walk(path, flags, at)

    def _walk(self, path: str, flags: int, at: int) -> int:
        parents, _, name = path.rpartition("/")
        here = at
        try:
            for part in parents.split("/"):
                below = os.open(part, _DIRECTORY, dir_fd=here)
                if here != at:
                    os.close(here)
                here = below
            return os.open(name, flags, dir_fd=here)
        finally:
            if here != at:
                os.close(here)

    def create(self, name: str, at: int) -> int:
        """Create a file that must not exist, mode 0600."""
        return os.open(name, _CREATE, 0o600, dir_fd=at)

    def make_directory(self, name: str, at: int) -> bool:
        """Create a directory, mode 0700; False where the name is taken."""
        try:
            os.mkdir(name, 0o700, dir_fd=at)
        except FileExistsError:
            return False
        return True

    def read(self, fd: int, limit: int) -> bytes:
        """Read from the start, at most ``limit`` bytes."""
        first = min(limit, _CHUNK)
        data = os.pread(fd, first, 0)
        if len(data) < first:
            return data  # a short read of a regular file is its end
        chunks = [data]
        offset = len(data)
        while offset < limit and (data := os.pread(fd, min(limit - offset, _CHUNK), offset)):
            chunks.append(data)
            offset += len(data)
        return b"".join(chunks)

    def write(self, fd: int, data: bytes) -> None:
        """Write all of ``data`` at the start; a short write is repeated until it ends or fails."""
        done = os.pwrite(fd, data, 0)
        while done < len(data):
            done += os.pwrite(fd, data[done:], done)

    def truncate(self, fd: int) -> None:
        """Empty the file."""
        os.ftruncate(fd, 0)

    def status(self, fd: int) -> Status:
        """Describe an open file."""
        mode, inode, device, links, uid = os.fstat(fd)[:5]
        return Status(_KINDS.get(mode & 0o170000, "other"), uid, mode & 0o7777, links, inode, device)

    def stat(self, name: str, at: int) -> Status | None:
        """Describe a name without following it."""
        try:
            mode, inode, device, links, uid = os.stat(name, dir_fd=at, follow_symlinks=False)[:5]
        except FileNotFoundError:
            return None
        return Status(_KINDS.get(mode & 0o170000, "other"), uid, mode & 0o7777, links, inode, device)

    def sync(self, fd: int) -> None:
        """Flush with fsync; never repeated by anyone after an error."""
        os.fsync(fd)

    def rename(self, source: str, target: str, at: int) -> None:
        """Rename within one directory, replacing the target."""
        os.rename(source, target, src_dir_fd=at, dst_dir_fd=at)

    def rename_new(self, source: str, target: str, at: int) -> None:
        """Rename without clobbering, or link and unlink where the kernel cannot."""
        renameat2 = self._renameat2
        if renameat2 is not None:
            if renameat2(at, source.encode(), at, target.encode(), _NOREPLACE) == 0:
                return
            number = ctypes.get_errno()
            if number not in _ABSENT:
                raise OSError(number, os.strerror(number), source, None, target)
        self.link(source, at, target, at)
        self.unlink(source, at)

    def link(self, source: str, source_at: int, target: str, target_at: int) -> None:
        """Add a name to a file, never through a link."""
        os.link(source, target, src_dir_fd=source_at, dst_dir_fd=target_at, follow_symlinks=False)

    def unlink(self, name: str, at: int) -> None:
        """Remove a name."""
        os.unlink(name, dir_fd=at)

    def names(self, fd: int) -> list[str]:
        """List a directory."""
        return os.listdir(fd)

    def touch(self, name: str, at: int) -> None:
        """Create the file or set its time to now; both tell an inotify watch."""
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | _OPEN, 0o600, dir_fd=at)
        try:
            os.utime(fd)
        finally:
            os.close(fd)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def lock(self, fd: int) -> None:
        """Wait in the kernel's queue: polling starves under contention, the queue does not."""
        fcntl.flock(fd, fcntl.LOCK_EX)

    def guard_forks(self, before: Callable[[], None], parent: Callable[[], None], child: Callable[[], None]) -> None:
        """Register with the interpreter; such hooks can never be taken back."""
        os.register_at_fork(before=before, after_in_parent=parent, after_in_child=child)

    def try_share(self, fd: int) -> bool:
        """Take a shared flock without waiting."""
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
