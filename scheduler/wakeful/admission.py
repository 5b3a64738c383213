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

from wakeful import backoff, judgement, reading, settlement, store, writes
from wakeful.crash_points import Crash, CrashPoint, no_crash
from wakeful.decisions import decide
from wakeful.intents import IntentDispatcher
from wakeful.judges import Judges
from wakeful.ledger import Ledger
from wakeful.outcomes import Gone, Moved, Outcome, Park
from wakeful.owners import GateCheck, Owner
from wakeful.receipts import INTENT
from wakeful.results import storable

PASS = 100
_KEEP_THEIR_WAITS = ("interrupt", "settlement")  # owners who time their receipts whatever those wait for


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass did.

    Arguments:
        outcomes: per receipt that was locked and judged.
        runs: the run of each admitted receipt.
        busy: receipts whose rows somebody else held; they come back in a second.
        reopened: receipts whose gate opened between judgement and commit; they are due now.
        set_aside: receipts that could not be judged, with their next try.
        intents: status intents among them, which their dispatcher has yet to claim.
        saved: receipts whose wait this pass's own update wrote into their rows, as a first or a changed one.
        timers: the owners whose windows tell of parked receipts' deadlines, where that is not ``execution_wait``.
    """

    outcomes: Mapping[UUID, Outcome] = field(default_factory=dict)
    runs: Mapping[UUID, UUID] = field(default_factory=dict)
    busy: frozenset[UUID] = frozenset()
    reopened: frozenset[UUID] = frozenset()
    set_aside: Mapping[UUID, datetime] = field(default_factory=dict)
    intents: frozenset[UUID] = frozenset()
    saved: frozenset[UUID] = frozenset()
    timers: Mapping[UUID, str] = field(default_factory=dict)

    def __or__(self, other: PassResult) -> PassResult:
        """Join the results of two halves."""
        return PassResult(
            {**self.outcomes, **other.outcomes},
            {**self.runs, **other.runs},
            self.busy | other.busy,
            self.reopened | other.reopened,
            {**self.set_aside, **other.set_aside},
            self.intents | other.intents,
            self.saved | other.saved,
            {**self.timers, **other.timers},
        )


Pass = Callable[[Connection[Any], str, Mapping[UUID, bool]], PassResult]


class Admission:
    """Turns receipts into runs, or says why not.

    Arguments:
        owners: every loaded owner; each kind is judged by the one that lists it.
        gates: hosts' own gates.
        crash: called at each ``CrashPoint``.
        draw: randomness for backoff, a number in [0, 1).
        name: who claims status intents, for people.
    """

    def __init__(
        self,
        owners: Iterable[Owner],
        gates: Sequence[GateCheck] = (),
        *,
        crash: Crash = no_crash,
        draw: Callable[[], float] = random.random,
        name: str = "a scheduler",
    ) -> None:
        self._name = name
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
        result = self._halving(conn, company, wanted, self._once)
        if not result.intents:
            return result
        # One dispatcher a pass: what it remembers of scopes is gone with it.
        return result | self.dispatch(conn, company, result.intents, self.dispatcher())

    def dispatcher(self, *, tell: bool = False) -> IntentDispatcher:
        """Make the dispatcher of status intents for one pass.

        Arguments:
            tell: signal the deadlines that it stores: for a pass outside the scheduler that owns the receipts.
        """
        return IntentDispatcher(self._judges, self._crash, name=self._name, tell=tell)

    def dispatch(
        self, conn: Connection[Any], company: str, ids: Iterable[UUID], dispatcher: IntentDispatcher
    ) -> PassResult:
        """Dispatch status intents, and look again at the gates that hold back what they became.

        Arguments:
            conn: as for ``admit``.
            ids: of one company; in one pass at most 100.
            dispatcher: of this pass.

        Raises:
            psycopg.OperationalError: as ``admit``; claims that were made end by their stored deadline.
        """
        done = dispatcher.dispatch(conn, company, list(ids))
        parked = {i: outcome for i, outcome in done.outcomes.items() if isinstance(outcome, Park)}
        reopened = self._look_again(conn, company, parked)
        # What was given back is due: should the rest end before it is noticed, nobody else would look.
        return PassResult(done.outcomes, done.runs, done.busy | done.freed, reopened, done.failed)

    def settle(self, conn: Connection[Any], company: str, ids: Iterable[UUID]) -> PassResult:
        """Fold the outcomes of chat actions into their receipts; judges no gate and admits nothing by that.

        A receipt whose action led to no run comes back as ``reopened``: an ordinary retry now, and due. One whose
        action has not settled is left alone, unless its own stored deadline has come (the end of a grace, a gate's
        clock, a failure's): that is an ordinary look.

        Arguments:
            conn: as for ``admit``.
            ids: at most 100 wake ids.

        Raises:
            psycopg.OperationalError: as ``admit``.
        """
        return self._halving(conn, company, dict.fromkeys(ids, False), self._settle_once)

    def _halving(self, conn: Connection[Any], company: str, wanted: Mapping[UUID, bool], once: Pass) -> PassResult:
        """Do a pass; if it fails, halve it until the receipt at fault is alone: it must not hold up the others."""
        try:
            return once(conn, company, wanted)
        except psycopg.OperationalError:
            raise
        except Exception as error:
            if len(wanted) > 1:
                ids = list(wanted)
                half = len(ids) // 2
                first = self._halving(conn, company, {i: wanted[i] for i in ids[:half]}, once)
                return first | self._halving(conn, company, {i: wanted[i] for i in ids[half:]}, once)
            [alone] = wanted
            result = self.set_aside(conn, company, alone, error)
            # What is no deferred receipt may be an intent, whose dispatcher notes the error itself.
            return result if result.set_aside else PassResult(intents=frozenset([alone]))

    def _settle_once(self, conn: Connection[Any], company: str, wanted: Mapping[UUID, bool]) -> PassResult:
        with conn.transaction():
            folded = settlement.fold(conn, company, sorted(wanted))
            self._crash(CrashPoint.ADMISSION_BEFORE_COMMIT)
        self._crash(CrashPoint.ADMISSION_AFTER_COMMIT)
        result = PassResult(folded.ends, busy=folded.busy, reopened=folded.given_back)
        for wake in folded.failed:
            result |= self.set_aside(conn, company, wake, settlement.unauthorised(wake))
        return result | self.admit(conn, company, dict.fromkeys(folded.due, False)) if folded.due else result

    def judge_now(self, conn: Connection[Any], company: str, wake: UUID) -> PassResult:
        """Judge and write one receipt whatever its deadline, and let every failure out: for a release by name.

        Raises:
            Exception: whatever went wrong; nothing was kept.
        """
        return self._once(conn, company, {wake: True}, frozenset([wake]))

    def set_aside(self, conn: Connection[Any], company: str, wake: UUID, error: Exception) -> PassResult:
        """Note in a pending receipt's row that it could not be judged, and when it is tried again."""
        key = {"company": company, "id": wake}
        row = store.run(conn, "admission.failures", key).fetchone()
        pause = backoff.delay(row.failures if row else 0, self._draw)
        text = storable(f"{type(error).__name__}: {error}")[:2000]
        done = store.run(conn, "admission.set_aside", key | {"error": text, "delay": pause}).fetchone()
        return PassResult(set_aside={wake: done.due_at}) if done else PassResult()

    def prepare(self, conn: Connection[Any]) -> None:
        """Have the server plan what a pass asks, so that the first receipt need not wait for that."""
        with conn.transaction(), conn.pipeline():
            store.run(conn, "settings.cached_plans")
            reading.facts_and_limits(conn, {"company": "", "ids": [], "payload_kinds": self._judges.payload_kinds})()

    def _once(
        self,
        conn: Connection[Any],
        company: str,
        wanted: Mapping[UUID, bool],
        released: frozenset[UUID] = frozenset(),
    ) -> PassResult:
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
            outcomes, ledger = judgement.of(
                conn, key, self._judges, mine, verdicts, limits, signalled=signalled, released=released
            )
            written = writes.write(conn, company, mine, outcomes, ledger)
            self._crash(CrashPoint.ADMISSION_BEFORE_COMMIT)
        self._crash(CrashPoint.ADMISSION_AFTER_COMMIT)
        busy = frozenset(fact.id for fact in facts if fact.state == "deferred" and fact.id not in locked)
        parked = {i: outcome for i, outcome in outcomes.items() if isinstance(outcome, Park)}
        reopened = self._look_again(conn, company, parked)
        intents = frozenset(fact.id for fact in facts if fact.state in INTENT)
        timers = {fact.id: fact.owner for fact in mine if fact.id in parked and fact.owner in _KEEP_THEIR_WAITS}
        return PassResult(outcomes, written.runs, busy, reopened, intents=intents, saved=written.saved, timers=timers)

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


def _same_gate(parked: Park, outcome: Outcome) -> bool:
    """Whether a second look found the receipt still waiting for what it was parked on (or no longer pending)."""
    if isinstance(outcome, (Gone, Moved)):
        return True
    return isinstance(outcome, Park) and outcome.refusal.at == parked.refusal.at
