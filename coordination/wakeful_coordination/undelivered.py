"""Why a transaction is still in the outbox although it was settled: a note beside it, for people.

A note decides nothing and may be lost; what it says is found out again by the next delivery.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from wakeful_coordination import layout, publish, record
from wakeful_coordination.errors import InvalidRecord
from wakeful_coordination.root import Root

_LIMIT = 16 * 1024
_WHAT = "note"
_LONGEST = 2000  # characters of a reason


@dataclass(frozen=True, slots=True)
class Note:
    """What a consumer said of a transaction it did not take.

    ``refused``: it never will by itself, so nobody asks again unless a person does. ``at``: since when (ISO 8601).
    """

    txid: str
    reason: str
    refused: bool
    at: str


class Undelivered:
    """Writes and reads the notes of a root."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def note(self, txid: str, reason: str, *, refused: bool) -> Note:
        """Say why a pending transaction was not taken; a note that says the same already stands.

        Raises UnsafePath, StorageFailed.
        """
        reason = reason[:_LONGEST]
        name = _name(txid)
        with self._root.directory(layout.PENDING) as at:
            before = self._read(at, txid)
            if before is not None and (before.reason, before.refused) == (reason, refused):
                return before
            made = Note(txid, reason, refused, self._root.now().isoformat(timespec="microseconds"))
            data = record.encode(
                {"v": layout.VERSION, "txid": txid, "reason": reason, "refused": refused, "at": made.at}
            )
            publish.replace_file(
                self._root,
                at,
                name,
                data,
                place=layout.PENDING,
                durable=False,
                temporary=f".tmp-{self._root.sid}-{name}",
            )
            if self._root.files.stat(f"{txid}.json", at) is None:  # delivered meanwhile, by another relay
                publish.remove(self._root, at, name, place=layout.PENDING)
        return made

    def read(self, txid: str) -> Note | None:
        """Return the note beside a pending transaction; None where there is none that can be read.

        Raises UnsafePath, StorageFailed.
        """
        with self._root.directory(layout.PENDING) as at:
            return self._read(at, txid)

    def _read(self, at: int, txid: str) -> Note | None:
        with contextlib.suppress(InvalidRecord):
            data = publish.read_file(self._root, at, _name(txid), place=layout.PENDING, limit=_LIMIT)
            if data is not None:
                found = record.decode(data, what=_WHAT, version=layout.VERSION)
                reason, since = (record.text(found, key, what=_WHAT) for key in ("reason", "at"))
                return Note(txid, reason, found.get("refused") is True, since)
        return None


def _name(txid: str) -> str:
    return f"{layout.record_id(txid, 'transaction id')}.reason"
