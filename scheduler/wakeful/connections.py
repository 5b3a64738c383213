"""Database connections whose failures are noticed in seconds and told in one line.

Defaults were measured: psycopg's own connect timeout is 130 s, a silent cut is noticed after two hours, and a
frozen server, whose kernel still acknowledges, never. The last needs :class:`Watchdog`. Nothing here ever cancels
a call: a cancelled COMMIT under synchronous replication *reports success*. The socket is shut instead, and the
outcome is unknown. Errors come from :mod:`wakeful.database_errors`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from wakeful import database_errors, store
from wakeful.database_errors import translated
from wakeful.errors import ConfigError, DatabaseUnavailable

DEADLINE = timedelta(seconds=30)

# A transaction idle for 10 s ends, and with it its locks; one behind a pooler says so itself (SET LOCAL).
_OPTIONS = r"-c idle_in_transaction_session_timeout=10000 -c default_transaction_isolation=read\ committed"
_DEFAULTS = {
    "connect_timeout": "3",
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "8000",
}


def conninfo(dsn: str, *, purpose: str, pooled: bool = False) -> str:
    """Return ``dsn`` with every default it does not set itself.

    Arguments:
        dsn: a libpq connection string; several hosts get ``target_session_attrs=read-write``.
        purpose: what the session is for; the server shows it as ``wakeful <purpose>``.
        pooled: leave out ``options``, which poolers refuse or, worse, ignore.

    Raises:
        ConfigError: libpq cannot read the connection string.
    """
    try:
        given = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    except (psycopg.ProgrammingError, UnicodeError):
        raise ConfigError(
            "the database's address is not a connection string",
            hint="example: postgresql://user@host:5432/database; reserved characters of a password as %XX",
        ) from None
    settings = dict(_DEFAULTS)
    if "," in given.get("host", "") or "," in given.get("hostaddr", ""):
        settings["target_session_attrs"] = "read-write"
    settings |= given
    settings["application_name"] = f"wakeful {purpose}"
    if not pooled:
        # READ COMMITTED whatever the server's default is: every lock is followed by a fresh look.
        settings["options"] = f"{_OPTIONS} {given.get('options', '')}".rstrip()
    return make_conninfo("", **settings)


def connect(
    dsn: str,
    *,
    purpose: str,
    autocommit: bool = True,
    pooled: bool = False,
) -> Connection[Any]:
    """Open one session.

    A pooler that refuses the session's options gets none, and its session prepares no statements.

    Arguments:
        dsn: a libpq connection string; what it sets wins over the defaults.
        purpose: a word for the server's list of sessions: ``driver``, ``dispatcher``, ``cli``.
        autocommit: False leaves transactions to psycopg.
        pooled: whether a transaction pooler stands in between.

    Raises:
        DatabaseUnavailable: no server answers, or it refuses the login; names neither user nor password.
        ConfigError: ``dsn`` is no connection string.
    """
    text = conninfo(dsn, purpose=purpose, pooled=pooled)
    try:
        conn = psycopg.connect(text, autocommit=autocommit, prepare_threshold=None if pooled else 5)
    except psycopg.Error as error:
        if not pooled and database_errors.refuses_options(error):
            return connect(dsn, purpose=purpose, autocommit=autocommit, pooled=True)
        raise database_errors.of_connect(error, dsn) from None
    conn.isolation_level = IsolationLevel.READ_COMMITTED
    return conn


class _Call:
    """One call under watch: a copy of its socket's descriptor, when to shut it, and whether that happened."""

    __slots__ = ("deadline", "fd", "shut")

    def __init__(self, fd: int, deadline: float) -> None:
        self.fd = fd
        self.deadline = deadline
        self.shut = False


class Watchdog:
    """Shuts the socket of every call past its deadline; one thread, started by the first call, no SQL.

    Shared by the sessions of a process; ``close`` ends its thread. A forked child starts a thread of its own.
    """

    def __init__(self) -> None:
        self._start_anew()

    def _start_anew(self) -> None:
        self._changed = threading.Condition()
        self._calls: set[_Call] = set()
        self._looks_at: float | None = None  # when the thread wakes by itself; None: only when told
        self._thread: threading.Thread | None = None
        self._closed = False
        self._process = os.getpid()

    @contextlib.contextmanager
    def guard(self, conn: Connection[Any], within: timedelta = DEADLINE) -> Iterator[None]:
        """Bound everything done on ``conn`` in the block; what is not done ``within`` ends by a lost connection.

        Raises:
            DatabaseUnavailable: the deadline passed. Whether a COMMIT in the block took effect is unknown.
        """
        if self._process != os.getpid():
            self._start_anew()
        call = _Call(os.dup(conn.fileno()), time.monotonic() + within.total_seconds())
        self._watch(call)
        try:
            yield
        except (psycopg.Error, DatabaseUnavailable) as error:
            if call.shut:
                raise DatabaseUnavailable(
                    f"the database did not answer within {within.total_seconds():g} s",
                    hint="look at the server; a change that was being committed may or may not have taken effect",
                ) from error
            raise
        finally:
            with self._changed:
                self._calls.discard(call)
            os.close(call.fd)

    def close(self) -> None:
        """End the thread, when no call is under watch; a later call starts another."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._closed = True
            self._changed.notify()
        if thread is not None and self._process == os.getpid():
            thread.join()
        self._closed = False

    def _watch(self, call: _Call) -> None:
        with self._changed:
            self._calls.add(call)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="wakeful watchdog", daemon=True)
                self._thread.start()
            elif self._looks_at is None or call.deadline < self._looks_at:
                self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                for call in self._calls:
                    if call.deadline <= now and not call.shut:
                        call.shut = True
                        _shut(call.fd)
                waiting = [call.deadline for call in self._calls if not call.shut]
                self._looks_at = min(waiting, default=None)
                self._changed.wait(None if self._looks_at is None else self._looks_at - now)


def _shut(fd: int) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
        copy.shutdown(socket.SHUT_RDWR)


class Session:
    """One connection, opened when first used, and anew after it was lost. For one thread at a time.

    Arguments:
        dsn, purpose, pooled: as for :func:`connect`.
        deadline: how long one transaction may take, unless it says otherwise.
        watchdog: shared with other sessions; without one, the session has its own.
    """

    def __init__(
        self,
        dsn: str,
        *,
        purpose: str,
        pooled: bool = False,
        deadline: timedelta = DEADLINE,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._dsn = dsn
        self._purpose = purpose
        self._pooled = pooled
        self._deadline = deadline
        self._own = None if watchdog else Watchdog()
        self._watchdog = watchdog or self._own
        self._conn: Connection[Any] | None = None
        self._process = os.getpid()
        self._inherited: list[Connection[Any]] = []

    @contextlib.contextmanager
    def transaction(self, *, within: timedelta | None = None) -> Iterator[Connection[Any]]:
        """Run the block in one READ COMMITTED transaction, committed at its end, rolled back by any exception.

        Arguments:
            within: how long the whole may take.

        Raises:
            DatabaseUnavailable: lost, refused or too late; if that hit the commit, its outcome is unknown.
            WakefulError: what the server answered, see :func:`wakeful.database_errors.translated`.
        """
        with self.autocommit(within=within) as conn, conn.transaction():
            if conn.prepare_threshold is None:  # a pooler is in between, and took no options
                store.run(conn, "transactions.end_when_idle")
            yield conn

    @contextlib.contextmanager
    def autocommit(self, *, within: timedelta | None = None) -> Iterator[Connection[Any]]:
        """Lend the connection without a transaction around the block; as for :meth:`transaction` otherwise."""
        conn = self._opened()
        watchdog = self._watchdog
        assert watchdog is not None  # noqa: S101 - set by __init__; tells the type checker
        try:
            with translated(), watchdog.guard(conn, within or self._deadline):
                yield conn
        except BaseException as error:
            # Whatever is not certainly clean is not used again.
            if conn.closed or database_errors.is_read_only(error) or conn.info.transaction_status != 0:
                self._drop()
            raise

    def close(self) -> None:
        """Close the connection, if any; a later use opens another."""
        if self._process != os.getpid():
            self._disown()
        self._drop()
        if self._own is not None:
            self._own.close()
            self._own = self._watchdog = Watchdog()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> Connection[Any]:
        if self._process != os.getpid():
            self._disown()
        if self._conn is not None and self._conn.closed:
            self._conn = None
        if self._conn is None:
            self._conn = connect(self._dsn, purpose=self._purpose, pooled=self._pooled)
        return self._conn

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(psycopg.Error):
                conn.close()

    def _disown(self) -> None:
        """Forget the parent's connection after a fork: only this process's copy of the socket is closed.

        psycopg would say goodbye to the server on the parent's behalf, so its object is kept and never touched.
        """
        self._process = os.getpid()
        conn, self._conn = self._conn, None
        if conn is not None and not conn.closed:
            os.close(conn.fileno())
            self._inherited.append(conn)
