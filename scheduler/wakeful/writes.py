"""The writes of one pass: what was decided about its receipts, in as few statements as there are kinds of outcome."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection, Cursor

from wakeful import store
from wakeful.ledger import Ledger
from wakeful.outcomes import Admit, End, Outcome, Park, Refusal, Successor, park
from wakeful.receipts import Fact


@dataclass(frozen=True, slots=True)
class Written:
    """What the database says it changed: row success is the only permission.

    Arguments:
        runs: the run of each admitted receipt.
        saved: receipts whose row a first or a changed wait really changed.
    """

    runs: Mapping[UUID, UUID]
    saved: frozenset[UUID]


def write(
    conn: Connection[Any], company: str, facts: Sequence[Fact], outcomes: dict[UUID, Outcome], ledger: Ledger
) -> Written:
    """Write only what differs.

    A receipt whose issue turns out to have a live run after all is parked: its outcome is replaced.

    Arguments:
        conn: inside the pass's transaction, with issues and receipts locked.
        ledger: what the pass was judged by, with the reservations of what it admits.
    """
    by_id = {fact.id: fact for fact in facts}
    runs = _admit(conn, company, outcomes)
    for i, outcome in outcomes.items():
        if isinstance(outcome, Admit) and i not in runs:
            outcomes[i] = _beaten(by_id[i])
    with conn.pipeline():
        _reserve(conn, company, [by_id[i] for i in runs], ledger)
        parking = _park(conn, company, by_id, outcomes)
        ends = [(i, o.state, o.reason, o.message, o.into) for i, o in outcomes.items() if isinstance(o, End)]
        if ends:
            names = ("wakes", "states", "reasons", "messages", "into")
            store.run(conn, "admission.end", {"company": company, **columns(names, ends)})
        _succeed(conn, company, outcomes)
        projects = _projects_to_check(facts, outcomes, ledger)
        if projects:
            store.run(conn, "admission.check_project_budgets", {"company": company, "projects": projects})
        if runs:
            store.run(conn, "admission.announce", {"company": company})
    return Written(runs, frozenset(row.id for row in parking) if parking is not None else frozenset())


def columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Turn rows into one named list per column, as statements over unnested arrays take them."""
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def _admit(conn: Connection[Any], company: str, outcomes: Mapping[UUID, Outcome]) -> dict[UUID, UUID]:
    chosen = [
        (i, o.retry_of, json.dumps(o.comments) if o.comments else None, o.authority)
        for i, o in outcomes.items()
        if isinstance(o, Admit)
    ]
    if not chosen:
        return {}
    names = ("wakes", "retry_of", "comments", "authorities")
    return {
        row.id: row.run for row in store.run(conn, "admission.admit", {"company": company, **columns(names, chosen)})
    }


def _reserve(conn: Connection[Any], company: str, admitted: Sequence[Fact], ledger: Ledger) -> None:
    rows = [(fact.id, policy, amount) for fact in admitted for policy, amount in ledger.reservations(fact)]
    if rows:
        names = ("wakes", "policies", "amounts")
        store.run(conn, "admission.reserve", {"company": company, **columns(names, rows)})


def _park(
    conn: Connection[Any], company: str, facts: Mapping[UUID, Fact], outcomes: Mapping[UUID, Outcome]
) -> Cursor[Any] | None:
    """Write the waits; return what will say which rows a first or a changed one has changed."""
    changed, quiet, parking = [], [], None
    for i, outcome in outcomes.items():
        if not isinstance(outcome, Park):
            continue
        why = outcome.refusal
        if outcome.changed:
            row = (i, why.gate, why.key, why.reason, why.message, why.opens_on, why.reopens_at, outcome.due_at)
            changed.append(row)
        elif outcome.due_at != facts[i].due_at:
            quiet.append((i, outcome.due_at))
    if changed:
        names = ("wakes", "gates", "keys", "reasons", "messages", "opens_on", "reopens_at", "due_at")
        parking = store.run(conn, "admission.park", {"company": company, **columns(names, changed)})
    if quiet:
        store.run(conn, "admission.settle_down", {"company": company, **columns(("wakes", "due_at"), quiet)})
    return parking


def _succeed(conn: Connection[Any], company: str, outcomes: Mapping[UUID, Outcome]) -> None:
    rows = [(i, successor.due_at, _payload(successor)) for i, successor in _successors(outcomes.items())]
    if rows:
        store.run(conn, "admission.succeed", {"company": company, **columns(("wakes", "due_at", "payloads"), rows)})


def _successors(outcomes: Iterable[tuple[UUID, Outcome]]) -> Iterable[tuple[UUID, Successor]]:
    return [(i, o.successor) for i, o in outcomes if isinstance(o, (Admit, End)) and o.successor is not None]


def _payload(successor: Successor) -> str | None:
    return None if successor.payload is None else json.dumps(successor.payload)


def _beaten(fact: Fact) -> Park:
    refusal = Refusal(
        "execution", fact.issue or "", "execution.live_run", f"issue {fact.issue} has a live run", "the end of that run"
    )
    return park(refusal, waits_on=(fact.wait_gate, fact.wait_key, fact.wait_reason), due_at=fact.due_at, now=fact.now)


def _projects_to_check(facts: Sequence[Fact], outcomes: Mapping[UUID, Outcome], ledger: Ledger) -> list[str]:
    """Return the projects whose pause no longer tells the truth about their budget."""
    wrong = set()
    for fact in facts:
        policy = ledger.policy(f"project:{fact.project}") if fact.project else None
        gone = policy is not None and policy.hard_stop and policy.spent >= policy.amount
        unpaused = fact.project_pause_reason is None
        if (
            fact.project
            and fact.id in outcomes
            and ((gone and unpaused) or (not gone and fact.project_pause_reason == "budget"))
        ):
            wrong.add(fact.project)
    return list(wrong)
