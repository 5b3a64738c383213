"""The outbox: prepared transactions, each a file under outbox/pending until it has been settled and told.

``prepare`` is the first of four generation checks; the others are in :mod:`wakeful_coordination.authority`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from wakeful_coordination import layout, publish, record
from wakeful_coordination.errors import InvalidRecord, NotFound, StorageFailed, UnsafePath
from wakeful_coordination.generation import Generation, require_current
from wakeful_coordination.leases import Leases
from wakeful_coordination.root import Root
from wakeful_coordination.transaction import Transaction, parse_transaction

_RING = "ring"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction that survives power loss; ``repeated`` says that an earlier call had prepared it."""

    txid: str
    repeated: bool


class Outbox:
    """Prepare, read and forget the transactions of a root."""

    def __init__(self, root: Root, leases: Leases) -> None:
        self._root = root
        self._leases = leases

    def prepare(self, transaction: Transaction, captured: tuple[Generation, ...]) -> Prepared:
        """Compare every captured generation and publish the record; on return it survives power loss.

        The same transaction again is answered, not added. Raises NotCaptured, Superseded, InvalidRecord
        where the id is taken by another transaction, and what leases raise.
        """
        root = self._root
        if {one.instance: one.id for one in captured} != {one.instance: one.id for one in transaction.generations}:
            raise InvalidRecord("the transaction does not name the captured generations")
        with self._leases.hold(*transaction.instances):
            if self._known(transaction):
                return Prepared(transaction.txid, True)
            for one in captured:
                with self._leases.directory(one.instance) as at:
                    require_current(root, at, one, new_work=True)
            name = f"{transaction.txid}.json"
            with root.directory(layout.PENDING) as at:
                publish.new_file(
                    root, at, name, transaction.data, place=layout.PENDING, temporary=f".tmp-{root.sid}-{name}"
                )
        self.ring()
        return Prepared(transaction.txid, False)

    def _known(self, transaction: Transaction) -> bool:
        """Say whether an earlier call got this far, and make sure that what it published is durable."""
        root = self._root
        name = f"{transaction.txid}.json"
        for place in (layout.receipts_path(transaction.txid), layout.QUARANTINE, layout.PENDING):
            with root.directory(place) as at:
                found = publish.read_file(root, at, name, place=place, limit=record.LIMIT)
                if found is None:
                    continue
                if not _same(found, transaction):
                    raise InvalidRecord(f"transaction {transaction.txid} exists already and says something else")
                publish.replace_file(root, at, name, found, place=place)
                return True
        return False

    def read(self, txid: str) -> Transaction:
        """Return a pending transaction; raises NotFound, or InvalidRecord for bytes nobody can apply."""
        data = self.bytes_of(txid)
        if data is None:
            raise NotFound(f"transaction {txid} is not pending")
        return parse_transaction(data, txid=txid)

    def bytes_of(self, txid: str) -> bytes | None:
        """Return a pending transaction's bytes as they stand; None where it is not pending.

        Raises UnsafePath, StorageFailed, and InvalidRecord for more than 1 MiB.
        """
        name = f"{layout.record_id(txid, 'transaction id')}.json"
        with self._root.directory(layout.PENDING) as at:
            return publish.read_file(self._root, at, name, place=layout.PENDING, limit=record.LIMIT)

    def pending(self, place: str = layout.PENDING) -> list[str]:
        """List the ids under ``place``, ascending. This reads a directory: never on a hot path.

        Raises UnsafePath, StorageFailed.
        """
        with self._root.directory(place) as at, self._root.explained(place):
            names = self._root.files.names(at)
        return sorted(txid for name in names if (txid := _txid(name)) is not None)

    def strays(self) -> list[str]:
        """List what stands in outbox/pending and is no transaction: for people, left alone.

        Raises UnsafePath, StorageFailed.
        """
        with self._root.directory(layout.PENDING) as at, self._root.explained(layout.PENDING):
            names = self._root.files.names(at)
        # Names may be any bytes; what is shown must be text.
        return sorted(os.fsencode(name).decode(errors="backslashreplace") for name in names if not _own(name))

    def forget(self, txid: str) -> None:
        """Take a settled and told transaction out of the list, with its note. Its receipt or quarantine stays.

        Not flushed: after a power cut it may be told again. Raises UnsafePath, StorageFailed.
        """
        with self._root.directory(layout.PENDING) as at:
            for name in (f"{txid}.reason", f"{txid}.json"):
                publish.remove(self._root, at, name, place=layout.PENDING)

    def ring(self) -> None:
        """Tell watchers to look; losing it costs latency only, so nothing it meets is an error."""
        with (
            contextlib.suppress(OSError, UnsafePath, StorageFailed),
            self._root.directory("doorbell") as at,
        ):
            self._root.files.touch(_RING, at)


@contextlib.contextmanager
def opened(root: Root, *places: str) -> Iterator[tuple[int, ...]]:
    """Open several directories before the first change, so that none can fail half way."""
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(root.directory(place)) for place in places)


def _same(found: bytes, transaction: Transaction) -> bool:
    if found == transaction.data:
        return True
    # A retry after a kill may come from another session and a later second: what it asks for decides.
    try:
        other = parse_transaction(found, txid=transaction.txid)
    except InvalidRecord:
        return False
    return (other.kind, other.generations, other.event.record, other.mutations) == (
        transaction.kind,
        transaction.generations,
        transaction.event.record,
        transaction.mutations,
    )


def _own(name: str) -> bool:
    return _txid(name) is not None or _txid(name, "reason") is not None


def _txid(name: str, kind: str = "json") -> str | None:
    stem, dot, suffix = name.rpartition(".")
    if dot and suffix == kind:
        with contextlib.suppress(InvalidRecord):
            return layout.record_id(stem, "transaction id")
    return None
