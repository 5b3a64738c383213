"""A coordination root: one private directory on a local disk, opened by one process.

It knows the seam, who we are, and whether the root may still be used: after a failed fsync, a fork or a
close it refuses everything, in one place.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime
from types import TracebackType
from typing import NoReturn

from wakeful_coordination import layout
from wakeful_coordination.errors import CoordinationError, LeaseMisused, RootPoisoned, UnsafePath, explain
from wakeful_coordination.filesystem import Filesystem
from wakeful_coordination.machine import Machine


class Root:
    """An open root directory.

    ``now`` is the wall clock (aware), ``new_id`` gives 32 fresh hexadecimal digits; both are injected.
    """

    def __init__(
        self,
        path: str,
        *,
        fd: int,
        root_id: str,
        files: Filesystem,
        machine: Machine,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
    ) -> None:
        self.path = path
        self.fd = fd
        self.root_id = root_id
        self.files = files
        self.machine = machine
        self.now = now
        self.new_id = new_id
        self.uid = os.geteuid()
        #: Sessions an operator has declared dead, by name.
        self.declared_dead: frozenset[str] = frozenset()
        #: Inodes of leases that bear a claim of ours: while there are any, our session must be found.
        self.claims: set[int] = set()
        #: The session of this process; set when it is entered.
        self.sid = ""
        #: Why nothing works any more, if so.
        self.refusal: Callable[[], CoordinationError] | None = None
        #: Descriptors that bear locks: a forked child closes them before it runs.
        self.locking: set[int] = set()
        #: Held while they change.
        self.guard = threading.RLock()
        _guard_forks(self)

    def usable(self) -> None:
        """Raise what makes this root unusable: RootPoisoned, LeaseMisused after a fork, or a closed root."""
        if self.refusal is not None:
            raise self.refusal()

    def sync(self, fd: int, path: str) -> None:
        """Flush ``fd``; on return it survives power loss. An error poisons the root: no second try, no ack."""
        if self.refusal is not None:
            raise self.refusal()
        try:
            self.files.sync(fd)
        except OSError as error:
            reason = error.strerror or "input/output error"
            self.refusal = lambda: RootPoisoned(
                f"fsync of {path} failed ({reason}): what is on disk is unknown",
                hint="nothing more is acknowledged; check the disk, then reopen the root in a new process",
            )
            raise self.refusal() from error

    def explained(self, path: str) -> _Explained:
        """Turn operating system errors into this package's; taken and missing names stay themselves."""
        return _Explained(self, path)

    def fail(self, error: OSError, path: str) -> NoReturn:
        """Raise what an operating system error on ``path`` means, as :meth:`explained` does."""
        if isinstance(error, FileExistsError | FileNotFoundError):
            raise error
        raise explain(error, f"{self.path}/{path}") from error

    def open_directory(self, path: str) -> int:
        """Open a directory below the root, to be closed by the caller; refuse one that others may write into.

        FileNotFoundError where an instance has none, UnsafePath for a link, a foreign owner, or one of the
        root's own that is gone.
        """
        if self.refusal is not None:
            raise self.refusal()
        try:
            fd = self.files.open_directory(path, self.fd)
        except FileNotFoundError:
            if path.startswith("instances/"):
                raise
            raise UnsafePath(f"{self.path}/{path} is gone", hint="restore it, or make a new root") from None
        except OSError as error:
            self.fail(error, path)
        try:
            require_private(self, fd, path)
        except BaseException:
            self.files.close(fd)
            raise
        return fd

    @contextlib.contextmanager
    def directory(self, path: str) -> Iterator[int]:
        """Open a directory as :meth:`open_directory` does, for the length of a ``with``."""
        fd = self.open_directory(path)
        try:
            yield fd
        finally:
            self.files.close(fd)

    def open_lock(self, path: str, at: int, *, create: bool = False) -> int:
        """Open a file that will bear a lock, known to the fork hook from its first instant."""
        with self.guard:
            fd = self.files.create(path, at) if create else self.files.open_file(path, at, write=True)
            self.locking.add(fd)
            return fd

    def close_lock(self, fd: int) -> None:
        """Close such a file, which frees its lock."""
        with self.guard:
            if fd in self.locking:
                self.locking.discard(fd)
                self.files.close(fd)

    def close(self) -> None:
        """Close every descriptor; the root refuses from now on."""
        with self.guard:
            self.refusal = lambda: LeaseMisused("the coordination root is closed", hint="open it again")
            for fd in list(self.locking):
                self.close_lock(fd)
            if self.fd >= 0:
                self.files.close(self.fd)
                self.fd = -1

    def before_fork(self) -> None:
        """Hold the set of lock descriptors still while the process is copied."""
        self.guard.acquire()

    def after_fork_in_parent(self) -> None:
        """Let the parent go on; its leases stand."""
        self.guard.release()

    def after_fork_in_child(self) -> None:
        """Close, never unlock: an unlock in the child would free the parent's lease."""
        self.guard = threading.RLock()
        self.close()
        self.refusal = lambda: LeaseMisused(
            "this process was forked from the one that opened the root: it holds nothing",
            hint="open the root again in the child",
        )


class _Explained:
    """The context of :meth:`Root.explained`."""

    __slots__ = ("_path", "_root")

    def __init__(self, root: Root, path: str) -> None:
        self._root = root
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and not isinstance(error, FileExistsError | FileNotFoundError):
            self._root.fail(error, self._path)


def require_private(root: Root, fd: int, path: str) -> None:
    """Refuse a directory that another user owns or may enter."""
    found = root.files.status(fd)
    if found.uid != root.uid or found.mode & 0o077:
        raise UnsafePath(
            f"{root.path}/{path}: owner {found.uid}, mode {found.mode:04o}",
            hint=f"must belong to user {root.uid} with mode 0700",
        )


def session_path(sid: str) -> str:
    """Return where a session's file stands."""
    return f"sessions/{layout.record_id(sid, 'session id')}"


def _guard_forks(root: Root) -> None:
    # Hooks cannot be taken back, so they hold the root weakly and outlive it as no-ops.
    known = weakref.ref(root)

    def told(method: str) -> Callable[[], None]:
        def hook() -> None:
            if (one := known()) is not None and one.fd >= 0:
                getattr(one, method)()

        return hook

    root.files.guard_forks(told("before_fork"), told("after_fork_in_parent"), told("after_fork_in_child"))
