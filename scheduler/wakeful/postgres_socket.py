"""The socket of an embedded server: where it is, who answers on it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import struct
import tempfile
from pathlib import Path

from wakeful.errors import DatabaseUnavailable
from wakeful.postgres_home import Home

PORT = 5432
# The kernel takes 107 bytes for a socket's whole path, and PostgreSQL reads a comma or blank here as a list.
_FITS = re.compile(r"[A-Za-z0-9_./-]{1,80}")
_SHORT_PLACES = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108  # short and the same for every account; see _is_private


def directory(home: Home) -> Path:
    """Return where the socket of the server in ``home`` is: in the cluster, or in a short private directory."""
    if _FITS.fullmatch(str(home.cluster)):
        return home.cluster
    try:
        return Path(os.fsdecode(home.socket_record.read_bytes()))
    except OSError:
        return home.cluster


def uri(home: Home, *, user: str, database: str) -> str:
    """Return a connection string; every part is given, so that no PG* variable supplies another."""
    return f"postgresql://{user}@/{database}?host={directory(home)}&port={PORT}"


def is_ready(home: Home) -> bool:
    """Tell whether the server accepts logins; one that recovers or stops does not."""
    from psycopg import pq

    where = directory(home)
    if not _FITS.fullmatch(str(where)):
        return False
    address = f"host={where} port={PORT} user=postgres dbname=postgres connect_timeout=2"
    return pq.PGconn.ping(address.encode()) == pq.Ping.OK


def prepare(home: Home) -> Path:
    """Return the directory for the socket of a server about to start, and remove what a killed one left.

    Call only while no process of a server lives. Raises DatabaseUnavailable when a server that is not ours runs
    on the cluster, OSError.
    """
    where = directory(home)
    if not (_FITS.fullmatch(str(where)) and (where == home.cluster or _is_private(where, home))):
        where = _short(home)
    for path in (home.cluster / "postmaster.pid", where / f".s.PGSQL.{PORT}.lock"):
        _drop_stale(path, home)
    return where


def discard(home: Home) -> None:
    """Remove the short directory after the server has ended."""
    if (where := directory(home)) != home.cluster:
        with contextlib.suppress(OSError):
            where.rmdir()
            home.socket_record.unlink()


def postmaster(home: Home) -> int | None:
    """Return a pidfd of the process that listens on the socket, or None when nobody does.

    The kernel names that process; a pid file could name a stranger. The second look makes sure that the process
    lived when its pidfd was opened.
    """
    pid = _listener(home)
    if not pid:
        return None
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if _listener(home) == pid:
        return fd
    os.close(fd)
    return None


def _listener(home: Home) -> int:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(os.fsencode(directory(home) / f".s.PGSQL.{PORT}"))
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return 0
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def _short(home: Home) -> Path:
    for place in _SHORT_PLACES:
        try:
            where = Path(tempfile.mkdtemp(prefix="wakeful-", dir=place))
        except OSError:
            continue
        if home.account.foreign:
            os.chown(where, home.account.uid, home.account.gid)
        home.socket_record.write_bytes(os.fsencode(where))
        return where
    raise DatabaseUnavailable(
        f"the path {home.directory} is too long for a socket, and no short directory can be made in /tmp",
        hint="choose a shorter directory with --data or WAKEFUL_DATA, or name a server with --dsn",
    )


def _is_private(where: Path, home: Home) -> bool:
    try:
        found = where.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == home.account.uid and not found.st_mode & 0o077


def _drop_stale(path: Path, home: Home) -> None:
    """Remove a pid file that would stop PostgreSQL from starting although its server is gone.

    A pid that lives may be a stranger's, or a zombie under an init that does not reap. An empty file is what a
    full disk leaves. A pid that is dead PostgreSQL handles itself, and better.
    """
    try:
        first = path.read_text(encoding="ascii", errors="replace").partition("\n")[0].strip()
    except FileNotFoundError:
        return
    pid = abs(int(first)) if re.fullmatch("-?[0-9]{1,9}", first) else 0
    if pid and not Path(f"/proc/{pid}").exists():
        return
    if pid and _serves(pid, home.cluster):
        raise DatabaseUnavailable(
            f"a PostgreSQL that wakeful did not start runs on {home.cluster} (process {pid})", hint="stop it first"
        )
    path.unlink(missing_ok=True)


def _serves(pid: int, cluster: Path) -> bool:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="ascii", errors="replace").strip()
        return name == "postgres" and Path(os.readlink(f"/proc/{pid}/cwd")) == cluster
    except OSError:
        return False  # gone, a zombie, or another account's
