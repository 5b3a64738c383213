"""The dispatcher of status intents: claims those of one pass, then admits them, scope by scope.

One object per pass, opaque to whoever asked for it. It holds what this pass has dispatched, by scope, and is gone with
it: an intent that is committed while a pass is under way belongs to the next one, and gets a run of its own.

Two transactions for each company. The claim takes due intents for 60 s and commits: a dispatcher that dies then is
found by that deadline, and finished by another. The admission locks issues ascending and the intents whose claim is
still its own, judges in the next statement, and settles all of them at once, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg import Connection

from wakeful import judgement, reading, scopes, store, writes
from wakeful.crash_points import Crash, CrashPoint
from wakeful.errors import Conflict
from wakeful.judges import Judges
from wakeful.outcomes import End, Gone, Moved, Outcome, Park
from wakeful.results import storable
from wakeful.scopes import Carrier, Scope, dispatch_id, group, scope_of


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What a pass did with the intents of one company.

    Arguments:
        outcomes: per intent, and of each dispatch receipt that was saved how it waits.
        runs: the run of each intent that leads one.
        busy: intents whose rows somebody else held.
        failed: intents whose dispatch failed, with their next try.
        freed: intents given back, since nothing may be admitted.
    """

    outcomes: Mapping[UUID, Outcome] = field(default_factory=dict)
    runs: Mapping[UUID, UUID] = field(default_factory=dict)
    busy: frozenset[UUID] = frozenset()
    failed: Mapping[UUID, datetime] = field(default_factory=dict)
    freed: frozenset[UUID] = frozenset()

    def __or__(self, other: Dispatched) -> Dispatched:
        """Join what was done with two parts of the intents."""
        return Dispatched(
            {**self.outcomes, **other.outcomes},
            {**self.runs, **other.runs},
            self.busy | other.busy,
            {**self.failed, **other.failed},
            self.freed | other.freed,
        )


@dataclass(frozen=True, slots=True)
class IntentClaim:
    """Intents of one company, claimed at one moment."""

    company: str
    ids: tuple[UUID, ...]
    at: datetime


class IntentDispatcher:
    """One pass.

    Arguments:
        judges: the loaded plugins.
        crash: called at ``INTENT_BEFORE_COMMIT``, ``INTENT_AFTER_COMMIT`` and the admission's own points.
        name: who dispatches, for people.
        tell: signal the deadlines that are stored, for a scheduler elsewhere.
    """

    def __init__(self, judges: Judges, crash: Crash, *, name: str, tell: bool = False) -> None:
        self._judges = judges
        self._crash = crash
        self._claimer = f"{name}/{uuid4().hex[:12]}"  # no two passes may take each other's claims for their own
        self._tell = tell
        self._scopes: dict[Scope, Carrier] = {}

    def dispatch(self, conn: Connection[Any], company: str, ids: Sequence[UUID]) -> Dispatched:
        """Claim and settle intents of one company.

        Arguments:
            conn: an autocommit work connection at READ COMMITTED, outside a transaction.
            ids: of one pass, at most 100 together.

        Raises:
            psycopg.OperationalError: the connection is lost; the claims, if any, end by their deadline.
        """
        claim, rest = self._claim(conn, company, sorted(ids))
        return rest if claim is None else rest | self._settle(conn, claim)

    def _claim(self, conn: Connection[Any], company: str, ids: Sequence[UUID]) -> tuple[IntentClaim | None, Dispatched]:
        key = {"company": company, "ids": ids, "claimer": self._claimer}
        with conn.transaction():
            rows = store.run(conn, "intents.claim", key).fetchall()
            self._crash(CrashPoint.INTENT_BEFORE_COMMIT)
        self._crash(CrashPoint.INTENT_AFTER_COMMIT)
        claim = IntentClaim(company, tuple(row.id for row in rows), rows[0].claimed_at) if rows else None
        rest = set(ids).difference(claim.ids if claim else ())
        if not rest:
            return claim, Dispatched()
        outcomes: dict[UUID, Outcome] = {i: Gone() for i in rest}
        busy: set[UUID] = set()
        for row in store.run(conn, "intents.unclaimed", {"company": company, "ids": sorted(rest)}):
            if row.due:
                busy.add(row.id)
            if not row.gone:
                outcomes[row.id] = Moved(row.due_at)
        return claim, Dispatched({i: o for i, o in outcomes.items() if i not in busy}, busy=frozenset(busy))

    def _settle(self, conn: Connection[Any], claim: IntentClaim) -> Dispatched:
        try:
            return self._once(conn, claim)
        except psycopg.OperationalError as error:
            # A deadlock is nobody's fault in particular, so there is nothing to halve.
            if conn.closed:
                raise
            return self._fail(conn, claim, error)
        except Exception as error:
            if len(claim.ids) == 1:
                return self._fail(conn, claim, error)
            half = len(claim.ids) // 2
            first = self._settle(conn, IntentClaim(claim.company, claim.ids[:half], claim.at))
            return first | self._settle(conn, IntentClaim(claim.company, claim.ids[half:], claim.at))

    def _key(self, claim: IntentClaim) -> dict[str, Any]:
        return {
            "company": claim.company,
            "ids": list(claim.ids),
            "claimer": self._claimer,
            "claimed_at": claim.at,
            "payload_kinds": self._judges.payload_kinds,
        }

    def _once(self, conn: Connection[Any], claim: IntentClaim) -> Dispatched:
        key, company = self._key(claim), claim.company
        with conn.transaction():
            with conn.pipeline():
                store.run(conn, "settings.cached_plans")
                store.run(conn, "intents.lock_issues", key)
                locking = store.run(conn, "intents.lock", key)
                halting = store.run(conn, "intents.halted")
                asked = reading.facts_and_limits(conn, key)
                locked = {row.id for row in locking}
                halted = halting.fetchall()[0].halted
                facts, limits = asked()
            if halted:
                return Dispatched(freed=frozenset(row.id for row in store.run(conn, "intents.free", key)))
            mine = [fact for fact in facts if fact.id in locked]
            verdicts = self._judges.verdicts(mine)
            groups = group(mine, verdicts, self._scopes)
            leading = [fact.id for fact in groups.leaders]
            outcomes, ledger = judgement.of(
                conn, key, self._judges, groups.leaders, verdicts, limits, released=frozenset(leading)
            )
            runs = writes.write(conn, company, groups.leaders, outcomes, ledger).runs
            saved = self._save(conn, company, outcomes)
            carried = {i: Carrier(i, runs.get(i)) for i in leading} | {i: Carrier(d, None) for i, d in saved.items()}
            ends = scopes.ends(groups, outcomes, saved, carried)
            _write_ends(conn, company, ends)
            self._crash(CrashPoint.ADMISSION_BEFORE_COMMIT)
        self._crash(CrashPoint.ADMISSION_AFTER_COMMIT)
        self._scopes |= {
            scope_of(fact): carried[fact.id] for fact in groups.leaders if not isinstance(outcomes[fact.id], End)
        }
        # Somebody else holds the row, or has taken the lapsed claim: it is looked at again by its stored deadline.
        left: dict[UUID, Outcome] = {
            fact.id: Gone() if fact.due_at is None else Moved(fact.due_at) for fact in facts if fact.id not in locked
        }
        parked = {dispatch: outcomes[i] for i, dispatch in saved.items()}
        ended = {i: end for i, (end, _) in ends.items()}
        return Dispatched({**left, **outcomes, **ended, **parked}, runs)

    def _save(self, conn: Connection[Any], company: str, outcomes: Mapping[UUID, Outcome]) -> dict[UUID, UUID]:
        """Save the dispatch receipts of leaders that a gate holds back; return them by intent."""
        rows: list[tuple[Any, ...]] = []
        for i, outcome in outcomes.items():
            if isinstance(outcome, Park):
                why = outcome.refusal
                wait = (why.gate, why.key, why.reason, why.message, why.opens_on, why.reopens_at, outcome.due_at)
                rows.append((i, dispatch_id(i), *wait))
        if not rows:
            return {}
        names = ("wakes", "dispatches", "gates", "keys", "reasons", "messages", "opens_on", "reopens_at", "due_at")
        store.run(conn, "intents.save_dispatch", {"company": company, **writes.columns(names, rows)})
        saved = {row[0]: row[1] for row in rows}
        self._told(conn, company, list(saved.values()))
        return saved

    def _fail(self, conn: Connection[Any], claim: IntentClaim, error: Exception) -> Dispatched:
        text = storable(f"{type(error).__name__}: {error}")[:2000]
        with conn.transaction():
            rows = store.run(conn, "intents.fail", {**self._key(claim), "error": text}).fetchall()
            self._told(conn, claim.company, [row.id for row in rows])
        return Dispatched(failed={row.id: row.due_at for row in rows})

    def _told(self, conn: Connection[Any], company: str, wakes: list[UUID]) -> None:
        if self._tell:
            store.run(conn, "intents.tell", {"company": company, "ids": wakes})


def due(conn: Connection[Any], company: str | None, limit: int) -> dict[str, list[UUID]]:
    """Return the due intents that one pass by hand may take, by company, fairly.

    Arguments:
        company: whose; None: all that this login sees.
        limit: how many together.

    Raises:
        Conflict: nothing may be admitted now.
    """
    if store.run(conn, "intents.halted", prepare=False).fetchall()[0].halted:
        raise Conflict("nothing is admitted: the instance drains, or is switched off", hint="see: wakeful settings")
    found: dict[str, list[UUID]] = {}
    for row in store.run(conn, "intents.due", {"company": company, "limit": limit}, prepare=False):
        found.setdefault(row.company, []).append(row.id)
    return found


def _write_ends(conn: Connection[Any], company: str, ends: Mapping[UUID, scopes.Fate]) -> None:
    if ends:
        rows = [(i, end.state, end.reason, end.message, end.into, run) for i, (end, run) in ends.items()]
        names = ("wakes", "states", "reasons", "messages", "into", "runs")
        store.run(conn, "intents.end", {"company": company, **writes.columns(names, rows)})
