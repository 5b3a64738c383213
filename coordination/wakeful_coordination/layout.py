"""Names: where each thing stands below a root, and which ids may become part of a name."""

from __future__ import annotations

import re
from hashlib import blake2b

from wakeful_coordination.errors import InvalidRecord

VERSION = 1
DIRECTORIES = ("sessions", "doorbell", "instances", "outbox", "receipts")
FILES = ("root.json", "recovery.lock", "recovered.json")
OUTBOX = ("pending", "quarantine")
SHARDS = tuple(f"{number:02x}" for number in range(256))

PENDING = "outbox/pending"
QUARANTINE = "outbox/quarantine"

_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,119}\Z")
_ID = re.compile(r"[0-9a-z][0-9a-z-]{15,63}\Z")
_STATE = re.compile(r"state(-[a-z0-9][a-z0-9_]{0,59})?\.json\Z")


def instance_id(value: object) -> str:
    """Return ``value`` if it may name an instance: 1 to 120 of ``A-Z a-z 0-9 _ . -``, a letter or digit first."""
    if not isinstance(value, str) or not _INSTANCE.match(value):
        raise InvalidRecord(
            f"{_shown(value)} is no instance id", hint="1 to 120 of A-Z a-z 0-9 _ . - and a letter or digit first"
        )
    return value


def record_id(value: object, what: str) -> str:
    """Return ``value`` if it may be a generation, transaction, event or session id: 16 to 64 of ``0-9 a-z -``."""
    if not isinstance(value, str) or not _ID.match(value):
        raise InvalidRecord(f"{_shown(value)} is no {what}", hint="16 to 64 of 0-9 a-z - and no hyphen first")
    return value


def state_name(value: object) -> str:
    """Return ``value`` if a mutation may write it: ``state.json`` or ``state-<word>.json``."""
    if not isinstance(value, str) or not _STATE.match(value):
        raise InvalidRecord(f"{_shown(value)} is no state file", hint="state.json or state-<word>.json")
    return value


def shard(name: str) -> str:
    """Return the two hexadecimal digits under which a name stands (``b2sum -l 8`` prints the same)."""
    return blake2b(name.encode(), digest_size=1).hexdigest()


def instance_path(instance: str) -> str:
    """Return the directory of an instance, relative to the root."""
    return f"instances/{blake2b(instance.encode(), digest_size=1).hexdigest()}/{instance}"


def receipts_path(txid: str) -> str:
    """Return the directory that holds a transaction's receipt, relative to the root."""
    return f"receipts/{shard(txid)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
