"""What a raise would do: which wakes would run, and what would still hold the others. Reads only, locks nothing.

An answer for people, as of now: what other transactions change meanwhile is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import reading, store
from wakeful.decisions import decide
from wakeful.errors import InvalidInput, NotFound
from wakeful.judges import Judges
from wakeful.ledger import Ledger
from wakeful.outcomes import Admit, Park
from wakeful.owners import GateCheck, Owner
from wakeful.receipts import Limits

PAGE = 100
MOST = 10_000
_FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Foretold:
    """What would become of one waiting wake: ``gate``, ``key`` and ``reason`` say what would still hold it."""

    wake: UUID
    agent: str
    issue: str | None
    runs: bool
    gate: str | None = None
    key: str | None = None
    reason: str | None = None


def of_raise(
    conn: Connection[Any],
    company: str,
    policy: str,
    *,
    amount: Decimal | None = None,
    by_amount: Decimal | None = None,
    owners: Iterable[Owner] = (),
    gates: Iterable[GateCheck] = (),
) -> list[Foretold]:
    """Return what raising a budget would do to the wakes that wait behind it, in the order they would be judged.

    Arguments:
        amount, by_amount: the new limit, or by how much; exactly one.
        owners, gates: of the loaded plugins; their verdicts count too.

    Raises:
        NotFound: there is no such budget.
        InvalidInput: neither or both of the amounts are given.
    """
    if (amount is None) is (by_amount is None):
        raise InvalidInput("a raise names the new limit, or by how much, not both")
    judges = Judges(owners, tuple(gates))
    told: list[Foretold] = []
    ledger: Ledger | None = None
    after = _FIRST
    with conn.transaction():
        store.run(conn, "transactions.snapshot")
        if not store.run(conn, "forecast.has_budget", {"company": company, "policy": policy}).fetchall()[0].found:
            raise NotFound(
                f"there is no budget {policy!r} in company {company!r}", hint="list them: wakeful budget list"
            )
        while len(told) < MOST:
            page = {"company": company, "gate": "budget", "key": policy, "after": after, "limit": PAGE}
            ids = [row.id for row in store.run(conn, "window.parked", page)]
            if not ids:
                break
            key = {"company": company, "ids": ids, "payload_kinds": judges.payload_kinds}
            facts, limits = reading.facts_and_limits(conn, key)()
            raised = _raised(limits, policy, amount, by_amount)
            # One ledger through all pages: what an earlier page would admit, a later one cannot spend again.
            ledger = Ledger(raised) if ledger is None else ledger.joined(raised)
            outcomes = decide(facts, judges.verdicts(facts), ledger, judges.refusals(conn, facts), frozenset(ids))
            for fact in facts:
                outcome = outcomes[fact.id]
                refusal = outcome.refusal if isinstance(outcome, Park) else None
                told.append(
                    Foretold(
                        fact.id,
                        fact.agent,
                        fact.issue,
                        isinstance(outcome, Admit),
                        refusal.gate if refusal else None,
                        refusal.key if refusal else None,
                        refusal.reason if refusal else getattr(outcome, "reason", None),
                    )
                )
            after = max(ids)
            if len(ids) < PAGE:
                break
    return told


def _raised(limits: Limits, policy: str, amount: Decimal | None, by_amount: Decimal | None) -> Limits:
    held = limits.policies.get(policy)
    if held is None:
        return limits
    target = amount if amount is not None else held.amount + (by_amount or Decimal(0))
    return replace(limits, policies={**limits.policies, policy: replace(held, amount=max(held.amount, target))})
