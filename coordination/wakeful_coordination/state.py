"""State files: what a mutation writes, and how the generation it was written for reads it back."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from wakeful_coordination import layout, publish, record
from wakeful_coordination.errors import InvalidRecord
from wakeful_coordination.generation import Generation
from wakeful_coordination.root import Root

_WHAT = "state"


def encode_state(own: Generation, txid: str, body: str, digest: str) -> bytes:
    """Return the bytes of a state file, bound to the generation and the transaction that wrote it."""
    fields: Mapping[str, object] = {
        "v": layout.VERSION,
        "generation_id": own.id,
        "txid": txid,
        "sha256": digest,
        "body": body,
    }
    return record.encode(fields)


def read_state(root: Root, generation: Generation, name: str = "state.json") -> str | None:
    """Return the body a transaction of this very generation wrote; None where there is none.

    State of another generation is not shown: it binds to nothing newer. Raises InvalidRecord for bytes that
    do not match their digest.
    """
    place = layout.instance_path(layout.instance_id(generation.instance))
    layout.state_name(name)
    try:
        with root.directory(place) as at:
            data = publish.read_file(root, at, name, place=place, limit=2 * record.LIMIT)
    except FileNotFoundError:
        return None
    if data is None:
        return None
    found = record.decode(data, what=_WHAT, version=layout.VERSION)
    if found.get("generation_id") != generation.id:
        return None
    body = record.text(found, "body", what=_WHAT)
    if sha256(body.encode()).hexdigest() != found.get("sha256"):
        raise InvalidRecord(f"{root.path}/{place}/{name} does not match its digest")
    return body
