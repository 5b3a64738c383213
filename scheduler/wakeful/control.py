"""The control session: LISTEN and the owners' lock held together, kept alive by an empty query.

One session per process: deaf means lockless. It never opens a transaction, since a blocked or open one would
pin the server's oldest snapshot. It sends an empty query, which the server counts as no statement, every few
seconds, and the server ends it when none comes: a frozen or dead scheduler loses its lock in seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import psycopg
from psycopg import Connection

from wakeful import backoff, store
from wakeful.connections import Watchdog, connect
from wakeful.errors import WakefulError
from wakeful.signals import Signal, asks_for_everything, parse

log = logging.getLogger("wakeful.control")


class Listener(Protocol):
    """Who is told. Called from the control thread; must not block."""

    def connected(self, *, owner: bool) -> None:
        """LISTEN is in force from now on; whatever was committed before must be read."""

    def signalled(self, signal: Signal) -> None:
        """A notification arrived."""

    def ownership(self, *, owner: bool) -> None:
        """The owners' lock was won or lost."""

    def disconnected(self, error: BaseException) -> None:
        """Deaf, and therefore without the owners' lock, until connected again."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the control session acts; shorter in tests.

    Arguments:
        keep_alive: between empty queries.
        frozen: the server ends the session after this much silence.
        contend: between tries for the owners' lock by a process that lacks it.
        answer: the longest any one call may take.
        poll: between reads where notifications are replaced by polling.
    """

    keep_alive: timedelta = timedelta(seconds=5)
    frozen: timedelta = timedelta(seconds=15)
    contend: timedelta = timedelta(seconds=10)
    answer: timedelta = timedelta(seconds=10)
    poll: timedelta = timedelta(seconds=5)


class Control(threading.Thread):
    """Holds the control session, and opens a new one after any error, with backoff.

    Arguments:
        dsn: a direct connection (no transaction pooler).
        listener: who is told.
        own: whether to contend for the owners' lock at all.
        listen: False where notifications are replaced by polling.
        pace: see :class:`Pace`.
        watchdog: bounds every call.
    """

    def __init__(
        self,
        dsn: str,
        listener: Listener,
        *,
        own: bool = True,
        listen: bool = True,
        pace: Pace | None = None,
        watchdog: Watchdog | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(name="wakeful control", daemon=True)
        self._dsn = dsn
        self._listener = listener
        self._own = own
        self._listen = listen
        self._pace = pace or Pace()
        self._watchdog = watchdog or Watchdog()
        self._draw = draw
        self._ending = threading.Event()
        self._conn: Connection[Any] | None = None
        self._up = False
        self.strange = 0  # notifications that were dropped: no signals
        self.boundless = 0  # of these: what would be a signal, but names nothing, and so asks for everything

    def run(self) -> None:
        """Connect, listen and keep alive until stopped."""
        failures = 0
        while not self._ending.is_set():
            self._up = False
            try:
                self._session()
            except (psycopg.Error, WakefulError, OSError) as error:
                if self._ending.is_set():
                    return
                self._listener.disconnected(error)
                failures = 0 if self._up else failures + 1
                pause = backoff.delay(failures, self._draw)
                log.warning("control session lost, trying again in %.1f s: %s", pause, error)
                self._ending.wait(pause)

    def stop(self) -> None:
        """End the session; returns at once. The socket is shut, so that a wait on it ends too."""
        self._ending.set()
        conn = self._conn
        if conn is not None:
            with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(conn.fileno())) as copy:
                copy.shutdown(socket.SHUT_RDWR)

    def _session(self) -> None:
        with connect(self._dsn, purpose="control") as conn:
            self._conn = conn
            try:
                with self._watchdog.guard(conn, self._pace.answer):
                    milliseconds = int(self._pace.frozen.total_seconds() * 1000)
                    store.run(conn, "control.end_when_frozen", {"timeout": f"{milliseconds}ms"})
                    if self._listen:
                        store.run(conn, "control.listen")
                    owner = self._try_lock(conn)
                self._up = True
                self._listener.connected(owner=owner)
                self._keep(conn, owner)
            finally:
                self._conn = None

    def _keep(self, conn: Connection[Any], owner: bool) -> None:
        beat = self._pace.keep_alive.total_seconds()
        beats_per_try = max(1, round(self._pace.contend.total_seconds() / beat))
        beats_per_poll = max(1, round(self._pace.poll.total_seconds() / beat))
        beats = 0
        while not self._ending.is_set():
            # The generator returns after `beat` seconds; everything that arrived meanwhile was handed on.
            for notification in conn.notifies(timeout=beat):
                self._hand_on(notification.payload)
                if self._ending.is_set():
                    return
            beats += 1
            with self._watchdog.guard(conn, self._pace.answer):
                conn.execute("", prepare=False)  # counts as no statement; pgconn.exec_ would swallow notifications
                if not owner and self._own and beats % beats_per_try == 0 and self._try_lock(conn):
                    owner = True
                    self._listener.ownership(owner=True)
            if not self._listen and beats % beats_per_poll == 0:
                self._listener.connected(owner=owner)

    def _try_lock(self, conn: Connection[Any]) -> bool:
        if not self._own:
            return False
        row = store.run(conn, "control.try_owners_lock").fetchone()
        return bool(row and row.held)

    def _hand_on(self, payload: str) -> None:
        signal = parse(payload)
        if signal is None:
            self.strange += 1
            self.boundless += asks_for_everything(payload)
            log.warning("dropped a notification that is no signal (%d so far)", self.strange)
            return
        self._listener.signalled(signal)
