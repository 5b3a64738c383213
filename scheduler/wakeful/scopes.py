"""Scopes: which status intents of one pass are one dispatch. Pure.

A scope is (company, agent, issue, review). The first intent of a scope leads; the others of the same pass follow it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from wakeful.outcomes import End, Outcome, Verdict
from wakeful.receipts import Fact

Scope = tuple[str, str, str | None, str | None]
Fate = tuple[End, UUID | None]  # how an intent ends, and the run that it is carried by, if there is one


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


def ends(
    groups: Grouping,
    outcomes: Mapping[UUID, Outcome],
    saved: Mapping[UUID, UUID],
    carried: Mapping[UUID, Carrier],
) -> dict[UUID, Fate]:
    """Return how the intents of one transaction end that lead to no run of their own.

    Arguments:
        outcomes: of the leaders.
        saved: the dispatch receipt of each leader that a gate holds back.
        carried: what carries each leader, but for those that end.
    """
    found: dict[UUID, Fate] = {intent: (end, None) for intent, end in groups.ends.items()}
    for intent, outcome in outcomes.items():
        if intent in saved:
            found[intent] = _waits(saved[intent]), None
        elif isinstance(outcome, End):
            found[intent] = outcome, None
    for intent, leader in groups.followers.items():
        fate = outcomes[leader]
        found[intent] = (fate, None) if isinstance(fate, End) else _same(carried[leader])
    return found | {intent: _same(carrier) for intent, carrier in groups.joined.items()}


def _waits(dispatch: UUID) -> End:
    return End("coalesced", "intent.dispatch", f"dispatch receipt {dispatch} waits for its gate", into=dispatch)


def _same(carrier: Carrier) -> Fate:
    message = f"wake {carrier.wake} carries it: the same agent, issue and review"
    return End("coalesced", "intent.same_scope", message, into=carrier.wake), carrier.run


def dispatch_id(intent: UUID) -> UUID:
    """Return the id of the dispatch receipt that an intent leads to: always the same one, a UUIDv7 of the same time."""
    drawn = bytearray(intent.bytes[:6] + hashlib.sha256(b"dispatch " + intent.bytes).digest()[:10])
    drawn[6] = drawn[6] & 0x0F | 0x70
    drawn[8] = drawn[8] & 0x3F | 0x80
    return UUID(bytes=bytes(drawn))
