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

from wakeful import gates, store, terminals, turns
from wakeful.crash_points import Crash, CrashPoint
from wakeful.executions import EndClass, Grade, RunKey
from wakeful.ledger import Ledger
from wakeful.outcomes import Gate, Refusal
from wakeful.receipts import Account, AgentLimit, Fact, Limits, Policy
from wakeful.results import Conclusion

PAGE = 100  # waiting runs that one pass judges, however few it may start


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
        full: the pass looked at as many as it was allowed; there may be more.
        left: somebody else held rows that could have been claimed; they are to be looked at again in a moment.
        halted: a setting forbids claims, or this host was declared dead; nothing was done.
        turn: when the next run may start behind an account that has just reopened.
    """

    started: tuple[RunKey, ...] = ()
    waiting: Mapping[UUID, Refusal] = field(default_factory=dict)
    reopened: frozenset[Gate] = frozenset()
    ended: tuple[terminals.Ending, ...] = ()
    full: bool = False
    left: bool = False
    halted: bool = False
    turn: datetime | None = None


def claim(conn: Connection[Any], company: str, who: Claimant, *, limit: int, gate: Gate | None, crash: Crash) -> Claims:
    """Claim up to ``limit`` runs of a company: unhindered ones, or those that wait on one signalled gate.

    Arguments:
        conn: an autocommit work connection at READ COMMITTED, outside a transaction.
        gate: the signalled gate, or None for runs that wait on nothing.
        crash: called at ``CrashPoint.CLAIM_BEFORE_COMMIT`` and ``CLAIM_AFTER_COMMIT``.
    """
    # Behind one gate a run may still wait while another no longer does, so more are judged than may be started.
    look = limit if gate is None else max(limit, PAGE)
    turn: turns.Turn | None = None
    with conn.transaction():
        if gate is not None and gate[0] in turns.GATES:
            turn = turns.take(conn, company, gate[1])
            if turn is not None:
                gate, limit = ("rate", gate[1]), min(limit, turn.allowed)
                look = max(1, limit)
        with conn.pipeline():
            store.run(conn, "settings.cached_plans")
            ids, left = _lock(conn, company, who, look, gate)
        if not ids:
            return Claims(left=left)
        if turn is not None and limit == 0:
            return Claims(turn=turn.next)
        if store.run(conn, "settings.halted", {"host": who.host}).fetchall()[0].halted:
            return Claims(halted=True)
        key = {"company": company, "ids": ids}
        with conn.pipeline():
            store.run(conn, "dispatch.lock_issues", key)
            reading = _read(conn, key)
        facts, limits, own, attempts = reading
        go: list[Fact] = []
        wait: dict[UUID, Refusal] = {}
        end: list[terminals.Ending] = []
        exhausted: list[Fact] = []
        for fact in facts:
            refusal = gates.judge(fact, Ledger(limits, own.get(fact.id)), gates.CLAIM_ORDER)
            if refusal is None and fact.failures >= attempts[fact.agent]:
                exhausted.append(fact)
            elif refusal is None:
                go.append(fact)
            elif refusal.final:
                end.append(_hopeless(company, fact, refusal))
            else:
                wait[fact.id] = refusal
        end += _exhausted(conn, company, exhausted, attempts)
        started = _write(conn, company, who, go[:limit], wait)
        terminals.write_ends(conn, company, end)
        # A new window opens the budget, but nobody spends in it yet: its pause of the project is checked here.
        paused = [refusal.key for refusal in wait.values() if refusal.reason == "project.paused_budget"]
        if paused:
            store.run(conn, "admission.check_project_budgets", {"company": company, "projects": sorted(set(paused))})
        crash(CrashPoint.CLAIM_BEFORE_COMMIT)
    crash(CrashPoint.CLAIM_AFTER_COMMIT)
    reopened = _look_again(conn, company, wait)
    full = len(ids) >= look or len(go) > limit
    return Claims(started, wait, reopened, tuple(end), full, left, turn=turn.next if turn is not None else None)


def _lock(conn: Connection[Any], company: str, who: Claimant, limit: int, gate: Gate | None) -> tuple[list[UUID], bool]:
    """Return the runs that are locked now, and whether others were left out because somebody holds them."""
    parameters: dict[str, Any] = {
        "company": company,
        "host": who.host,
        "labels": list(who.labels),
        "executors": list(who.executors),
        "limit": limit,
        "gate": gate[0] if gate else None,
        "key": gate[1] if gate else None,
    }
    block = "dispatch.lock_claimable" if gate is None else "dispatch.lock_waiting"
    ids = [row.id for row in store.run(conn, block, parameters)]
    if len(ids) >= limit:
        return ids, False
    # Whoever holds them may roll back or die, and nobody would tell.
    left = store.run(conn, "dispatch.left_behind", parameters | {"ids": ids}).fetchall()[0].yes
    return ids, bool(left)


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
        store.run(conn, "dispatch.announce_claims", parameters)
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
        refusal = gates.judge(fact, Ledger(limits, own.get(fact.id)), gates.CLAIM_ORDER)
        if refusal is None or refusal.at != wait[fact.id].at:
            opened.add(wait[fact.id].at)
    return frozenset(opened)


def next_opening(waiting: Mapping[UUID, Refusal]) -> dict[Gate, datetime]:
    """Return the gates that the clock itself opens, with the earliest moment of each."""
    moments: dict[Gate, datetime] = {}
    for refusal in waiting.values():
        if refusal.reopens_at is not None:
            moments[refusal.at] = min(refusal.reopens_at, moments.get(refusal.at, refusal.reopens_at))
    return moments


def _exhausted(
    conn: Connection[Any], company: str, facts: Sequence[Fact], limits: Mapping[str, int]
) -> list[terminals.Ending]:
    if not facts:
        return []
    rows = store.run(conn, "dispatch.last_errors", {"company": company, "ids": [fact.id for fact in facts]})
    errors = {row.id: row.error for row in rows}
    endings = []
    for fact in facts:
        message = f"none of its {limits[fact.agent]} attempts came to an end of its own"
        conclusion = Conclusion("failed", EndClass.KILLED, "run.attempts", message=message, error=errors[fact.id])
        endings.append(terminals.Ending(RunKey(company, fact.id, fact.version), conclusion, grade=Grade.CONTAINED))
    return endings


def _hopeless(company: str, fact: Fact, refusal: Refusal) -> terminals.Ending:
    conclusion = Conclusion("cancelled", EndClass.STOPPED, refusal.reason, message=refusal.message)
    return terminals.Ending(RunKey(company, fact.id, fact.version), conclusion, grade=Grade.CONTAINED)
