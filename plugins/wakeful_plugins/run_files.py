"""The files of one run directory, as its runner and its executor both touch them.

Everything goes through one directory descriptor: nothing follows a link or trusts a path twice. Imports
little of the standard library and nothing else, because the runner starts with it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK: a FIFO in a file's place must not hang its opener


def encoded(value: object) -> str:
    """Return ``value`` as ASCII JSON. Importing the json module would be a fifth of the runner's start-up."""
    if isinstance(value, str):
        return '"' + "".join(c if " " <= c <= "~" and c not in '"\\' else _escaped(c) for c in value) + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{encoded(key)}: {encoded(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(encoded, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join("\\u" + units[i : i + 4] for i in range(0, len(units), 4))


def utc(seconds: float) -> str:
    """Return Unix time as ISO 8601 in UTC with microseconds."""
    whole, part = divmod(int(seconds * 1_000_000), 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{part:06d}+00:00"


class RunFiles:
    """The files in the directory ``fd``, a descriptor that this object owns from now on."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        """Give the directory's descriptor back."""
        os.close(self.fd)

    def has(self, name: str) -> bool:
        """Say whether anything at all stands under ``name``."""
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def open(self, name: str, flags: int) -> int:
        """Open a plain file of this user, created 0600 with O_CREAT. Raises OSError for anything else in its place."""
        fd = os.open(name, flags | SAFE, 0o600, dir_fd=self.fd)
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1:
            return fd
        os.close(fd)
        raise OSError(errno.EINVAL, "not a plain file of this user", name)

    def read(self, name: str, limit: int = 1 << 20) -> bytes | None:
        """Return the first ``limit`` bytes of a file, or None if there is none. Raises OSError like ``open``."""
        try:
            fd = self.open(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with open(fd, "rb", buffering=0) as file:
            parts = []
            while limit > 0 and (part := file.read(limit)):
                parts.append(part)
                limit -= len(part)
        return b"".join(parts)

    def lock(self, *, shared: bool = False) -> int | None:
        """Take the run's lock without waiting: its descriptor (closing it frees the lock), or None if it is held."""
        fd = self.open("lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def draft(self, name: str) -> Draft:
        """Open the unfinished form of ``name``, under a name no other writer uses; ``publish`` makes it the file."""
        unfinished = f".{name}.{os.urandom(6).hex()}"
        return Draft(self.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL), unfinished)

    def publish(self, name: str, data: bytes, draft: Draft | None = None) -> None:
        """Write a file whole and durably, replacing an older one.

        Raises OSError if it may not survive a power cut; then the new file may or may not stand there. A
        failed draft is never written again: after a failed fsync the kernel may have dropped its content.
        """
        draft = draft or self.draft(name)
        try:
            try:
                if os.pwrite(draft.fd, data, 0) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
                os.ftruncate(draft.fd, len(data))
                os.fsync(draft.fd)
            finally:
                os.close(draft.fd)
            os.rename(draft.name, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except OSError:
            self.remove(draft.name)
            raise
        os.fsync(self.fd)

    def remove(self, name: str) -> None:
        """Remove a file if that can be done."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except OSError:
            return


class Draft:
    """A file being written: its descriptor and its name for now."""

    __slots__ = ("fd", "name")

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self.name = name
