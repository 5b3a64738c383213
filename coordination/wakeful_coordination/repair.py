"""Repair of one instance, on an operator's word that its processes are stopped."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from wakeful_coordination import layout
from wakeful_coordination.errors import InDoubt, NotFound
from wakeful_coordination.generation import Generation, read_current
from wakeful_coordination.held_cache import Cleaned, HeldCaches
from wakeful_coordination.leases import Leases
from wakeful_coordination.root import Root
from wakeful_coordination.terminal import Terminals

_HELD = re.compile(r"held-([0-9a-z][0-9a-z-]{15,63})-([0-9a-z]{16,64})\Z")


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done: whether the lease file was put right, and how each cache set aside ended."""

    lease: bool
    cleaned: tuple[Cleaned, ...]


class Repair:
    """Puts a deleted or replaced lease file right, and finishes interrupted cleanups."""

    def __init__(self, root: Root, leases: Leases, terminals: Terminals, caches: HeldCaches) -> None:
        self._root = root
        self._leases = leases
        self._terminals = terminals
        self._caches = caches

    def instance(self, instance: str) -> Repaired:
        """Repair one instance; on return it survives power loss. Raises NotFound, InDoubt, and what leases raise."""
        place = layout.instance_path(layout.instance_id(instance))
        try:
            with self._root.directory(place) as at:
                if read_current(self._root, at, instance) is None:
                    raise NotFound(f"{instance} has no generation: nothing to repair", hint="open one")
                put_right = self._lease(at, place)
        except FileNotFoundError:
            raise NotFound(f"there is no instance {instance}", hint="list them: wakeful coord show") from None
        with self._leases.hold(instance):
            with self._root.directory(place) as at, self._root.explained(place):
                found = [match[1] for name in self._root.files.names(at) if (match := _HELD.match(name))]
            cleaned = []
            for own in sorted(set(found)):
                before = self._terminals.read(Generation(instance, 1, own))
                if before is not None:
                    again = self._terminals.record(before.generation, before.outcome, before.reason)
                    cleaned.append(self._caches.clean(again))
        return Repaired(put_right, tuple(cleaned))

    def _lease(self, at: int, place: str) -> bool:
        files = self._root.files
        with self._root.explained(place):
            live, kept = files.stat("lease", at), files.stat("lease.keep", at)
            if live is not None and kept is not None and live.inode == kept.inode:
                return False
            if kept is None and live is None:
                raise InDoubt(
                    f"{self._root.path}/{place} has lost both names of its lease",
                    hint="move the directory away and open the instance anew",
                )
            if kept is None:
                files.link("lease", at, "lease.keep", at)
            else:
                if live is not None:
                    # What stood in its place is kept: it may tell who put it there.
                    files.rename_new("lease", f"retained-lease-{self._root.new_id()}", at)
                with contextlib.suppress(FileExistsError):
                    files.link("lease.keep", at, "lease", at)
        self._root.sync(at, place)
        return True
