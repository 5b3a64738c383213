"""Where an embedded server lives, and the account it runs as."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from wakeful.errors import DatabaseUnavailable

ROOT_HOMES = Path("/var/lib/wakeful")
_SHELL = re.compile(r"[\"$`\\]")  # initdb hands its own path to a shell between double quotes


class Switch(TypedDict, total=False):
    """Arguments of ``subprocess`` that make a child run as another account."""

    user: int
    group: int
    extra_groups: Sequence[int]


@dataclass(frozen=True, slots=True)
class Account:
    """The account the server runs as: this process's own, or another one when that is root."""

    name: str
    uid: int
    gid: int
    foreign: bool

    def run(
        self, *command: str | Path, timeout: float, keep_open: Sequence[int] = (), output: int = subprocess.PIPE
    ) -> subprocess.CompletedProcess[bytes]:
        """Run ``command`` as this account for at most ``timeout`` seconds; ``keep_open`` fds are inherited.

        What it says goes to the descriptor ``output``, or is returned.
        The child is in a session of its own, out of reach of the terminal's Ctrl-C, and sees no setting of the
        caller's environment. Raises OSError when it cannot be executed, subprocess.TimeoutExpired.
        """
        return subprocess.run(
            command,
            timeout=timeout,
            pass_fds=keep_open,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            umask=0o077,
            env=self.environment(),
            start_new_session=True,
            check=False,
            **self.switch(),
        )

    def switch(self) -> Switch:
        """Return what ``subprocess`` needs to become this account; nothing when it is our own."""
        return Switch(user=self.uid, group=self.gid, extra_groups=[]) if self.foreign else Switch()

    @staticmethod
    def environment() -> dict[str, str]:
        """Return the whole environment of a server: no PG* variable, no library path of the caller's."""
        return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}

    def enters(self, folder: Path) -> bool:
        """Tell whether this account may pass through ``folder``; asked of the kernel, so ACLs count."""
        if not self.foreign:
            return os.access(folder, os.X_OK)
        return self.run("/bin/sh", "-c", 'cd -- "$1"', "sh", folder, timeout=30).returncode == 0


@dataclass(frozen=True, slots=True)
class Home:
    """The directory of one embedded server; every path below it is derived, nothing is searched."""

    directory: Path
    account: Account

    @property
    def cluster(self) -> Path:
        """The database's own files; it exists exactly when initdb has finished."""
        return self.directory / "postgres"

    @property
    def mutex(self) -> Path:
        """Held by whoever starts or stops the server."""
        return self.directory / "postgres.mutex"

    @property
    def lease(self) -> Path:
        """Held, shared, by each user of the server."""
        return self.directory / "postgres.lease"

    @property
    def running(self) -> Path:
        """Held by the server's own processes: postmaster, backends, initdb."""
        return self.directory / "postgres.running"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.directory / "postgres.log"

    @property
    def socket_record(self) -> Path:
        """Names the directory of the socket when the path of the cluster is too long to hold it."""
        return self.directory / "postgres.socket"


def settle(data: Path) -> Home:
    """Return the home of the server for the data directory ``data``, creating its directory.

    It is ``data`` itself, except for root when the server's account cannot enter it, or programs copied there could
    not be called: then a directory under /var/lib/wakeful named by the hash of ``data``. A cluster that exists is
    never left for a new one.
    Raises DatabaseUnavailable, OSError.
    """
    data = data.resolve()
    if os.geteuid() == 0:
        return _for_root(data)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Home(data, Account("this account", os.geteuid(), os.getegid(), foreign=False))


def _for_root(data: Path) -> Home:
    aside = ROOT_HOMES / hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    for directory in (data, aside):
        cluster = Home(directory, _server_account(None)).cluster
        if cluster.exists():
            account = _server_account(cluster.stat().st_uid)
            if not account.enters(directory):
                raise DatabaseUnavailable(
                    f"the account {account.name} cannot enter {directory}, where its database lies",
                    hint=f"give it the right to pass through that directory and its parents, or remove {cluster}",
                )
            return Home(directory, account)
    account = _server_account(None)
    if not _SHELL.search(str(data)) and account.enters(_nearest(data)):
        _make(data, account)
        if account.enters(data):
            return Home(data, account)
    _make(aside, account)
    return Home(aside, account)


def _server_account(owner: int | None) -> Account:
    names = ["postgres", "nobody"]
    if owner:
        try:
            names = [pwd.getpwuid(owner).pw_name]
        except KeyError:
            return Account(f"uid {owner}", owner, owner, foreign=True)
    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid, foreign=True)
    raise DatabaseUnavailable(
        "PostgreSQL does not run as root, and neither the account postgres nor nobody exists",
        hint="start wakeful as another user, or name a server with --dsn",
    )


def _nearest(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _make(directory: Path, account: Account) -> None:
    """Create ``directory`` so that ``account`` may pass through it, list nothing and write nothing.

    It appears with its rights: a rival that saw it without would think it shut and settle elsewhere.
    """
    if directory.is_dir():
        return
    directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{directory.name[:40]}-", dir=directory.parent))
    try:
        os.chown(making, 0, account.gid)
        making.chmod(0o710)
        making.rename(directory)
    except OSError:
        making.rmdir()
        if not directory.is_dir():  # else a rival was first, and has filled it already
            raise
