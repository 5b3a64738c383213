"""What ``wakeful coord show`` shows of a root: everything in rows, or one instance or transaction as a record."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeful.errors import NotFound
from wakeful_plugins.root_examination import instances

if TYPE_CHECKING:
    from wakeful_coordination import Coordination, Transaction


def everything(root: Coordination) -> dict[str, list[tuple[object, ...]]]:
    """Return ``instances`` (id, generation, state) and ``transactions`` (id, place, type, what about)."""
    overview = root.survey.overview()
    rows: list[tuple[object, ...]] = [
        (one.txid, "pending", one.type, one.problem or ", ".join(one.instances)) for one in overview.pending
    ]
    rows += [
        (one.txid, "quarantine", one.transaction.event.type if one.transaction else "", one.reason)
        for one in overview.quarantined
    ]
    return {"instances": [_row(root, home) for home in instances(Path(root.root.path))], "transactions": rows}


def one(root: Coordination, name: str) -> dict[str, Any]:
    """Return an instance, or else a transaction wherever it has got to. Raises NotFound."""
    from wakeful_coordination import errors

    try:
        return _instance(root, name)
    except (errors.NotFound, errors.InvalidRecord):
        pass
    try:
        return _transaction(root, name)
    except (errors.NotFound, errors.InvalidRecord):
        raise NotFound(f"there is no instance or transaction {name!r}", hint="list them: wakeful coord show") from None


def _row(root: Coordination, home: Path) -> tuple[object, ...]:
    from wakeful_coordination import CoordinationError

    name = os.fsencode(home.name).decode(errors="backslashreplace")
    try:
        current = root.survey.instance(name).current
    except CoordinationError as error:
        return name, None, error.message
    if current is None:
        return name, None, "never opened"
    return name, current.generation.seq, "open" if current.open else "retired"


def _instance(root: Coordination, name: str) -> dict[str, Any]:
    found = root.survey.instance(name)
    current = found.current
    ended = root.ends.read(current.generation) if current else None
    return {
        "instance": name,
        "generation": current.generation.token if current else None,
        "state": ("open" if current.open else "retired") if current else "never opened",
        "ended": None if ended is None else ended.outcome,
        "holders": list(found.holders),
        "files": list(found.files),
    }


def _transaction(root: Coordination, txid: str) -> dict[str, Any]:
    from wakeful_coordination import errors

    settled = root.authority.receipt(txid)
    if settled is not None:
        undelivered = root.outbox.bytes_of(txid) is not None
        state = "committed, not yet delivered" if undelivered else "committed"
        return _record(txid, state, settled, None)
    try:
        return _record(txid, "pending", root.outbox.read(txid), None)
    except errors.NotFound:
        aside = root.quarantine.read(txid)
        return _record(txid, "quarantined", aside.transaction, aside.reason)


def _record(txid: str, state: str, transaction: Transaction | None, reason: str | None) -> dict[str, Any]:
    record: dict[str, Any] = {"txid": txid, "state": state, "reason": reason}
    if transaction is not None:
        event = transaction.event
        record |= {"type": event.type, "at": event.at, "instances": list(transaction.instances)}
        record |= {"body": dict(event.body), "files": [f"{m.instance}/{m.name}" for m in transaction.mutations]}
    return record
