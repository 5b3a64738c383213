"""Locks that the kernel frees when their last holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path


class LockFile:
    """One open lock file; not inherited by programs this process executes."""

    def __init__(self, path: Path) -> None:
        # No O_TRUNC and no link followed: root opens these beside files of a lesser account.
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def take(self, *, shared: bool) -> bool:
        """Take the lock if nobody stands in the way; a lock already held is converted. Never waits."""
        try:
            fcntl.flock(self.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self, *, shared: bool, deadline: float, beat: float) -> bool:
        """Take the lock, trying each ``beat`` seconds until ``deadline`` (monotonic seconds)."""
        while not self.take(shared=shared):
            if time.monotonic() >= deadline:
                return False
            time.sleep(beat)
        return True

    def close(self) -> None:
        """Let go. The lock stays held while a child that was given the descriptor lives."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> LockFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_held(path: Path) -> bool:
    """Tell whether any process holds the lock at ``path``."""
    with LockFile(path) as lock:
        return not lock.take(shared=True)
