"""The error tree of file coordination.

    CoordinationError               every failure a caller may want to catch
    ├── InvalidRecord               bytes, a name or a value that no retry will make valid
    │   └── UnknownVersion          a record written by a version this code does not know
    ├── NotFound                    no such root, instance, generation or transaction
    ├── GenerationRefused           the caller may not write for this generation
    │   ├── NotCaptured             it captured none: nothing falls back to the current one
    │   └── Superseded              it captured one that has been replaced or retired
    ├── ContradictoryTerminal       this generation already ended otherwise
    ├── LeaseRefused                no custody was given
    │   ├── LeaseBusy               the deadline passed, somebody is at work
    │   ├── LeaseOrder              the order of acquisition would descend
    │   ├── LeaseMisused            in an event loop, from another thread, after a fork
    │   └── InDoubt                 no proof of the owner's death, or of the lock's meaning
    ├── UnsafePath                  a link, FIFO, directory or foreign owner stands where a file belongs
    └── StorageFailed               full, read-only or failing storage: nothing was acknowledged
        └── RootPoisoned            an fsync failed: what is on disk is unknown until the root is reopened

``message`` names the cause, ``hint`` the remedy, ``code`` the exit code of a command line.
"""

from __future__ import annotations

import errno


class CoordinationError(Exception):
    """Root of the tree: ``message`` names the cause, ``hint`` the remedy, ``code`` the exit code."""

    code = 1
    slug = "failed"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def as_json(self) -> dict[str, object]:
        """Return the JSON error: ``{error, code, message, hint}``."""
        return {"error": self.slug, "code": self.code, "message": self.message, "hint": self.hint}


class InvalidRecord(CoordinationError):
    """Bytes, a name or a value that no retry will make valid."""

    code = 2
    slug = "invalid"


class UnknownVersion(InvalidRecord):
    """A record whose version this code does not know; it is kept, not guessed at."""

    slug = "unknown_version"


class NotFound(CoordinationError):
    """A root, instance, generation or transaction that does not exist."""

    slug = "not_found"


class GenerationRefused(CoordinationError):
    """The caller may not write for this generation."""

    code = 4
    slug = "generation"


class NotCaptured(GenerationRefused):
    """The caller captured no generation; nothing ever falls back to the current one."""

    slug = "not_captured"


class Superseded(GenerationRefused):
    """The captured generation has been replaced or retired."""

    slug = "superseded"


class ContradictoryTerminal(CoordinationError):
    """This generation already has a terminal with another outcome."""

    code = 4
    slug = "contradiction"


class LeaseRefused(CoordinationError):
    """No custody was given, and nothing was changed."""

    code = 4
    slug = "lease"


class LeaseBusy(LeaseRefused):
    """Somebody is at work and the deadline passed; nobody was overtaken."""

    slug = "lease_busy"


class LeaseOrder(LeaseRefused):
    """A lease below one this thread already holds was asked for."""

    slug = "lease_order"


class LeaseMisused(LeaseRefused):
    """Asked for in a running event loop, released by another thread, or used after a fork."""

    slug = "lease_misused"


class InDoubt(LeaseRefused):
    """Neither the owner's death nor the meaning of a lock can be proven; only an operator may decide."""

    slug = "in_doubt"


class UnsafePath(CoordinationError):
    """A link, FIFO, directory or foreign owner stands where a file of ours belongs."""

    slug = "unsafe_path"


class StorageFailed(CoordinationError):
    """Full, read-only or failing storage; nothing was acknowledged."""

    slug = "storage"


class RootPoisoned(StorageFailed):
    """An fsync failed: what is on disk is unknown, and this root takes no more work until reopened."""

    slug = "poisoned"


_UNSAFE = {
    errno.ELOOP: "is a symbolic link",
    errno.EXDEV: "leads out of the root",
    errno.EISDIR: "is a directory",
    errno.ENOTDIR: "is not a directory",
    errno.ENXIO: "is a FIFO or a socket",
    errno.EACCES: "may not be opened by this user",
    errno.EPERM: "may not be changed by this user",
}
_STORAGE = {
    errno.ENOSPC: ("the disk is full", "free space, then try again: nothing was acknowledged"),
    errno.EDQUOT: ("the quota is used up", "raise the quota, then try again: nothing was acknowledged"),
    errno.EROFS: ("the filesystem is read-only", "remount it writable; look for disk errors first"),
    errno.EMFILE: ("too many open files", "raise the limit of open files (ulimit -n)"),
    errno.ENFILE: ("too many open files on this host", "raise fs.file-max"),
}


def explain(error: OSError, path: str) -> CoordinationError:
    """Return the error of this tree that says what an operating system error on ``path`` means."""
    number = error.errno or 0
    if number in _UNSAFE:
        return UnsafePath(f"{path} {_UNSAFE[number]}", hint="move it away; a root holds only its own files")
    unknown = (error.strerror or "input/output error", "look at the disk, then reopen the root")
    cause, hint = _STORAGE.get(number, unknown)
    return StorageFailed(f"{path}: {cause}", hint=hint)
