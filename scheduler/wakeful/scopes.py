"""Scopes: which status intents of one pass are one dispatch. Pure.

A scope is (company, agent, issue, review). The first intent of a scope leads; the others of the same pass follow it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from wakeful.outcomes import End, Verdict
from wakeful.receipts import Fact

Scope = tuple[str, str, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Carrier:
    """What carries a scope: the wake that leads it, or its dispatch receipt, and the run, if there is one."""

    wake: UUID
    run: UUID | None


@dataclass(frozen=True, slots=True)
class Grouping:
    """The intents of one transaction, by what becomes of them.

    Arguments:
        leaders: the first of each new scope: the gates decide.
        followers: each with the leader whose fate it shares.
        joined: those whose scope the same pass has dispatched already.
        ends: those that their plugin ends.
    """

    leaders: tuple[Fact, ...]
    followers: Mapping[UUID, UUID]
    joined: Mapping[UUID, Carrier]
    ends: Mapping[UUID, End]


def scope_of(fact: Fact) -> Scope:
    """Return the scope of an intent."""
    return fact.company, fact.agent, fact.issue, fact.review


def group(facts: Sequence[Fact], verdicts: Mapping[UUID, Verdict], known: Mapping[Scope, Carrier]) -> Grouping:
    """Group the locked intents of one transaction.

    Arguments:
        facts: in the order in which they may be admitted.
        verdicts: of their plugin.
        known: the scopes that the same pass has dispatched.
    """
    leaders: dict[Scope, Fact] = {}
    followers: dict[UUID, UUID] = {}
    joined: dict[UUID, Carrier] = {}
    ends: dict[UUID, End] = {}
    for fact in facts:
        verdict, scope = verdicts.get(fact.id), scope_of(fact)
        if isinstance(verdict, End):
            ends[fact.id] = verdict
        elif scope in known:
            joined[fact.id] = known[scope]
        elif scope in leaders:
            followers[fact.id] = leaders[scope].id
        else:
            leaders[scope] = fact
    return Grouping(tuple(leaders.values()), followers, joined, ends)


def dispatch_id(intent: UUID) -> UUID:
    """Return the id of the dispatch receipt that an intent leads to: always the same one, a UUIDv7 of the same time."""
    drawn = bytearray(intent.bytes[:6] + hashlib.sha256(b"dispatch " + intent.bytes).digest()[:10])
    drawn[6] = drawn[6] & 0x0F | 0x70
    drawn[8] = drawn[8] & 0x3F | 0x80
    return UUID(bytes=bytes(drawn))
