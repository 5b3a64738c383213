"""The cache of an ended generation: moved aside, read, and only then deleted, put back or kept.

A cache file begins with one JSON line that names its generation; the payload follows. What decides is
what was really moved, never what stood at the name before.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from hashlib import sha256

from wakeful_coordination import layout, publish, record
from wakeful_coordination.errors import CoordinationError, InvalidRecord, UnsafePath
from wakeful_coordination.generation import Generation, require_current
from wakeful_coordination.leases import Leases
from wakeful_coordination.root import Root
from wakeful_coordination.terminal import Terminal

LIVE = "cache"
#: Bytes of a cache file; larger ones are kept as evidence, unread.
LIMIT = 64 << 20
_FIRST_LINE = 4096


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A finished cleanup. ``how``: absent, deleted, restored, kept (a newer one was left alone) or retained.

    ``evidence`` is the name of a retained file.
    """

    how: str
    evidence: str | None = None


class HeldCaches:
    """Write live caches, and clean up those of ended generations."""

    def __init__(self, root: Root, leases: Leases) -> None:
        self._root = root
        self._leases = leases

    def write(self, captured: Generation, payload: bytes) -> None:
        """Replace the live cache for the captured generation; on return it survives power loss.

        Raises NotCaptured, Superseded, StorageFailed, what leases raise, and InvalidRecord for more than 64 MiB.
        """
        if not isinstance(captured, Generation):
            require_current(self._root, -1, None, new_work=True)
        if len(payload) > LIMIT - _FIRST_LINE:
            raise InvalidRecord(f"a cache of {len(payload)} bytes", hint=f"at most {LIMIT - _FIRST_LINE} bytes")
        with self._leases.hold(captured.instance), self._leases.directory(captured.instance) as at:
            require_current(self._root, at, captured, new_work=True)
            data = cache_header(captured) + payload
            publish.replace_file(self._root, at, LIVE, data, place=layout.instance_path(captured.instance))

    def read(self, generation: Generation) -> bytes | None:
        """Return the live cache's payload if it is this generation's; None otherwise.

        Raises InvalidRecord for a file of more than 64 MiB, UnsafePath, StorageFailed.
        """
        place = layout.instance_path(layout.instance_id(generation.instance))
        try:
            with self._root.directory(place) as at:
                data = publish.read_file(self._root, at, LIVE, place=place, limit=LIMIT)
        except FileNotFoundError:
            return None
        if data is None or _owner(data) != generation.id:
            return None
        return data.partition(b"\n")[2]

    def clean(self, terminal: Terminal) -> Cleaned:
        """Take the cache of an ended generation away; on return the outcome survives power loss.

        Idempotent, and may crash anywhere: a retry starts from what was set aside. Bytes of another
        generation are never deleted and never overwrite a newer cache. Raises what leases raise.
        """
        instance = terminal.generation.instance
        place = layout.instance_path(instance)
        held = f"held-{terminal.generation.id}-{terminal.nonce}"
        files = self._root.files
        with self._leases.hold(instance), self._leases.directory(instance) as at, self._root.explained(place):
            if files.stat(held, at) is None:
                if files.stat(LIVE, at) is None:
                    if terminal.repeated:
                        # An earlier attempt may have deleted it and died before the flush.
                        self._root.sync(at, place)
                    return Cleaned("absent")
                if self._is_newer(at, place, terminal):
                    if terminal.repeated:
                        self._root.sync(at, place)
                    return Cleaned("kept")
                try:
                    # One step, whatever stands there now: link and unlink would lose a cache written in between.
                    # The held name is this terminal's own, and was free under the lease.
                    files.rename(LIVE, held, at)
                except FileNotFoundError:
                    return Cleaned("absent")
            # Before anything is decided about these bytes, they can no longer become live again.
            self._root.sync(at, place)
            if self.is_own(at, held, place, terminal):
                files.unlink(held, at)
                self._root.sync(at, place)
                return Cleaned("deleted")
            return self._put_back(at, held, place, terminal)

    def _is_newer(self, at: int, place: str, terminal: Terminal) -> bool:
        """Peek at the live cache: one that plainly names another generation is not worth moving."""
        try:
            data = publish.read_file(self._root, at, LIVE, place=place, limit=LIMIT)
        except (UnsafePath, InvalidRecord):
            return False
        return data is not None and _owner(data) not in (None, terminal.generation.id) and not _digests(data, terminal)

    def is_own(self, at: int, held: str, place: str, terminal: Terminal) -> bool:
        """Read what was really moved, and say whether it is the ended generation's; raises StorageFailed."""
        try:
            data = publish.read_file(self._root, at, held, place=place, limit=LIMIT)
        except (UnsafePath, InvalidRecord):
            return False
        return data is not None and (_owner(data) == terminal.generation.id or _digests(data, terminal))

    def _put_back(self, at: int, held: str, place: str, terminal: Terminal) -> Cleaned:
        files = self._root.files
        moved = files.stat(held, at)
        try:
            # Link, flush, unlink: the two names of one file may both be lost otherwise.
            files.link(held, at, LIVE, at)
        except FileExistsError:
            live = files.stat(LIVE, at)
            if live is None or moved is None or (live.inode, live.device) != (moved.inode, moved.device):
                return self._retain(at, held, place, terminal)
        except OSError as error:
            # A directory, or a filesystem without hard links.
            if error.errno not in (errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                raise
            return self._retain(at, held, place, terminal)
        self._root.sync(at, place)
        files.unlink(held, at)
        return Cleaned("restored")

    def _retain(self, at: int, held: str, place: str, terminal: Terminal) -> Cleaned:
        files = self._root.files
        evidence = f"retained-{terminal.generation.id}-{terminal.nonce}"
        while files.stat(evidence, at) is not None:
            evidence = f"retained-{terminal.generation.id}-{self._root.new_id()}"
        files.rename(held, evidence, at)
        self._root.sync(at, place)
        return Cleaned("retained", evidence)


def cache_header(generation: Generation) -> bytes:
    """Return the first line of a cache file, newline included."""
    return record.encode({"v": layout.VERSION, "generation_id": generation.id})


def _owner(data: bytes) -> str | None:
    line, newline, _ = data[:_FIRST_LINE].partition(b"\n")
    if not newline:
        return None
    try:
        found = json.loads(line)
        return layout.record_id(found.get("generation_id"), "generation id")
    except (ValueError, AttributeError, RecursionError, CoordinationError):
        return None


def _digests(data: bytes, terminal: Terminal) -> bool:
    return terminal.cache_sha256 is not None and sha256(data).hexdigest() == terminal.cache_sha256
