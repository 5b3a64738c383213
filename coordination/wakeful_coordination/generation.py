"""Generations: which incarnation of an instance's files a writer may write for.

A generation is captured once, at dispatch, and carried to every authority write.
:func:`require_current` is the one place that compares; nothing ever falls back to the current one.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wakeful_coordination import layout, publish, record
from wakeful_coordination.errors import InvalidRecord, NotCaptured, NotFound, Superseded
from wakeful_coordination.layout import VERSION
from wakeful_coordination.root import Root

if TYPE_CHECKING:
    from wakeful_coordination.leases import Leases

_FILE = "generation.json"
_LIMIT = 4096
_WHAT = "generation"


@dataclass(frozen=True, slots=True)
class Generation:
    """A captured generation: ``id`` identifies it for ever, ``seq`` only orders those of one instance."""

    instance: str
    seq: int
    id: str

    @property
    def token(self) -> str:
        """Return it as one word, for an environment variable."""
        return f"{self.instance}:{self.seq}:{self.id}"

    @classmethod
    def parse(cls, token: str) -> Generation:
        """Read a token back; raises InvalidRecord."""
        instance, _, rest = token.partition(":")
        seq, _, own = rest.partition(":")
        if not (seq.isascii() and seq.isdigit() and len(seq) < 19 and int(seq) > 0):
            raise InvalidRecord("not a generation token", hint="expected <instance>:<seq>:<generation id>")
        return cls(layout.instance_id(instance), int(seq), layout.record_id(own, "generation id"))


@dataclass(frozen=True, slots=True)
class Current:
    """What generation.json says now; ``open`` is False once the generation was retired."""

    generation: Generation
    open: bool


def read_current(root: Root, at: int, instance: str) -> Current | None:
    """Return the generation of an instance whose directory is ``at``; None where it never had one."""
    found = _read(root, at, instance, layout.instance_path(instance))
    return None if found is None else Current(Generation(instance, found[0], found[1]), found[2])


def _read(root: Root, at: int, instance: str, place: str) -> tuple[int, str, bool] | None:
    """Return its number, its id, and whether it is open."""
    data = publish.read_file(root, at, _FILE, place=place, limit=_LIMIT)
    if data is None:
        return None
    found = record.decode(data, what=_WHAT, version=VERSION)
    if found.get("instance") != instance or found.get("state") not in ("open", "retired"):
        raise InvalidRecord(f"{root.path}/{place}/{_FILE} does not describe this instance")
    own = layout.record_id(found.get("id"), "generation id")
    return record.number(found, "seq", what=_WHAT), own, found["state"] == "open"


def require_current(
    root: Root, at: int, captured: Generation | None, *, new_work: bool, place: str | None = None
) -> int:
    """Compare a captured generation with the one on disk, under the instance's lease; return the latter's number.

    ``new_work`` also refuses a retired generation, which may finish what was acknowledged but begin nothing.
    ``place`` is the directory's path, where the caller knows it. Raises NotCaptured, NotFound or Superseded.
    """
    if not isinstance(captured, Generation):
        raise NotCaptured(
            "no generation was captured for this write", hint="capture it at dispatch and carry it to every write"
        )
    now = _read(root, at, captured.instance, place or layout.instance_path(captured.instance))
    if now is None:
        raise NotFound(f"instance {captured.instance} has no generation", hint="open one first")
    seq, own, is_open = now
    if own != captured.id:
        raise Superseded(
            f"generation {captured.seq} of {captured.instance} has been replaced by {seq}",
            hint="this writer is over: stand down",
        )
    if new_work and not is_open:
        raise Superseded(f"generation {captured.seq} of {captured.instance} is retired", hint="open a new one")
    return seq


class Generations:
    """Open, capture, replace and retire the generations of a root's instances."""

    def __init__(self, root: Root, leases: Leases) -> None:
        self._root = root
        self._leases = leases

    def open(self, instance: str) -> Generation:
        """Create the instance if need be and open a generation; on return it survives power loss.

        Raises Superseded where one is open already: the caller must capture and replace it knowingly.
        """
        root = self._root
        _create(root, layout.instance_id(instance))
        with self._leases.hold(instance), self._leases.directory(instance) as at:
            now = read_current(root, at, instance)
            if now is not None and now.open:
                raise Superseded(
                    f"{instance} has open generation {now.generation.seq}", hint="retire it, or capture and replace it"
                )
            return self._written(at, Generation(instance, 0, "") if now is None else now.generation)

    def capture(self, instance: str) -> Generation:
        """Return the open generation, to be carried from here on; raises NotFound."""
        place = layout.instance_path(layout.instance_id(instance))
        try:
            with self._root.directory(place) as at:
                now = read_current(self._root, at, instance)
        except FileNotFoundError:
            now = None
        if now is None or not now.open:
            raise NotFound(f"instance {instance} has no open generation", hint="open one first")
        return now.generation

    def current(self, instance: str) -> Current | None:
        """Return what stands now, open or retired: for people, and for those who clear up. Nobody writes for it.

        None where there is none. Raises InvalidRecord, UnsafePath, StorageFailed.
        """
        place = layout.instance_path(layout.instance_id(instance))
        with contextlib.suppress(FileNotFoundError), self._root.directory(place) as at:
            return read_current(self._root, at, instance)
        return None

    def replace(self, captured: Generation) -> Generation:
        """Put a new generation in the place of the captured one; on return it survives power loss.

        From then on every write of the old one is refused or quarantined. Raises Superseded.
        """
        with self._leases.hold(captured.instance), self._leases.directory(captured.instance) as at:
            seq = require_current(self._root, at, captured, new_work=False)
            return self._written(at, Generation(captured.instance, seq, captured.id))

    def retire(self, captured: Generation) -> None:
        """End the captured generation without a successor; on return that survives power loss. Idempotent.

        It begins nothing more, and finishes what was acknowledged. Raises Superseded, and what leases raise.
        """
        with self._leases.hold(captured.instance), self._leases.directory(captured.instance) as at:
            seq = require_current(self._root, at, captured, new_work=False)
            self._put(at, Generation(captured.instance, seq, captured.id), "retired", None)

    def _written(self, at: int, before: Generation) -> Generation:
        """Put the next one in the place of ``before``."""
        own = Generation(before.instance, before.seq + 1, self._root.new_id())
        self._put(at, own, "open", before.id or None)
        return own

    def _put(self, at: int, own: Generation, state: str, previous: str | None) -> None:
        data = record.encode(
            {
                "v": VERSION,
                "instance": own.instance,
                "seq": own.seq,
                "id": own.id,
                "prev": previous,
                "state": state,
                "created_by_sid": self._root.sid,
            }
        )
        publish.replace_file(self._root, at, _FILE, data, place=layout.instance_path(own.instance))


def _create(root: Root, instance: str) -> None:
    """Make an instance's directory and its lease; racing and killed creators leave the same thing behind."""
    place = layout.instance_path(instance)
    shelf = place.rpartition("/")[0]
    with root.directory(shelf) as at:
        with root.explained(place):
            made = root.files.make_directory(instance, at)
        with root.directory(place) as own:
            if not made and root.files.stat(_FILE, own) is not None:
                return
            root.sync(at, shelf)
            with root.explained(place):
                # Two names for one inode: a lease that was deleted or replaced shows by its count of names.
                with contextlib.suppress(FileExistsError):
                    if root.files.stat("lease", own) is not None:
                        # A power cut kept one name of the two.
                        root.files.link("lease", own, "lease.keep", own)
                    elif root.files.stat("lease.keep", own) is None:
                        root.files.close(root.files.create("lease.keep", own))
                with contextlib.suppress(FileExistsError):
                    root.files.link("lease.keep", own, "lease", own)
            # Before generation.json: where that stands, the lease stands too, whatever the power did.
            root.sync(own, place)
