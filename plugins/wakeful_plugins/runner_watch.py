"""One thread that waits for runners to start their command, and to end."""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from wakeful.executions import RunKey


@dataclass(slots=True)
class Watched:
    """One runner under watch.

    Arguments:
        handle: its pidfd, or None where the system has none; then its lock is looked at now and then.
        child: its pid if it is a child of this process, which must collect it.
        ready: a pipe that closes once the command runs, with a message in it if that failed.
    """

    key: RunKey
    handle: int | None
    child: int | None = None
    ready: int | None = None
    message: str = ""


class Listener(Protocol):
    """Who is told; called on the watching thread."""

    def runner_started(self, key: RunKey) -> None:
        """The command has been executed (or the runner is about to end)."""

    def runner_ended(self, key: RunKey, message: str) -> None:
        """The runner is dead. ``message`` says why it executed nothing, if it said so."""


class RunnerWatch:
    """Watches runners, children or not, without polling: a selector over pidfds.

    Arguments:
        is_held: tells whether a run's lock is held; asked every ``poll`` seconds for runners without a pidfd.
    """

    def __init__(self, listener: Listener, is_held: Callable[[RunKey], bool], poll: float) -> None:
        self._listener = listener
        self._is_held = is_held
        self._poll = poll
        self._guard = threading.Lock()
        self._watched: dict[RunKey, Watched] = {}
        self._fresh: list[Watched] = []
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        self._thread: threading.Thread | None = None
        self._closed = False

    def knows(self, key: RunKey) -> bool:
        """Say whether the runner of ``key`` is under watch, and was alive when last heard of."""
        with self._guard:
            return key in self._watched

    def add(self, watched: Watched) -> None:
        """Watch one more runner, from now on the owner of its descriptors. The first for a key stays the only one."""
        with self._guard:
            if self._closed or watched.key in self._watched:
                _release(watched)
                return
            if watched.ready is not None:
                os.set_blocking(watched.ready, False)
            self._watched[watched.key] = watched
            self._fresh.append(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="wakeful-runner-watch", daemon=True)
                self._thread.start()
        os.write(self._wake, b"!")

    def close(self) -> None:
        """Stop watching and leave the runners alone. Waits for a callback that is being made."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            thread = self._thread
        if thread is None:
            self._clear()
            return
        os.write(self._wake, b"!")
        if thread is not threading.current_thread():
            thread.join()

    def _clear(self) -> None:
        self._selector.close()
        for watched in self._watched.values():
            _release(watched)
        self._watched.clear()
        os.close(self._woken)
        os.close(self._wake)

    def _run(self) -> None:
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        while (blind := self._take_fresh()) is not None:
            for event, _ in self._selector.select(self._poll if blind else None):
                if event.data is None:
                    _read(event.fd)
                else:
                    self._hear(event.data, event.fd)
            for watched in blind:
                self._probe(watched)
        self._clear()

    def _take_fresh(self) -> list[Watched] | None:
        """Register newcomers; return those that must be probed, or None once the watch is closed."""
        with self._guard:
            if self._closed:
                return None
            fresh, self._fresh = self._fresh, []
            blind = [watched for watched in self._watched.values() if watched.handle is None]
        for watched in fresh:
            for fd in (watched.handle, watched.ready):
                if fd is not None:
                    self._selector.register(fd, selectors.EVENT_READ, watched)
        return blind

    def _hear(self, watched: Watched, fd: int) -> None:
        """Act on one readable descriptor."""
        if fd == watched.ready:
            data = _read(fd)
            watched.message += data.decode("utf-8", "replace")
            if not data:
                self._forget(fd)
                watched.ready = None
                self._tell(lambda: self._listener.runner_started(watched.key))
        elif fd == watched.handle:
            self._end(watched)

    def _probe(self, watched: Watched) -> None:
        """See whether a runner without a pidfd lives: as our child, or else as the holder of its lock."""
        if watched.child is not None:
            if not _collect(watched.child):
                return
        elif self._is_held(watched.key):
            return
        self._end(watched)

    def _end(self, watched: Watched) -> None:
        if watched.ready is not None:  # what it said before it died may still be in there
            while data := _read(watched.ready):
                watched.message += data.decode("utf-8", "replace")
            self._forget(watched.ready)
        if watched.handle is not None:
            self._forget(watched.handle)
            if watched.child is not None:
                _collect(watched.child)
        watched.handle = watched.ready = None
        with self._guard:
            self._watched.pop(watched.key, None)
        self._tell(lambda: self._listener.runner_ended(watched.key, watched.message.strip()))

    def _forget(self, fd: int) -> None:
        self._selector.unregister(fd)
        os.close(fd)

    def _tell(self, call: Callable[[], None]) -> None:
        """Make a callback. One that raises must not end the watch over all other runs."""
        try:
            call()
        except Exception:
            logging.getLogger(__name__).exception("a callback of the runner watch failed")


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""


def _collect(pid: int) -> bool:
    """Collect a child that has ended, so that no zombie stays; False while it lives."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True  # somebody else in this process collects all children


def _release(watched: Watched) -> None:
    for fd in (watched.handle, watched.ready):
        if fd is not None:
            os.close(fd)
