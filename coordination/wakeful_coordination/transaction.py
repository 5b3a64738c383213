"""The transaction record: an event, the generations it stands on, and the files it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from wakeful_coordination import layout, record
from wakeful_coordination.errors import InvalidRecord
from wakeful_coordination.event import Event, parse_event
from wakeful_coordination.generation import Generation

VERSION = 1
KINDS = ("event", "local")
#: Instances and mutations in one transaction.
MOST = 64

_WHAT = "transaction"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One state file to be replaced whole: ``body`` is its new text, ``name`` a state file's name."""

    instance: str
    name: str
    body: str

    @property
    def sha256(self) -> str:
        """Return the digest of the body's UTF-8 bytes."""
        return sha256(self.body.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Transaction:
    """A prepared change. ``kind`` says who is told: ``event`` consumers of the outbox, ``local`` nobody."""

    txid: str
    kind: str
    generations: tuple[Generation, ...]
    event: Event
    mutations: tuple[Mutation, ...]
    sid: str | None
    created_at: str
    data: bytes

    @property
    def instances(self) -> tuple[str, ...]:
        """Return the participating instances in ascending order."""
        return tuple(generation.instance for generation in self.generations)


def new_transaction(
    *,
    txid: str,
    event: Event,
    generations: Sequence[Generation],
    mutations: Sequence[Mutation],
    sid: str | None,
    created_at: datetime,
    kind: str = "event",
) -> Transaction:
    """Return a valid transaction over the captured ``generations``; raises InvalidRecord."""
    try:
        listed = [
            {"instance": one.instance, "op": "put", "name": one.name, "sha256": one.sha256, "body": one.body}
            for one in mutations
        ]
    except UnicodeEncodeError:
        raise InvalidRecord("a mutation's body is not valid text (lone surrogate)") from None
    return parse_transaction(
        record.encode(
            {
                "v": VERSION,
                "txid": txid,
                "kind": kind,
                "instances": [
                    {"id": one.instance, "generation_id": one.id, "seq": one.seq}
                    for one in sorted(generations, key=lambda one: one.instance)
                ],
                "event": event.record,
                "mutations": listed,
                "sid": sid,
                "created_at": created_at.isoformat(timespec="microseconds"),
            }
        )
    )


def parse_transaction(data: bytes, *, txid: str | None = None) -> Transaction:
    """Return the transaction in ``data``; ``txid`` is the name it was found under.

    Raises InvalidRecord for anything a replay could not apply in exactly one way.
    """
    found = record.decode(data, what=_WHAT, version=VERSION)
    own = layout.record_id(found.get("txid"), "transaction id")
    if txid is not None and own != txid:
        raise InvalidRecord(f"transaction {own} stands under the name {txid}")
    kind = record.text(found, "kind", what=_WHAT)
    if kind not in KINDS:
        raise InvalidRecord(f"transaction: kind {kind[:40]!r} is none of {', '.join(KINDS)}")
    event = parse_event(record.table(found, "event", what=_WHAT))
    generations = _generations(found)
    if not any(one.instance == event.instance and one.id == event.generation_id for one in generations):
        raise InvalidRecord("transaction: the event's scope is not among its instances")
    sid = found.get("sid")
    return Transaction(
        txid=own,
        kind=kind,
        generations=generations,
        event=event,
        mutations=_mutations(found, {one.instance for one in generations}),
        sid=None if sid is None else layout.record_id(sid, "session id"),
        created_at=record.text(found, "created_at", what=_WHAT),
        data=data,
    )


def _generations(found: Mapping[str, object]) -> tuple[Generation, ...]:
    listed = tuple(
        Generation(
            instance=layout.instance_id(row.get("id")),
            seq=record.number(row, "seq", what=_WHAT),
            id=layout.record_id(row.get("generation_id"), "generation id"),
        )
        for row in record.rows(found, "instances", what=_WHAT, most=MOST)
    )
    names = [one.instance for one in listed]
    if not names or names != sorted(set(names)):
        raise InvalidRecord("transaction: instances must ascend, each once")
    return listed


def _mutations(found: Mapping[str, object], instances: set[str]) -> tuple[Mutation, ...]:
    listed = []
    for row in record.rows(found, "mutations", what=_WHAT, most=MOST):
        if row.get("op") != "put":
            raise InvalidRecord(f"transaction: mutation {str(row.get('op'))[:40]!r} is not known here")
        one = Mutation(
            instance=layout.instance_id(row.get("instance")),
            name=layout.state_name(row.get("name")),
            body=record.text(row, "body", what=_WHAT),
        )
        try:
            digest = one.sha256
        except UnicodeEncodeError:
            raise InvalidRecord("transaction: a mutation's body is not valid text") from None
        if digest != row.get("sha256"):
            raise InvalidRecord(f"transaction: the body of {one.name} does not match its sha256")
        if one.instance not in instances:
            raise InvalidRecord(f"transaction: mutates {one.instance}, which it does not name")
        listed.append(one)
    if len({(one.instance, one.name) for one in listed}) != len(listed):
        raise InvalidRecord("transaction: a file is mutated twice")
    return tuple(listed)
