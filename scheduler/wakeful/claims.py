"""Claims: a host's dispatcher takes queued runs of one company, and judges again what admission read unlocked.

Lock order: runs (SKIP LOCKED), then their issues ascending; the judgement is the next statement. Closed and
able to reopen: the run stays queued and says why. Closed for good, or out of attempts: it ends here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import gates, store, terminals
from wakeful.executions import EndClass, Grade, RunKey
from wakeful.outcomes import Refusal
from wakeful.receipts import Account, AgentLimit, Fact, Limits, Policy
from wakeful.results import Conclusion

Gate = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims: a host with its labels and executors, and the scheduler that will renew the claims."""

    host: str
    claimer: str
    labels: tuple[str, ...]
    executors: tuple[str, ...]
    lease: float


@dataclass(frozen=True, slots=True)
class Claims:
    """What one claim pass did.

    Arguments:
        started: the runs now this scheduler's to execute.
        waiting: runs that wait, with the gate's own clock where it has one.
        reopened: gates that opened between judgement and commit; they are looked at again now.
        ended: runs that ended here.
        full: the pass took as many as it was allowed; there may be more.
    """

    started: tuple[RunKey, ...] = ()
    waiting: Mapping[UUID, Refusal] = field(default_factory=dict)
    reopened: frozenset[Gate] = frozenset()
    ended: tuple[terminals.Ending, ...] = ()
    full: bool = False


def claim(
    conn: Connection[Any], company: str, who: Claimant, *, limit: int, gate: Gate | None, crash: terminals.Crash
) -> Claims:
    """Claim up to ``limit`` runs of a company: unhindered ones, or those that wait on one signalled gate.

    Arguments:
        conn: an autocommit work connection at READ COMMITTED, outside a transaction.
        gate: the signalled gate, or None for runs that wait on nothing.
        crash: the named crash points ``claim_before_commit`` and ``claim_after_commit``.
    """
    with conn.transaction():
        ids = _lock(conn, company, who, limit, gate)
        if not ids:
            return Claims()
        key = {"company": company, "ids": ids}
        with conn.pipeline():
            store.run(conn, "dispatch.lock_issues", key)
            reading = _read(conn, key)
        facts, limits, own, attempts = reading
        go: list[Fact] = []
        wait: dict[UUID, Refusal] = {}
        end: list[terminals.Ending] = []
        for fact in facts:
            refusal = gates.judge(fact, gates.Ledger(limits, own.get(fact.id)), gates.CLAIM_ORDER)
            if refusal is None and fact.failures >= attempts[fact.agent]:
                end.append(_exhausted(company, fact, attempts[fact.agent]))
            elif refusal is None:
                go.append(fact)
            elif refusal.final:
                end.append(_hopeless(company, fact, refusal))
            else:
                wait[fact.id] = refusal
        started = _write(conn, company, who, go, wait)
        terminals.write_ends(conn, company, end)
        crash("claim_before_commit")
    crash("claim_after_commit")
    reopened = _look_again(conn, company, wait)
    return Claims(started, wait, reopened, tuple(end), full=len(ids) >= limit)


def _lock(conn: Connection[Any], company: str, who: Claimant, limit: int, gate: Gate | None) -> list[UUID]:
    parameters: dict[str, Any] = {
        "company": company,
        "host": who.host,
        "labels": list(who.labels),
        "executors": list(who.executors),
        "limit": limit,
    }
    block = "dispatch.lock_claimable"
    if gate is not None:
        block = "dispatch.lock_waiting"
        parameters |= {"gate": gate[0], "key": gate[1]}
    return [row.id for row in store.run(conn, block, parameters)]


_Reading = tuple[list[Fact], Limits, dict[UUID, dict[str, Decimal]], dict[str, int]]


def _read(conn: Connection[Any], key: Mapping[str, Any]) -> _Reading:
    facts = conn.cursor().execute(store.query("dispatch.facts"), key)
    policies = conn.cursor().execute(store.query("dispatch.policies"), key)
    agents = store.run(conn, "dispatch.agents", key)
    accounts = conn.cursor().execute(store.query("dispatch.accounts"), key)
    reservations = store.run(conn, "dispatch.reservations", key)
    read_facts = [Fact(*row) for row in facts]
    read_policies = {row[0]: Policy(*row) for row in policies}
    read_agents = agents.fetchall()
    own: dict[UUID, dict[str, Decimal]] = {}
    for row in reservations:
        own.setdefault(row.run, {})[row.policy] = row.amount
    limits = Limits(
        read_policies,
        {a.id: AgentLimit(a.id, a.live, a.limit, a.estimate) for a in read_agents},
        {row[0]: Account(*row) for row in accounts},
    )
    return read_facts, limits, own, {a.id: a.max_attempts for a in read_agents}


def _write(
    conn: Connection[Any], company: str, who: Claimant, go: Sequence[Fact], wait: Mapping[UUID, Refusal]
) -> tuple[RunKey, ...]:
    started: tuple[RunKey, ...] = ()
    if go:
        ids = [fact.id for fact in go]
        parameters = {"company": company, "host": who.host, "claimer": who.claimer, "lease": who.lease, "ids": ids}
        rows = {row.id: row for row in store.run(conn, "dispatch.claim", parameters)}
        started = tuple(RunKey(company, i, rows[i].generation) for i in ids if i in rows)
        store.run(conn, "dispatch.announce_claims", {"host": who.host, "lease": who.lease})
    if wait:
        names = ("runs", "gates", "keys", "reasons", "messages", "opens_on", "reopens_at")
        waits = [(i, r.gate, r.key, r.reason, r.message, r.opens_on, r.reopens_at) for i, r in wait.items()]
        columns = {name: list(column) for name, column in zip(names, zip(*waits, strict=True), strict=True)}
        store.run(conn, "dispatch.wait", {"company": company, **columns})
    return started


def _look_again(conn: Connection[Any], company: str, wait: Mapping[UUID, Refusal]) -> frozenset[Gate]:
    """Return the gates that opened between judgement and commit: their signal may have come too early."""
    if not wait:
        return frozenset()
    with conn.transaction(), conn.pipeline():
        facts, limits, own, _ = _read(conn, {"company": company, "ids": sorted(wait)})
    opened = set()
    for fact in facts:
        if fact.state != "queued":
            continue
        refusal = gates.judge(fact, gates.Ledger(limits, own.get(fact.id)), gates.CLAIM_ORDER)
        parked = wait[fact.id]
        if refusal is None or (refusal.gate, refusal.key) != (parked.gate, parked.key):
            opened.add((parked.gate, parked.key))
    return frozenset(opened)


def next_opening(waiting: Mapping[UUID, Refusal]) -> dict[Gate, datetime]:
    """Return the gates that the clock itself opens, with the earliest moment of each."""
    moments: dict[Gate, datetime] = {}
    for refusal in waiting.values():
        gate = (refusal.gate, refusal.key)
        if refusal.reopens_at is not None:
            moments[gate] = min(refusal.reopens_at, moments.get(gate, refusal.reopens_at))
    return moments


def _exhausted(company: str, fact: Fact, limit: int) -> terminals.Ending:
    message = f"its host or its process died under each of {limit} attempts"
    conclusion = Conclusion("failed", EndClass.KILLED, "run.attempts", message=message)
    return terminals.Ending(RunKey(company, fact.id, fact.version), conclusion, grade=Grade.CONTAINED)


def _hopeless(company: str, fact: Fact, refusal: Refusal) -> terminals.Ending:
    conclusion = Conclusion("cancelled", EndClass.STOPPED, refusal.reason, message=refusal.message)
    return terminals.Ending(RunKey(company, fact.id, fact.version), conclusion, grade=Grade.CONTAINED)
