"""The V3 event: what an agent says, in the scope of one generation of one instance."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from wakeful_coordination import layout, record
from wakeful_coordination.errors import InvalidRecord

VERSION = 3
#: Bytes of one encoded event.
LIMIT = 64 * 1024

_TYPE = re.compile(r"[a-z][a-z0-9_]{0,39}(\.[a-z][a-z0-9_]{0,39}){0,3}\Z")


@dataclass(frozen=True, slots=True)
class Event:
    """A V3 event; ``record`` is the object as it was written, unknown keys included."""

    id: str
    type: str
    at: str
    instance: str
    generation_id: str
    body: Mapping[str, object]
    record: Mapping[str, object]


def new_event(*, id: str, type: str, at: datetime, instance: str, generation_id: str, body: object) -> Event:
    """Return a valid event.

    ``id`` is unique (16 to 64 of ``0-9 a-z -``), ``type`` a dotted lower-case word such as ``comment``,
    ``at`` an aware time, ``body`` an object. Raises InvalidRecord.
    """
    if at.tzinfo is None:
        raise InvalidRecord("an event's time needs a zone")
    return parse_event(
        {
            "v": VERSION,
            "id": id,
            "type": type,
            "at": at.isoformat(timespec="microseconds"),
            "scope": {"instance": instance, "generation_id": generation_id},
            "body": body,
        }
    )


def parse_event(found: Mapping[str, object]) -> Event:
    """Return the event in a JSON object, or raise InvalidRecord (UnknownVersion where ``v`` is not 3)."""
    what = "event"
    record.require_version(found, what=what, version=VERSION)
    if len(record.encode(found)) > LIMIT:
        raise InvalidRecord(f"an event of more than {LIMIT} bytes", hint="put large data in a file and name it")
    kind = record.text(found, "type", what=what)
    if not _TYPE.match(kind):
        raise InvalidRecord(f"{kind[:60]!r} is no event type", hint="lower-case words joined by dots")
    at = record.text(found, "at", what=what)
    try:
        zoned = datetime.fromisoformat(at).tzinfo is not None
    except ValueError:
        zoned = False
    if not zoned:
        raise InvalidRecord("event: at must be an ISO 8601 time with a zone")
    scope = record.table(found, "scope", what=what)
    return Event(
        id=layout.record_id(found.get("id"), "event id"),
        type=kind,
        at=at,
        instance=layout.instance_id(scope.get("instance")),
        generation_id=layout.record_id(scope.get("generation_id"), "generation id"),
        body=record.table(found, "body", what=what),
        record=found,
    )
