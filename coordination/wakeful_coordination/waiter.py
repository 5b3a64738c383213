"""Waiting for a lock no longer than a deadline, in the kernel's queue rather than by polling."""

from __future__ import annotations

import threading

from wakeful_coordination.root import Root


class Waiter:
    """One thread that waits for one descriptor's lock; a grant that comes too late is given straight back."""

    def __init__(self, root: Root, fd: int) -> None:
        self._root = root
        self._fd = fd
        self._state = threading.Lock()
        self._granted = threading.Event()
        self._error: OSError | None = None
        self._abandoned = False
        threading.Thread(target=self._wait, name="lease-waiter", daemon=True).start()

    def _wait(self) -> None:
        try:
            self._root.files.lock(self._fd)
        except OSError as error:
            self._error = error
        with self._state:
            if self._abandoned:
                self._root.close_lock(self._fd)
            self._granted.set()

    def grant(self, seconds: float) -> bool:
        """Wait up to ``seconds``; True when the lock is held through the descriptor, which is then the caller's.

        On False the descriptor belongs to the waiter, which closes it when its turn comes.
        """
        try:
            self._granted.wait(seconds)
        except BaseException:
            self._decide(wanted=False)
            raise
        granted = self._decide(wanted=True)
        if self._error is not None:
            raise self._error
        return granted

    def _decide(self, *, wanted: bool) -> bool:
        """Say whether the lock is the caller's; otherwise see to it that the descriptor is closed once."""
        with self._state:
            over = self._granted.is_set()
            if wanted and over and self._error is None:
                return True
            self._abandoned = True
            if over:
                self._root.close_lock(self._fd)
            return False
