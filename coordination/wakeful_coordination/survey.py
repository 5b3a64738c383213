"""What stands in a root, for people: sessions, pending and quarantined transactions, one instance."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from wakeful_coordination import layout
from wakeful_coordination.creation import foreign
from wakeful_coordination.errors import CoordinationError, InvalidRecord, NotFound
from wakeful_coordination.generation import Current, read_current
from wakeful_coordination.machine import lock_owners
from wakeful_coordination.outbox import Outbox
from wakeful_coordination.quarantine import Quarantine, Quarantined
from wakeful_coordination.root import Root
from wakeful_coordination.session import Liveness, liveness
from wakeful_coordination.undelivered import Note, Undelivered


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pending transaction: its instances and event type, or why it cannot be read.

    ``note`` is what a consumer said that did not take it.
    """

    txid: str
    instances: tuple[str, ...]
    type: str
    problem: str | None
    note: Note | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """A root at one moment.

    ``strays`` are names in outbox/pending that are no transaction, ``foreign`` those in the root that are none of its.
    """

    sessions: tuple[tuple[str, Liveness], ...]
    pending: tuple[Waiting, ...]
    quarantined: tuple[Quarantined, ...]
    strays: tuple[str, ...]
    foreign: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One instance: its generation, who holds its lease (pids, as /proc/locks tells), and its files."""

    instance: str
    current: Current | None
    holders: tuple[int, ...]
    files: tuple[str, ...]


class Survey:
    """Reads; takes no lease and changes nothing."""

    def __init__(self, root: Root, outbox: Outbox, quarantine: Quarantine, notes: Undelivered) -> None:
        self._root = root
        self._notes = notes
        self._outbox = outbox
        self._quarantine = quarantine

    def overview(self) -> Overview:
        """Return what is live, pending and quarantined."""
        with self._root.directory("sessions") as at, self._root.explained("sessions"):
            names = sorted(name for name in self._root.files.names(at) if not name.startswith(".tmp-"))
        sessions = []
        for name in names:
            try:
                sessions.append((name, liveness(self._root, name)))
            except InvalidRecord:
                continue
        aside = []
        for txid in self._outbox.pending(layout.QUARANTINE):
            try:
                aside.append(self._quarantine.read(txid))
            except NotFound:
                continue
        return Overview(
            tuple(sessions),
            tuple(found for txid in self._outbox.pending() if (found := self._waiting(txid)) is not None),
            tuple(aside),
            tuple(self._outbox.strays()),
            tuple(foreign(self._root)),
        )

    def instance(self, instance: str) -> InstanceView:
        """Return one instance as it stands; raises NotFound."""
        place = layout.instance_path(layout.instance_id(instance))
        try:
            with self._root.directory(place) as at, self._root.explained(place):
                current = read_current(self._root, at, instance)
                lease = self._root.files.stat("lease", at)
                names = sorted(
                    os.fsencode(name).decode(errors="backslashreplace") for name in self._root.files.names(at)
                )
        except FileNotFoundError:
            raise NotFound(f"there is no instance {instance}", hint="list them: wakeful coord show") from None
        holders = lock_owners(lease.inode, Path("/proc/locks").read_text()) if lease is not None else []
        return InstanceView(instance, current, tuple(holders), tuple(names))

    def _waiting(self, txid: str) -> Waiting | None:
        try:
            found = self._outbox.read(txid)
        except NotFound:
            return None
        except CoordinationError as error:
            return Waiting(txid, (), "", error.message)
        return Waiting(txid, found.instances, found.event.type, None, self._notes.read(txid))
