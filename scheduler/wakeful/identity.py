"""Who a scheduler is: its host, its data directory and itself, each provable by the kernel.

A claimed run names its claimer as ``<data id>/<scheduler id>``. The data id, of one directory on one machine,
tells whether the run's files can be reached from here; the scheduler id names a lock file that lives exactly as
long as its process. So a successor adopts what a dead process left at once, and never what a living one works on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import uuid
import weakref
from pathlib import Path

from wakeful.errors import WakefulError
from wakeful.postgres_locks import LockFile


class Identity:
    """One scheduler process on one data directory; a context is not needed: the kernel frees its lock.

    Arguments:
        data: the data directory, created if missing.
        host: the host name that runs are stamped with.

    Raises:
        WakefulError: the data directory cannot be used.
    """

    def __init__(self, data: Path, host: str) -> None:
        self.host = host
        self.machine = _machine()
        self._directory = data / "schedulers"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.data_id = _data_id(self._directory / "data-id") + _machine_mark()
            self.id = uuid.uuid4().hex
            self._lock = _own_lock(self._directory / f"{self.id}.lock")
            self._sweep()
        except OSError as error:
            raise WakefulError(
                f"the data directory {data} cannot be used: {error.strerror}",
                hint="choose another one with --data or WAKEFUL_DATA",
            ) from error
        self._process = os.getpid()
        # A forked child inherits the lock; if it kept it, this scheduler would seem to live as long as the child does.
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _let_go(mine))

    @property
    def claimer(self) -> str:
        """What this scheduler's claims bear: ``<data id>/<scheduler id>``."""
        return f"{self.data_id}/{self.id}"

    def reaches(self, claimer: str | None) -> bool:
        """Whether a claim's files lie in this scheduler's data directory."""
        return claimer is not None and claimer.partition("/")[0] == self.data_id

    def is_dead(self, claimer: str) -> bool:
        """Whether the process behind a claim is proven dead: its lock can be had.

        Only to be asked of claims that this data directory reaches.
        """
        name = claimer.partition("/")[2]
        if name == self.id or not name.isalnum():
            return False
        path = self._directory / f"{name}.lock"
        return not path.exists() or _bury(path)

    def _sweep(self) -> None:
        """Remove the lock files of the dead; a claim of theirs counts as a dead one's without it too."""
        for path in self._directory.glob("*.lock"):
            if path.stem != self.id:
                _bury(path)

    def close(self) -> None:
        """Let the lock go; claims of this scheduler may be adopted from now on. Nothing in a forked child."""
        self._lock.close()
        if self._process != os.getpid():
            return
        with contextlib.suppress(FileNotFoundError):
            (self._directory / f"{self.id}.lock").unlink()


def _own_lock(path: Path) -> LockFile:
    """Return the lock at ``path``, held. Somebody who sweeps may get hold of a fresh file first, and remove it."""
    while True:
        lock = LockFile(path)
        if lock.take(shared=False) and os.fstat(lock.fd).st_nlink > 0:
            return lock
        lock.close()


def _bury(path: Path) -> bool:
    """Remove a lock file if its process is dead. Under the lock, so that a starting one notices."""
    with LockFile(path) as lock:
        if not lock.take(shared=False):
            return False
        path.unlink(missing_ok=True)
        return True


def _let_go(identity: weakref.ref[Identity]) -> None:
    found = identity()
    if found is not None:
        found.close()


def _machine_mark() -> str:
    """Tell copies and mounts of one directory on several machines apart, where machines have ids."""
    known = _machine_id()
    return "" if known is None else "-" + hashlib.sha256(known.encode()).hexdigest()[:12]


def _data_id(path: Path) -> str:
    """Return the directory's id, made by whoever comes first."""
    fresh = path.with_name(f"data-id.{uuid.uuid4().hex}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, uuid.uuid4().hex.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
    return path.read_text(encoding="ascii").strip()


def _machine() -> str:
    return _machine_id() or platform.node()


def _machine_id() -> str | None:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError):
            return Path(path).read_text(encoding="ascii", errors="replace").strip() or None
    return None
