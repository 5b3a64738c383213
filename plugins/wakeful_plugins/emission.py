"""Publishing an agent's event: checked, captured, at most once for a key. Files only."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from wakeful.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from wakeful_coordination import Coordination, Generation, Prepared, Transaction

EXAMPLE = """example: '{"text": "half done"}'"""
LONGEST_KEY = 200  # characters
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?", re.ASCII)
_PROVENANCE = ("reported", "estimated", "unknown")


def check_body(type: str, body: object) -> Mapping[str, object]:
    """Return the body of an event if its type allows it. Raises InvalidInput.

    ``spend`` needs an amount, ``comment`` a text, ``status`` a status; other types may say anything.
    """
    if not isinstance(body, dict):
        raise InvalidInput("the body of an event is a JSON object", hint=EXAMPLE)
    if type == "spend":
        amount(body)
        provenance(body)
    elif type == "comment":
        text = body.get("text")
        if not isinstance(text, str) or not text.strip():
            raise InvalidInput("a comment needs a text", hint=EXAMPLE)
        named(body, "issue")
    elif type == "status":
        status(body)
        for key in ("issue", "agent", "review"):
            named(body, key)
        if not isinstance(body.get("reason", ""), str):
            raise InvalidInput("the reason of a status is text")
    return body


def amount(body: Mapping[str, object]) -> Decimal:
    """Return what a ``spend`` event says was spent. Raises InvalidInput."""
    found = body.get("amount")
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found)
    if not isinstance(found, str) or not _AMOUNT.fullmatch(found):
        raise InvalidInput(
            "spend needs an exact amount, written as text with at most six decimals",
            hint="""example: '{"amount": "0.25"}'""",
        )
    return Decimal(found)


def provenance(body: Mapping[str, object]) -> str | None:
    """Return how a ``spend`` event knows its amount; None where it does not say. Raises InvalidInput."""
    found = body.get("provenance")
    if found is not None and found not in _PROVENANCE:
        raise InvalidInput(f"provenance is one of {', '.join(_PROVENANCE)}")
    return None if found is None else str(found)


def status(body: Mapping[str, object]) -> str:
    """Return the status that a ``status`` event asks for. Raises InvalidInput."""
    from wakeful.receipts import ISSUE_STATUSES

    found = body.get("status")
    if found not in ISSUE_STATUSES:
        raise InvalidInput(
            f"status is one of {', '.join(ISSUE_STATUSES)}", hint="""example: '{"status": "in_review"}'"""
        )
    return str(found)


def named(body: Mapping[str, object], key: str) -> str | None:
    """Return the id under ``key``; None where there is none. Raises InvalidInput."""
    found = body.get(key)
    if found is not None and not (isinstance(found, str) and 0 < len(found) <= LONGEST_KEY):
        raise InvalidInput(f"{key} is an id of 1 to {LONGEST_KEY} characters")
    return found


def emit(
    root: Coordination, captured: Generation, type: str, body: Mapping[str, object], *, key: str | None = None
) -> Prepared:
    """Publish one event of the captured generation; on return it survives SIGKILL and power loss.

    Arguments:
        key: the same key, type and body of one generation are published once, however often this is called.

    Raises:
        Conflict: the key was used for something else.
        InvalidInput: an empty or overlong key.
        CoordinationError: what :meth:`Coordination.publish` raises.
    """
    from wakeful_coordination.errors import InvalidRecord

    if key is None:
        return root.publish(root.transaction(captured, type, body))
    if not 0 < len(key) <= LONGEST_KEY:
        raise InvalidInput(f"a key has 1 to {LONGEST_KEY} characters")
    wanted = root.transaction(captured, type, body, txid=keyed_id(captured, key))
    before = _published(root, wanted.txid)
    if before is None:
        try:
            return root.publish(wanted)
        except InvalidRecord:
            before = _published(root, wanted.txid)  # somebody with the same key was faster
            if before is None:
                raise
    if (before.event.type, before.event.body, before.generations) != (type, body, (captured,)):
        raise Conflict(f"key {key!r} was used for another event", hint="a key names one event: choose another")
    return root.publish(before)  # known already, but perhaps not yet durable


def keyed_id(captured: Generation, key: str) -> str:
    """Return the transaction id that a key stands for in one generation."""
    return hashlib.sha256(f"{captured.token}\0{key}".encode()).hexdigest()[:32]


def _published(root: Coordination, txid: str) -> Transaction | None:
    """Return a transaction that was published before, wherever it has got to."""
    from wakeful_coordination.errors import NotFound

    try:
        return root.outbox.read(txid)
    except NotFound:
        pass
    settled = root.authority.receipt(txid)
    if settled is not None:
        return settled
    try:
        return root.quarantine.read(txid).transaction
    except NotFound:
        return None
