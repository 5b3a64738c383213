"""Quarantine: transactions that may not be applied are kept, with the reason, until an operator decides."""

from __future__ import annotations

from dataclasses import dataclass

from wakeful_coordination import layout, publish, record
from wakeful_coordination.errors import InvalidRecord, NotFound, Superseded
from wakeful_coordination.generation import require_current
from wakeful_coordination.leases import Leases
from wakeful_coordination.outbox import Outbox, opened
from wakeful_coordination.root import Root
from wakeful_coordination.transaction import Transaction, parse_transaction

_WHAT = "quarantine reason"


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A transaction kept and not applied. ``applied`` lists files it had already replaced, if any."""

    txid: str
    reason: str
    applied: tuple[str, ...]
    transaction: Transaction | None


class Quarantine:
    """Set aside, list, and on an operator's word take up again."""

    def __init__(self, root: Root, leases: Leases, outbox: Outbox) -> None:
        self._root = root
        self._leases = leases
        self._outbox = outbox

    def put(self, txid: str, transaction: Transaction | None, reason: str, applied: tuple[str, ...]) -> Quarantined:
        """Set a pending transaction aside; on return it survives power loss there.

        It stays in the outbox too, where quarantine prevails, until the caller has cleared its claims and
        forgets it. The caller holds its leases (one that nobody can read has none). Raises UnsafePath, StorageFailed.
        """
        name = f"{txid}.json"
        place = layout.QUARANTINE
        with opened(self._root, layout.PENDING, place) as (pending, aside):
            known = self._reason(aside, txid)
            outcome = known or Quarantined(txid, reason, applied, transaction)
            if known is None:
                data = record.encode(
                    {
                        "v": layout.VERSION,
                        "txid": txid,
                        "reason": reason,
                        "observed": list(applied),
                        "at": self._root.now().isoformat(timespec="microseconds"),
                    }
                )
                spare = f".tmp-{self._root.sid}-{txid}.reason"
                publish.replace_file(
                    self._root, aside, f"{txid}.reason", data, place=place, durable=False, temporary=spare
                )
            try:
                publish.add_name(self._root, name, pending, name, aside, place=place)
            except (FileExistsError, FileNotFoundError):
                # Set aside before, but perhaps not durably: say it again under a new inode.
                found = publish.read_file(self._root, aside, name, place=place, limit=record.LIMIT)
                if found is None:
                    raise NotFound(f"transaction {txid} is neither pending nor quarantined") from None
                publish.replace_file(
                    self._root, aside, name, found, place=place, temporary=f".tmp-{self._root.sid}-{name}"
                )
        return Quarantined(txid, outcome.reason, outcome.applied, transaction)

    def holds(self, txid: str) -> bool:
        """Say whether a transaction is in quarantine; raises UnsafePath, StorageFailed."""
        with self._root.directory(layout.QUARANTINE) as at:
            return self._root.files.stat(f"{txid}.json", at) is not None

    def read(self, txid: str) -> Quarantined:
        """Return a quarantined transaction and why it is there; raises NotFound."""
        name = f"{layout.record_id(txid, 'transaction id')}.json"
        with self._root.directory(layout.QUARANTINE) as at:
            data = publish.read_file(self._root, at, name, place=layout.QUARANTINE, limit=record.LIMIT)
            if data is None:
                raise NotFound(f"transaction {txid} is neither pending, committed nor quarantined")
            found = self._reason(at, txid) or Quarantined(txid, "the reason was lost", (), None)
        try:
            transaction = parse_transaction(data, txid=txid)
        except InvalidRecord:
            transaction = None
        return Quarantined(txid, found.reason, found.applied, transaction)

    def order(self, txid: str, reason: str) -> Quarantined:
        """Set a pending transaction aside on an operator's word, unapplied; raises NotFound.

        A transaction that is being applied is brought to its end instead: its lease says so first.
        """
        transaction = self._outbox.read(txid)
        with self._leases.hold(*transaction.instances):
            place = layout.receipts_path(txid)
            with self._root.directory(place) as at:
                if self._root.files.stat(f"{txid}.json", at) is not None:
                    raise InvalidRecord(f"transaction {txid} is committed: nothing can take it back")
            self._outbox.read(txid)
            outcome = self.put(txid, transaction, f"operator: {reason}", ())
            self._outbox.forget(txid)
            return outcome

    def retry(self, txid: str) -> None:
        """Make a quarantined transaction pending again on an operator's word; on return that survives power loss.

        Raises Superseded where one of its generations has been replaced: it stays where it is.
        """
        found = self.read(txid)
        if found.transaction is None:
            raise InvalidRecord(f"transaction {txid} cannot be read: {found.reason}")
        name = f"{txid}.json"
        with self._leases.hold(*found.transaction.instances):
            for one in found.transaction.generations:
                with self._leases.directory(one.instance) as at:
                    try:
                        require_current(self._root, at, one, new_work=False)
                    except Superseded as error:
                        raise Superseded(
                            error.message, hint="an old transaction never binds to a newer generation"
                        ) from None
            with opened(self._root, layout.PENDING, layout.QUARANTINE) as (pending, aside):
                try:
                    publish.add_name(self._root, name, aside, name, pending, place=layout.PENDING)
                except FileExistsError:
                    self._root.sync(pending, layout.PENDING)
                # While it stands in both places it counts as quarantined, so this must be durable before it is applied.
                publish.remove(self._root, aside, name, place=layout.QUARANTINE)
                publish.remove(self._root, aside, f"{txid}.reason", place=layout.QUARANTINE)
                self._root.sync(aside, layout.QUARANTINE)
        self._outbox.ring()

    def _reason(self, at: int, txid: str) -> Quarantined | None:
        data = publish.read_file(self._root, at, f"{txid}.reason", place=layout.QUARANTINE, limit=record.LIMIT)
        if data is None:
            return None
        try:
            found = record.decode(data, what=_WHAT, version=layout.VERSION)
            observed = found.get("observed")
            applied = tuple(str(one) for one in observed) if isinstance(observed, list) else ()
            return Quarantined(txid, record.text(found, "reason", what=_WHAT), applied, None)
        except InvalidRecord:
            return None
