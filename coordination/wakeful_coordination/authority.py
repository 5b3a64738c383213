"""Authority transactions: published, mutated, committed or quarantined, under the leases of all they touch.

The generation stored in the transaction is compared before publication, before mutation and before the
commit, each time with what stands on disk then. A replayed transaction can therefore never bind to a
newer generation: it is quarantined, and nothing more of it is applied.

Flushes of a transaction over ``k`` files: 2 to prepare, 2 for each file, 1 to commit.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from wakeful_coordination import claim, layout, publish, record
from wakeful_coordination.errors import InvalidRecord, NotFound, Superseded, UnknownVersion
from wakeful_coordination.generation import require_current
from wakeful_coordination.leases import Leases
from wakeful_coordination.outbox import Outbox, opened
from wakeful_coordination.quarantine import Quarantine, Quarantined
from wakeful_coordination.root import Root
from wakeful_coordination.state import encode_state
from wakeful_coordination.transaction import Mutation, Transaction, parse_transaction

_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction is applied whole; its receipt survives power loss, and its owner's end."""

    transaction: Transaction


Settled = Committed | Quarantined


class Authority:
    """Brings prepared transactions to their end."""

    def __init__(self, root: Root, leases: Leases, outbox: Outbox, quarantine: Quarantine) -> None:
        self._root = root
        self._leases = leases
        self._outbox = outbox
        self._quarantine = quarantine
        #: Committed by this process, so their receipts are known to be durable; the latest ones only.
        self._durable: dict[str, None] = {}

    def settle(self, txid: str, *, timeout: float | None = None) -> Settled:
        """Commit or quarantine a transaction; on return the outcome survives power loss.

        Idempotent. ``timeout`` bounds the wait for its leases, in seconds. Raises NotFound for an id that nobody
        prepared, UnknownVersion for one that another release must settle, and what leases raise.
        """
        return self._settle(txid, resolving=False, timeout=timeout)

    def resolve(self, instance: str) -> None:
        """Bring the transaction that a dead session left under an instance to its end; then clear its claim.

        On return its outcome survives power loss. Raises what :meth:`settle` raises.
        """
        txid = self._marked(instance)
        if txid is not None:
            with contextlib.suppress(NotFound):
                self._settle(txid, resolving=True)
        with self._leases.hold(instance, resolving=True):
            # Another resolver may have been faster, and its successor may be at work already.
            if self._marked(instance) in (None, txid):
                self._unmark((instance,), txid)

    def receipt(self, txid: str) -> Transaction | None:
        """Return a committed transaction from its receipt, whoever owned it; None where there is none.

        Raises InvalidRecord, UnsafePath, StorageFailed.
        """
        place = layout.receipts_path(layout.record_id(txid, "transaction id"))
        with self._root.directory(place) as at:
            data = publish.read_file(self._root, at, f"{txid}.json", place=place, limit=record.LIMIT)
        return None if data is None else parse_transaction(data, txid=txid)

    def forget(self, txid: str) -> None:
        """Take a settled transaction out of the outbox: everyone who is to hear of it has.

        Not flushed: after a power cut it may be told again. Raises UnsafePath, StorageFailed.
        """
        self._outbox.forget(txid)
        self._durable.pop(txid, None)

    def _settle(self, txid: str, *, resolving: bool, timeout: float | None = None) -> Settled:
        while True:
            data = self._outbox.bytes_of(txid)
            if data is None:
                return self._settled_before(txid)
            try:
                transaction = parse_transaction(data, txid=txid)
            except UnknownVersion:
                # The release that wrote it will know what to do, and may be at it.
                raise
            except InvalidRecord as error:
                # Nobody can say which leases it wants; it never was published, so nobody works under it.
                return self._unread(txid, None, f"invalid: {error.message}")
            with contextlib.ExitStack() as stack:
                try:
                    leases = self._leases.hold(*transaction.instances, timeout=timeout, resolving=resolving)
                    stack.enter_context(leases)
                except NotFound as error:
                    return self._unread(txid, transaction, f"no instance: {error.message}")
                first = self._obstacle(transaction) if resolving else None
                if first is None:
                    return self._apply(transaction)
            self._settle(first, resolving=True)

    def _settled_before(self, txid: str) -> Settled:
        found = self.receipt(txid)
        if found is not None:
            return Committed(found)
        return self._quarantine.read(txid)

    def _obstacle(self, transaction: Transaction) -> str | None:
        """Return another unfinished transaction under the same instances, which must end first."""
        if self.receipt(transaction.txid) is not None:
            return None
        for instance in transaction.instances:
            other = self._marked(instance)
            # One that is pending no more left its mark behind by a power cut: publication replaces it.
            if other not in (None, transaction.txid) and self._outbox.bytes_of(str(other)) is not None:
                return other
        return None

    def _apply(self, transaction: Transaction) -> Settled:
        txid = transaction.txid
        if self._outbox.bytes_of(txid) is None:
            return self._settled_before(txid)
        if self._committed_before(txid):
            return self._done(transaction)
        if self._quarantine.holds(txid):
            return self._set_aside(transaction, "quarantined before", ())
        applied: list[str] = []
        try:
            self._check(transaction)
            self._mark(transaction)
            self._check(transaction)
            for mutation in transaction.mutations:
                self._mutate(transaction, mutation)
                applied.append(f"{mutation.instance}/{mutation.name}")
            self._check(transaction)
        except (Superseded, NotFound) as error:
            return self._set_aside(transaction, f"superseded: {error.message}", tuple(applied))
        place = layout.receipts_path(txid)
        name = f"{txid}.json"
        with opened(self._root, layout.PENDING, place) as (pending, receipts):
            publish.add_name(self._root, name, pending, name, receipts, place=place)
        self._remember(txid)
        return self._done(transaction)

    def _committed_before(self, txid: str) -> bool:
        if txid in self._durable:
            return True
        place = layout.receipts_path(txid)
        name = f"{txid}.json"
        with self._root.directory(place) as at:
            data = publish.read_file(self._root, at, name, place=place, limit=record.LIMIT)
            if data is None:
                return False
            # Seen is not yet durable: its writer may have been killed before the flush.
            publish.replace_file(self._root, at, name, data, place=place)
        self._remember(txid)
        return True

    def _remember(self, txid: str) -> None:
        self._durable[txid] = None
        if len(self._durable) > _REMEMBERED:
            del self._durable[next(iter(self._durable))]

    def _done(self, transaction: Transaction) -> Committed:
        self._unmark(transaction.instances, transaction.txid)
        if transaction.kind == "local":
            self.forget(transaction.txid)
        return Committed(transaction)

    def _set_aside(self, transaction: Transaction, reason: str, applied: tuple[str, ...]) -> Quarantined:
        outcome = self._quarantine.put(transaction.txid, transaction, reason, applied)
        # Claims first: as long as one names a session, the outbox must name the transaction.
        self._unmark(transaction.instances, transaction.txid)
        self._outbox.forget(transaction.txid)
        return outcome

    def _unread(self, txid: str, transaction: Transaction | None, reason: str) -> Quarantined:
        """Set aside what was never published, so that no claim can name it."""
        outcome = self._quarantine.put(txid, transaction, reason, ())
        self._outbox.forget(txid)
        return outcome

    def _check(self, transaction: Transaction) -> None:
        for one in transaction.generations:
            with self._leases.directory(one.instance) as at:
                require_current(self._root, at, one, new_work=False)

    def _mark(self, transaction: Transaction) -> None:
        """Publish: from here on whoever gets one of these leases must bring this transaction to its end."""
        name = f"{transaction.txid}.json"
        with self._root.directory(layout.PENDING) as pending:
            for instance in transaction.instances:
                with self._leases.directory(instance) as at, self._root.explained(layout.instance_path(instance)):
                    claim.stake(self._root, *self._leases.file(instance))
                    if self._marked(instance) not in (None, transaction.txid):
                        self._root.files.unlink("pending", at)
                    with contextlib.suppress(FileExistsError):
                        self._root.files.link(name, pending, "pending", at)

    def _unmark(self, instances: tuple[str, ...], txid: str | None) -> None:
        for instance in instances:
            place = layout.instance_path(instance)
            with self._leases.directory(instance) as at:
                if self._marked(instance) in (None, txid):
                    publish.remove(self._root, at, "pending", place=place)
                    with self._root.explained(place):
                        claim.clear(self._root, *self._leases.file(instance))

    def _marked(self, instance: str) -> str | None:
        """Return the id of the transaction linked under an instance; None where none is."""
        place = layout.instance_path(instance)
        try:
            with self._root.directory(place) as at:
                data = publish.read_file(self._root, at, "pending", place=place, limit=record.LIMIT)
        except FileNotFoundError:
            return None
        return None if data is None else parse_transaction(data).txid

    def _mutate(self, transaction: Transaction, mutation: Mutation) -> None:
        place = layout.instance_path(mutation.instance)
        own = next(one for one in transaction.generations if one.instance == mutation.instance)
        data = encode_state(own, transaction.txid, mutation.body, mutation.sha256)
        with self._leases.directory(mutation.instance) as at:
            publish.replace_file(self._root, at, mutation.name, data, place=place)
