"""Making and opening a root's directories: private, on a local disk, complete before it has a name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from wakeful_coordination import layout, publish, record
from wakeful_coordination.errors import InvalidRecord, NotFound, UnsafePath, explain
from wakeful_coordination.filesystem import Filesystem
from wakeful_coordination.machine import Machine
from wakeful_coordination.mounts import filesystem_type, require_local
from wakeful_coordination.root import Root, require_private

_FILE = "root.json"
_LIMIT = 4096


def open_root(
    path: str,
    *,
    create: bool,
    among: bool,
    files: Filesystem,
    machine: Machine,
    mountinfo: str,
    now: Callable[[], datetime],
    new_id: Callable[[], str],
) -> Root:
    """Open the root at ``path``, making it first if ``create``; on return its directories survive power loss.

    Links may lead to the root, never below it. ``among`` makes a root among files that are not its own, and leaves
    those alone. Raises NotFound, UnsafePath, InDoubt on a filesystem whose locks prove nothing, UnknownVersion.
    """
    parent, name = os.path.split(os.path.abspath(path))
    where = os.path.join(os.path.realpath(parent), name)
    fd = _directory(files, where, create=create)
    root = Root(where, fd=fd, root_id="", files=files, machine=machine, now=now, new_id=new_id)
    try:
        require_private(root, fd, "")
        kind = filesystem_type(mountinfo, where, files.status(fd).device)
        require_local(kind, where)
        found = publish.read_file(root, fd, _FILE, place="", limit=_LIMIT)
        if found is None:
            if not create:
                raise NotFound(f"{where} is no coordination root", hint="it has no root.json")
            found = _furnish(root, kind, among=among)
        known = record.decode(found, what=f"{where}/{_FILE}", version=layout.VERSION)
        root.root_id = layout.record_id(known.get("root_id"), "root id")
    except BaseException:
        root.close()
        raise
    return root


def mount_table() -> str:
    """Return the text of the process's mount table."""
    return Path("/proc/self/mountinfo").read_text(errors="surrogateescape")


def _directory(files: Filesystem, where: str, *, create: bool) -> int:
    parent, name = os.path.split(where)
    try:
        if create:
            above = files.open_directory(parent)
            try:
                if files.make_directory(name, above):
                    files.sync(above)
            finally:
                files.close(above)
        return files.open_directory(where)
    except FileNotFoundError:
        raise NotFound(f"there is no directory {where if not create else parent}") from None
    except OSError as error:
        raise explain(error, where) from error


def foreign(root: Root) -> list[str]:
    """List what stands in a root's directory and is none of its files; never on a hot path."""
    own = {*layout.DIRECTORIES, *layout.FILES}
    with root.explained(""):
        names = {name for name in root.files.names(root.fd) if not name.startswith(".tmp-")}
    # Names may be any bytes; what is shown must be text.
    return sorted(os.fsencode(name).decode(errors="backslashreplace") for name in names - own)


def _furnish(root: Root, kind: str, *, among: bool) -> bytes:
    files = root.files
    others = foreign(root)
    if others and not among:
        raise UnsafePath(f"{root.path} holds other files ({others[0]})", hint="name a new or empty directory")
    with root.explained(""):
        for name in layout.DIRECTORIES:
            files.make_directory(name, root.fd)
        with contextlib.suppress(FileExistsError):
            files.close(files.create("recovery.lock", root.fd))
    for name, shelves in (("outbox", layout.OUTBOX), ("instances", layout.SHARDS), ("receipts", layout.SHARDS)):
        with root.directory(name) as at, root.explained(name):
            # All at once: a shelf made on first use would cost a flush in the middle of a transaction.
            for shelf in shelves:
                files.make_directory(shelf, at)
            root.sync(at, name)
    root.sync(root.fd, "")
    own = record.encode({"v": layout.VERSION, "root_id": root.new_id(), "layout": layout.VERSION, "fs": kind})
    try:
        publish.new_file(root, root.fd, _FILE, own, place="", temporary=f".tmp-{root.new_id()}")
    except FileExistsError:
        found = publish.read_file(root, root.fd, _FILE, place="", limit=_LIMIT)
        if found is None:
            raise InvalidRecord(f"{root.path}/{_FILE} comes and goes") from None
        return found
    return own
