"""An embedded PostgreSQL server, shared by the processes of one data directory.

Every question about who lives is put to the kernel, never to a file with a process id: a user of the server holds
a lock on the lease file, and the server's own processes hold one on another file through a descriptor they inherit.
Both end with their holders, however those die. Starting and stopping are serialised by a third lock.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Literal, Self

from wakeful import postgres_binaries, postgres_home, postgres_socket
from wakeful.errors import DatabaseUnavailable
from wakeful.postgres_home import Home
from wakeful.postgres_locks import LockFile, is_held
from wakeful.postgres_log import ServerLog, last_words

_ELSEWHERE = "choose another directory with --data or WAKEFUL_DATA, or name a server with --dsn"
STOP_WITHIN = timedelta(seconds=60)
_SETTINGS = {
    "listen_addresses": "",
    "port": str(postgres_socket.PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "all",
    "fsync": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",  # the log is not rotated while the server runs, so it must stay small
    "logging_collector": "off",
    "cluster_name": "wakeful",
}


class EmbeddedServer:
    """The server of the data directory ``data``, started by its first user and stopped by its last.

    ``binaries`` is ``wheel`` or ``path``; ``start_within`` and ``stop_within`` bound how long the two may take,
    ``beat`` is the pause between two looks at something that is awaited. ``search`` (a PATH) and ``installed``
    say where ``path`` looks. A context manager; its processes never receive this terminal's signals.
    """

    def __init__(
        self,
        data: Path,
        *,
        binaries: Literal["wheel", "path"] = "wheel",
        start_within: timedelta = timedelta(seconds=120),
        stop_within: timedelta = STOP_WITHIN,
        beat: timedelta = timedelta(milliseconds=20),
        search: str | None = None,
        installed: Path = Path("/usr/lib/postgresql"),
    ) -> None:
        self._data = data
        self._source: Literal["wheel", "path"] = binaries
        self._start_within = start_within
        self._stop_within = stop_within
        self._beat = beat.total_seconds()
        self._search = search
        self._installed = installed
        self._home: Home | None = None
        self._lease: LockFile | None = None
        self._process = 0

    @property
    def dsn(self) -> str:
        """Connection string of the role ``wakeful``, owner of the database ``wakeful`` and no superuser."""
        return postgres_socket.uri(self._started(), user="wakeful", database="wakeful")

    @property
    def admin_dsn(self) -> str:
        """Connection string of the superuser, to the database ``wakeful``."""
        return postgres_socket.uri(self._started(), user="postgres", database="wakeful")

    def start(self) -> None:
        """Join the running server, or start one, creating cluster, role and database first where they are missing.

        Does nothing when this object has started already. Raises DatabaseUnavailable.
        """
        if self._lease is not None:
            return
        try:
            home = postgres_home.settle(self._data)
            self._lease = self._entered(home, time.monotonic() + self._start_within.total_seconds())
        except (OSError, subprocess.TimeoutExpired) as error:
            cause = error.strerror if isinstance(error, OSError) else "its programs hang"
            raise DatabaseUnavailable(
                f"the embedded PostgreSQL cannot be started in {self._data}: {cause}", hint=_ELSEWHERE
            ) from None
        self._home, self._process = home, os.getpid()

    def stop(self) -> None:
        """Leave the server; the last to leave stops it, and returns when all its processes have ended.

        Does nothing when not started. Raises DatabaseUnavailable when the server does not end in time.
        """
        if self._lease is None:
            return
        home, lease, self._lease = self._started(), self._lease, None
        deadline = time.monotonic() + self._stop_within.total_seconds()
        try:
            if self._process == os.getpid():  # a forked child has its parent's lease, not one of its own
                with self._mutex(home, deadline, self._stop_within):
                    self._leave(home, lease, deadline)
        except OSError as error:
            raise DatabaseUnavailable(
                f"the embedded PostgreSQL in {home.directory} cannot be stopped: {error.strerror}",
                hint=f"see {home.log}",
            ) from None
        finally:
            lease.close()

    def revive(self, within: timedelta) -> bool:
        """Start the server again if it has died under its users; tell whether it answers.

        Raises DatabaseUnavailable. No other user can have stopped it, since this one has not left.
        """
        home, deadline = self._started(), time.monotonic() + within.total_seconds()
        try:
            with self._mutex(home, deadline, within):
                return self._join_or_launch(home, deadline)
        except (OSError, subprocess.TimeoutExpired):
            raise DatabaseUnavailable(
                f"the embedded PostgreSQL in {home.directory} cannot be started again", hint=f"see {home.log}"
            ) from None

    def process(self) -> int | None:
        """Return a new pidfd of the server's first process, or None while nobody listens."""
        return postgres_socket.postmaster(self._started())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self) -> Home:
        if self._home is None:
            raise DatabaseUnavailable("the embedded PostgreSQL has not been started", hint="call start() first")
        return self._home

    def _mutex(self, home: Home, deadline: float, limit: timedelta) -> LockFile:
        mutex = LockFile(home.mutex)
        if not mutex.wait(shared=False, deadline=deadline, beat=self._beat):
            mutex.close()
            raise DatabaseUnavailable(
                f"another process has held the embedded PostgreSQL's lock for {limit.total_seconds():g} s",
                hint=f"find it by `fuser {home.mutex}`",
            )
        return mutex

    def _entered(self, home: Home, deadline: float) -> LockFile:
        with self._mutex(home, deadline, self._start_within):
            lease = LockFile(home.lease)
            try:
                lease.take(shared=True)  # only a stop holds it exclusively, and we hold the mutex
                if ready := self._join_or_launch(home, deadline):
                    _furnish(home)
            except BaseException:
                # A server that nobody could use, or whose start was interrupted, must not stay behind.
                with contextlib.suppress(DatabaseUnavailable, OSError):
                    self._leave(home, lease, time.monotonic() + self._stop_within.total_seconds())
                lease.close()
                raise
        if not ready:  # but one that recovers from a crash is left to finish: stopped, it would begin again
            lease.close()
            raise DatabaseUnavailable(
                f"the embedded PostgreSQL is not ready after {self._start_within.total_seconds():g} s",
                hint=f"see {home.log}; a long recovery after a crash goes on, so try again",
            )
        return lease

    def _join_or_launch(self, home: Home, deadline: float) -> bool:
        log: ServerLog | None = None
        while not postgres_socket.is_ready(home):
            with LockFile(home.running) as running:
                if running.take(shared=False):  # not one process of a server lives
                    if log is not None:
                        raise DatabaseUnavailable(
                            f"the embedded PostgreSQL did not start: {log.last_words()}", hint=f"see {home.log}"
                        )
                    log = self._launch(home, running, deadline)
            if time.monotonic() >= deadline:
                return False
            time.sleep(self._beat)
        return True

    def _launch(self, home: Home, running: LockFile, deadline: float) -> ServerLog:
        search = os.environ.get("PATH", os.defpath) if self._search is None else self._search
        binaries = postgres_binaries.find(self._source, home, search=search, installed=self._installed)
        if not home.cluster.exists():
            self._create_cluster(home, binaries.directory, running, deadline)
        made_by = (home.cluster / "PG_VERSION").read_text(encoding="ascii").strip()
        if made_by != str(binaries.major):
            raise DatabaseUnavailable(
                f"the embedded data was made by PostgreSQL {made_by}, and these programs are {binaries.major}",
                hint="set WAKEFUL_POSTGRES to the other programs, or dump with those and start in a new directory",
            )
        sockets = postgres_socket.prepare(home)
        settings = {**_SETTINGS, "unix_socket_directories": str(sockets)}
        command = [str(binaries.directory / "postgres"), "-D", str(home.cluster)]
        command += [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        log = ServerLog.begin(home.log)
        try:
            # The shell leaves at once, so the server is nobody's child here and no caller has to reap it.
            home.account.run(
                "/bin/sh", "-c", '"$@" &', "sh", *command, timeout=60, keep_open=[running.fd], output=log.fd
            )
        finally:
            log.close()
        return log

    def _create_cluster(self, home: Home, programs: Path, running: LockFile, deadline: float) -> None:
        for leftover in home.directory.glob("postgres.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        making = Path(tempfile.mkdtemp(prefix="postgres.new-", dir=home.directory))
        if home.account.foreign:
            os.chown(making, home.account.uid, home.account.gid)
        options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-instructions")
        done = home.account.run(
            programs / "initdb",
            "-D",
            making,
            *options,
            timeout=max(1.0, deadline - time.monotonic()),
            keep_open=[running.fd],
        )
        if done.returncode != 0:
            shutil.rmtree(making, ignore_errors=True)
            raise DatabaseUnavailable(
                f"the embedded PostgreSQL cannot create its files in {home.directory}: {last_words(done.stdout)}",
                hint=_ELSEWHERE,
            )
        making.rename(home.cluster)
        directory = os.open(home.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _leave(self, home: Home, lease: LockFile, deadline: float) -> None:
        if not lease.take(shared=False):
            return  # others still use it
        server = postgres_socket.postmaster(home)
        if server is None:
            return
        try:
            patience = self._stop_within.total_seconds()
            for order, until in ((signal.SIGINT, deadline), (signal.SIGQUIT, deadline + patience)):
                signal.pidfd_send_signal(server, order)
                while is_held(home.running) and time.monotonic() < until:
                    time.sleep(self._beat)
                if not is_held(home.running):
                    postgres_socket.discard(home)
                    return
        except ProcessLookupError:
            return
        finally:
            os.close(server)
        raise DatabaseUnavailable("the embedded PostgreSQL does not stop", hint=f"see {home.log}")


def _furnish(home: Home) -> None:
    """Create role and database unless a start before this one has; safe to repeat after a kill in its middle."""
    import psycopg

    try:
        with psycopg.connect(postgres_socket.uri(home, user="postgres", database="postgres"), autocommit=True) as admin:
            row = admin.execute(_sql("database_exists")).fetchone()
            if row is not None and row[0]:
                return
            template = postgres_socket.uri(home, user="postgres", database="template1")
            with psycopg.connect(template) as connection:
                connection.execute(_sql("role"))
            admin.execute(_sql("database"))
    except psycopg.Error as error:
        cause = error.diag.message_primary or "the connection was lost"
        raise DatabaseUnavailable(
            f"the embedded PostgreSQL answers, but cannot be set up: {cause}", hint=f"see {home.log}"
        ) from None


def _sql(name: str) -> bytes:
    return (resources.files("wakeful") / "sql/embedded" / f"{name}.sql").read_bytes()
