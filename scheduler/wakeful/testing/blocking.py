"""Proof that one transaction waits for another's lock: the server itself must say so."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import Connection

from wakeful.store import query

T = TypeVar("T")

_BEAT = 0.005


class Blocked(Generic[T]):
    """A writer in a thread of its own.

    Attributes:
        pid: the server's process of the session that waits.
        lock: the kind of lock it waits for: ``transactionid`` and ``tuple`` for rows, ``advisory``, ``relation``.
    """

    def __init__(self, writer: Callable[[], T]) -> None:
        self.pid = 0
        self.lock = ""
        self._writer = writer
        self._result: T | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blocked writer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._writer()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    @property
    def finished(self) -> bool:
        """Whether the writer has returned or raised."""
        return self._done.is_set()

    def wait(self, within: float) -> bool:
        """Wait up to ``within`` seconds for the writer; return whether it finished."""
        return self._done.wait(within)

    def result(self, within: float = 30.0) -> T:
        """Return what the writer returned, or raise what it raised, once its lock is free.

        Raises:
            AssertionError: it has not finished ``within`` seconds.
        """
        if not self._done.wait(within):
            raise AssertionError(f"the writer still waits {within:g} s after it was to be released")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # set when there is no error


@contextlib.contextmanager
def expect_blocked(
    writer: Callable[[], T],
    *,
    behind: Connection[Any],
    watcher: Connection[Any],
    within: timedelta = timedelta(seconds=10),
    lock: str | None = None,
) -> Iterator[Blocked[T]]:
    """Run ``writer`` and enter the block when the server shows a session waiting for a lock that ``behind`` holds.

    In the block, end ``behind``'s transaction and ask for ``result()``. Leaving the block always releases: an open
    transaction of ``behind`` is rolled back, and the writer awaited.

    Arguments:
        writer: does its work on sessions of its own.
        behind: a session with an open transaction (or session locks) in the same database.
        watcher: a third, autocommit session of the same database, to ask the server with.
        within: how long the writer may take to reach the lock.
        lock: the kind of lock it must wait for; None accepts any.

    Raises:
        AssertionError: the writer finished first, or did not come to wait in time.
    """
    holder = behind.info.backend_pid
    before = {pid for pid, _ in _waiting(watcher, holder)}
    blocked = Blocked(writer)
    try:
        deadline = time.monotonic() + within.total_seconds()
        while not (found := [row for row in _waiting(watcher, holder) if row[0] not in before]):
            if blocked.wait(_BEAT):
                outcome = f"raised {blocked._error!r}" if blocked._error else "finished"
                raise AssertionError(f"the writer {outcome} without waiting for the lock")
            if time.monotonic() >= deadline:
                raise AssertionError(
                    f"the writer waits for no lock of session {holder} after {within.total_seconds():g} s"
                )
        blocked.pid, blocked.lock = found[0]
        if lock is not None and blocked.lock != lock:
            raise AssertionError(f"the writer waits for a lock of kind {blocked.lock}, not {lock}")
        yield blocked
    finally:
        with contextlib.suppress(psycopg.Error):
            if behind.info.transaction_status != 0:
                # Not rollback(): psycopg forbids it inside a transaction block, where the lock would stay.
                behind.execute("ROLLBACK")
        if not blocked.wait(30):
            raise AssertionError("the writer does not end although the lock was released")


def _waiting(watcher: Connection[Any], holder: int) -> list[tuple[int, str]]:
    return watcher.execute(query("testing.blocked_behind"), {"holder": holder}).fetchall()
