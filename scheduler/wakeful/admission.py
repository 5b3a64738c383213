"""Admission: at most 100 receipts of one company, judged and written as a set, in one transaction.

Lock in a statement of its own, judge in the next, write only what differs, and after the commit look again
at exactly the gates that were parked on. Without the second look, the separate lock statement and the
one-second return of a locked row a wake can sleep for ever.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import Connection

from wakeful import backoff, reading, store, writes
from wakeful.crash_points import Crash, CrashPoint, no_crash
from wakeful.decisions import decide
from wakeful.judges import Judges
from wakeful.ledger import Ledger
from wakeful.outcomes import Admit, Gone, Moved, Outcome, Park
from wakeful.owners import GateCheck, Owner
from wakeful.results import storable

PASS = 100


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass did.

    Arguments:
        outcomes: per receipt that was locked and judged.
        runs: the run of each admitted receipt.
        busy: receipts whose rows somebody else held; they come back in a second.
        reopened: receipts whose gate opened between judgement and commit; they are due now.
        set_aside: receipts that could not be judged, with their next try.
    """

    outcomes: Mapping[UUID, Outcome] = field(default_factory=dict)
    runs: Mapping[UUID, UUID] = field(default_factory=dict)
    busy: frozenset[UUID] = frozenset()
    reopened: frozenset[UUID] = frozenset()
    set_aside: Mapping[UUID, datetime] = field(default_factory=dict)

    def __or__(self, other: PassResult) -> PassResult:
        """Join the results of two halves."""
        return PassResult(
            {**self.outcomes, **other.outcomes},
            {**self.runs, **other.runs},
            self.busy | other.busy,
            self.reopened | other.reopened,
            {**self.set_aside, **other.set_aside},
        )


class Admission:
    """Turns receipts into runs, or says why not.

    Arguments:
        owners: every loaded owner; each kind is judged by the one that lists it.
        gates: hosts' own gates.
        crash: called at each ``CrashPoint``.
        draw: randomness for backoff, a number in [0, 1).
    """

    def __init__(
        self,
        owners: Iterable[Owner],
        gates: Sequence[GateCheck] = (),
        *,
        crash: Crash = no_crash,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._judges = Judges(owners, gates)
        self._crash = crash
        self._draw = draw

    def admit(self, conn: Connection[Any], company: str, wanted: Mapping[UUID, bool]) -> PassResult:
        """Judge and write one pass.

        Arguments:
            conn: an autocommit work connection at READ COMMITTED, outside a transaction.
            company: the pass's company; no transaction spans two.
            wanted: at most 100 wake ids; True where the gate it waits on was signalled.

        Raises:
            psycopg.OperationalError: connection lost, 40P01, 40001: the caller backs off; nothing was kept.
        """
        try:
            return self._once(conn, company, wanted)
        except psycopg.OperationalError:
            raise
        except Exception as error:
            if len(wanted) > 1:
                # One bad receipt must not hold up the others: halve until it is alone.
                ids = list(wanted)
                half = len(ids) // 2
                first = self.admit(conn, company, {i: wanted[i] for i in ids[:half]})
                return first | self.admit(conn, company, {i: wanted[i] for i in ids[half:]})
            return self._set_aside(conn, company, next(iter(wanted)), error)

    def _once(self, conn: Connection[Any], company: str, wanted: Mapping[UUID, bool]) -> PassResult:
        ids = sorted(wanted)
        signalled = frozenset(i for i in ids if wanted[i])
        key = {"company": company, "ids": ids, "payload_kinds": self._judges.payload_kinds}
        with conn.transaction():
            with conn.pipeline():
                store.run(conn, "settings.cached_plans")
                store.run(conn, "admission.lock_issues", key)
                locking = store.run(conn, "admission.lock_wakes", key)
                asked = reading.facts_and_limits(conn, key)
                locked = {row.id for row in locking}
                facts, limits = asked()
            mine = [fact for fact in facts if fact.id in locked]
            verdicts = self._judges.verdicts(mine)
            further = self._judges.refusals(conn, mine)
            ledger = Ledger(limits)
            outcomes = decide(mine, verdicts, ledger, further, signalled)
            if any(isinstance(outcomes[fact.id], Admit) and ledger.limited(fact) for fact in mine):
                with conn.pipeline():
                    store.run(conn, "admission.lock_limits", key)
                    limiting = reading.limits(conn, key)
                    ledger = Ledger(limiting())
                outcomes = decide(mine, verdicts, ledger, further, signalled)
            runs = writes.write(conn, company, mine, outcomes, ledger)
            self._crash(CrashPoint.ADMISSION_BEFORE_COMMIT)
        self._crash(CrashPoint.ADMISSION_AFTER_COMMIT)
        busy = frozenset(fact.id for fact in facts if fact.state == "deferred" and fact.id not in locked)
        parked = {i: outcome for i, outcome in outcomes.items() if isinstance(outcome, Park)}
        return PassResult(outcomes, runs, busy, self._look_again(conn, company, parked))

    # ── afterwards ──────────────────────────────────────────────────────────────────────────────────────

    def _look_again(self, conn: Connection[Any], company: str, parked: Mapping[UUID, Park]) -> frozenset[UUID]:
        if not parked:
            return frozenset()
        ids = sorted(parked)
        with conn.transaction():
            with conn.pipeline():
                key = {"company": company, "ids": ids, "payload_kinds": self._judges.payload_kinds}
                facts, limits = reading.facts_and_limits(conn, key)()
            everyone = frozenset(ids)
            verdicts = self._judges.verdicts(facts)
            further = self._judges.refusals(conn, facts)
            outcomes = {
                # Each against the limits as they stand: what a pass would admit first is no reason to wait.
                fact.id: decide([fact], verdicts, Ledger(limits), further, everyone)[fact.id]
                for fact in facts
            }
        return frozenset(i for i, outcome in outcomes.items() if not _same_gate(parked[i], outcome))

    def _set_aside(self, conn: Connection[Any], company: str, wake: UUID, error: Exception) -> PassResult:
        key = {"company": company, "id": wake}
        row = store.run(conn, "admission.failures", key).fetchone()
        pause = backoff.delay(row.failures if row else 0, self._draw)
        text = storable(f"{type(error).__name__}: {error}")[:2000]
        done = store.run(conn, "admission.set_aside", key | {"error": text, "delay": pause}).fetchone()
        return PassResult(set_aside={wake: done.due_at}) if done else PassResult()


def _same_gate(parked: Park, outcome: Outcome) -> bool:
    """Whether a second look found the receipt still waiting for what it was parked on (or no longer pending)."""
    if isinstance(outcome, (Gone, Moved)):
        return True
    return isinstance(outcome, Park) and outcome.refusal.at == parked.refusal.at
