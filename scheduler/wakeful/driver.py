"""The driver: when owners work, and when they are silent.

"Is anything due?" is answered from memory. The thread sleeps until the nearest known deadline, the horizon of
a window, or a signal; with any number of parked and sleeping receipts it sends no statement. The clock, the
gate and the failure are three exits: deadlines are timers, gates are signals, failures are stored back-offs
(of a receipt) or debts of this loop (of a pass, of something read, of the connection).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
from psycopg import Connection
from psycopg.pq import TransactionStatus

from wakeful import backoff, release
from wakeful.admission import Admission, PassResult
from wakeful.clock import Clock, DatabaseTime, SystemClock
from wakeful.coalesce import FIRST_ID, WINDOW, Walk
from wakeful.connections import Session
from wakeful.errors import WakefulError
from wakeful.line import Manner
from wakeful.lookout import Lookout
from wakeful.memory import Job, Memory
from wakeful.outcomes import Moved
from wakeful.owners import NamesReceipts, Owner
from wakeful.signals import Signal
from wakeful.window import SIZE

log = logging.getLogger("wakeful.driver")

# Errors that whatever is tried next would meet too: lost, read only, no room, shut down, broken files.
_OF_THE_SERVER = ("08", "25006", "53", "57P", "58")

Told = Callable[[str, PassResult], None]


class Driver(threading.Thread):
    """Owns the memory of all owners and runs their passes, while this process holds the owners' lock.

    Arguments:
        session: the driver's own work session.
        admission: judges and writes the passes.
        owners: the owners to time.
        told: called after each pass, with the company and what the pass did.
        size: rows of one window.
        window: seconds for which a source's walk that admitted nothing keeps the next one waiting.
    """

    def __init__(
        self,
        session: Session,
        admission: Admission,
        owners: Sequence[Owner],
        *,
        clock: Clock | None = None,
        told: Told = lambda company, result: None,
        size: int = SIZE,
        window: float = WINDOW,
        draw: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(name="wakeful driver", daemon=True)
        self._session = session
        self._admission = admission
        self._clock = clock or SystemClock()
        self.time = DatabaseTime(self._clock)
        self._told = told
        self._draw = draw
        self.condition = threading.Condition()
        # Under the condition: what other threads tell.
        self._inbox: list[Signal] = []
        self._owner = False
        self._enabled = True
        self._resync = False
        self._forgive = False
        self._stopping = False
        self.ready = threading.Event()
        self._cold = True  # whether nothing has been judged yet
        # The driver's own.
        names = [owner.name for owner in owners]
        namers = {owner.name: owner for owner in owners if isinstance(owner, NamesReceipts)}
        self._memory = Memory(names, self._clock, self.time, size, namers=list(namers), window=window, draw=draw)
        self._lookout = Lookout(self._memory, self.time, size, namers)
        self._failures = 0
        self._blocked_until: float | None = None
        self.passes = 0
        self.walks = 0  # reconstructions begun

    # ── told by other threads ───────────────────────────────────────────────────────────────────────────

    def connected(self, *, owner: bool) -> None:
        """LISTEN is in force: read everything anew, and at once, if this process owns.

        The pause after an outage's failures is over: a session has just proven that the server answers.
        """
        with self.condition:
            self._forgive = self._forgive or self._failures > 0
            self._failures, self._blocked_until = 0, None
            self._owner = owner
            self._resync = True
            self.condition.notify_all()

    def ownership(self, *, owner: bool) -> None:
        """The owners' lock was won or lost."""
        self.connected(owner=owner)

    def disconnected(self) -> None:
        """Deaf and lockless: no pass until connected again."""
        with self.condition:
            self._owner = False
            self.ready.clear()
            self.condition.notify_all()

    def enable(self, *, enabled: bool) -> None:
        """Settings allow owners to work, or not; allowing them again reads everything anew."""
        with self.condition:
            self._resync = self._resync or (enabled and not self._enabled)
            self._enabled = enabled
            self.condition.notify_all()

    def signalled(self, signal: Signal) -> None:
        """A signal of topic eligibility or settlement (or of an instance setting, which asks for everything)."""
        with self.condition:
            if signal.topic == "settings":
                self._resync = True
            elif not self._resync:
                # Before a reading that is still to come, it would only say what that will find.
                self._inbox.append(signal)
            self.condition.notify_all()

    def stop(self) -> None:
        """Finish the pass in progress, then end."""
        with self.condition:
            self._stopping = True
            self.condition.notify_all()

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Work until stopped."""
        while True:
            with self.condition:
                while not self._stopping and not self._work_waits():
                    self._clock.wait(self.condition, self._pause())
                if self._stopping:
                    break
                resync, self._resync = self._resync, False
                forgive, self._forgive = self._forgive, False
                inbox, self._inbox = self._inbox, []
            try:
                if forgive:
                    self._memory.forgive()
                if resync:
                    self._memory.forget()
                self._memory.take(inbox)
                self._turn()
                self._failures = 0
            except Exception as error:
                self._back_off(error)
        self._session.close()

    def _work_waits(self) -> bool:
        if not (self._owner and self._enabled):
            # Whatever was signalled meanwhile is found by the reading that follows the return of both.
            self._inbox.clear()
            return False
        if self._blocked_until is not None and self._clock.monotonic() < self._blocked_until:
            return False
        return self._resync or bool(self._inbox) or self._memory.has_work()

    def _pause(self) -> float | None:
        if not (self._owner and self._enabled):
            return None
        moment = self._memory.next_moment() if self._blocked_until is None else self._blocked_until
        return None if moment is None else max(0.0, moment - self._clock.monotonic())

    def _back_off(self, error: Exception) -> None:
        pause = backoff.delay(self._failures, self._draw)
        self._failures += 1
        _report("owners' work", error, pause)
        with self.condition:
            # What the failed turn had taken out of memory is in the rows: read them again.
            self._resync = True
        self._blocked_until = self._clock.monotonic() + pause

    # ── one turn ────────────────────────────────────────────────────────────────────────────────────────

    def _turn(self) -> None:
        self._blocked_until = None
        memory, lookout = self._memory, self._lookout
        with self._session.autocommit() as conn:
            if memory.is_caught_up:
                for n, window in enumerate(memory.passed_windows()):
                    self._attempt(conn, ("window", window.owner), partial(lookout.window, conn, window, ask=n == 0))
                self.ready.set()
                if self._cold:
                    self._admission.prepare(conn)
                    self._cold = False
            if memory.is_caught_up and (job := memory.next_job()) is not None:
                self._attempt(conn, job, partial(lookout.job, conn, job))
            memory.ripen()
            if (walk := memory.walks.take(self._clock.monotonic())) is not None:
                self._walk(conn, walk)
            for manner in Manner:
                if (batch := memory.next_batch(manner)) is not None:
                    self._pass(conn, *batch, manner)

    def _attempt(self, conn: Connection[Any], job: Job, work: Callable[[], None]) -> bool:
        """Do one job; where it alone fails, it alone rests, and the others go on."""
        try:
            work()
        except Exception as error:
            now = self._clock.monotonic()
            pause = self._memory.jobs.failed(now, job) - now
            if _concerns_all(conn, error):
                raise
            _report(f"reading {' '.join(job)}", error, pause)
            return False
        self._memory.jobs.paid(job)
        return True

    def _walk(self, conn: Connection[Any], walk: Walk) -> None:
        """Judge one page of the receipts behind a signalled gate; then others have their turn."""
        memory, job = self._memory, ("walk", *walk.source)
        page: list[UUID] = []
        self.walks += walk.after == FIRST_ID
        if not self._attempt(conn, job, lambda: page.extend(self._lookout.page(conn, walk.source, walk.after))):
            now = self._clock.monotonic()
            memory.walks.put_back(walk, memory.jobs.rest(job, now) or now)
            return
        result = PassResult()
        if page:
            result = self._pass(conn, walk.source[0], dict.fromkeys(page, True)) or PassResult(busy=frozenset(page))
        memory.looked(walk, page, result)

    def _pass(
        self, conn: Connection[Any], company: str, chosen: Mapping[UUID, bool], manner: Manner = Manner.JUDGED
    ) -> PassResult | None:
        """Run one pass; None where it failed, and its receipts come back later."""
        memory = self._memory
        try:
            result = self._admitted(conn, company, chosen, manner)
        except Exception as error:
            memory.failed(company, chosen, manner)
            if _concerns_all(conn, error):
                raise
            _report(f"a pass of company {company} ({len(chosen)} receipts)", error, None)
            return None
        self.passes += 1
        if any(isinstance(o, Moved) and o.due_at and self.time.has_come(o.due_at) for o in result.outcomes.values()):
            # We thought it due and the database does not: its clock is the one that counts.
            self.time.correct(self._lookout.now(conn))
        memory.judged(company, chosen, result, manner)
        self._told(company, result)
        return result

    def _admitted(self, conn: Connection[Any], company: str, chosen: Mapping[UUID, bool], manner: Manner) -> PassResult:
        match manner:
            case Manner.JUDGED:
                return self._admission.admit(conn, company, chosen)
            case Manner.SETTLED:
                return self._admission.settle(conn, company, chosen)
        (wake,) = chosen
        return release.recover(self._admission, conn, company, wake)


def _concerns_all(conn: Connection[Any], error: Exception) -> bool:
    """Whether a failure is the connection's or the server's, and not one pass's or one owner's own."""
    if conn.closed or conn.info.transaction_status != TransactionStatus.IDLE:
        return True
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_OF_THE_SERVER)


def _report(what: str, error: Exception, pause: float | None) -> None:
    """Log a failure; one that nobody foresaw with where it happened."""
    foreseen = isinstance(error, (WakefulError, psycopg.Error))
    again = "later" if pause is None else f"in {pause:.1f} s"
    level = logging.WARNING if foreseen else logging.ERROR
    log.log(level, "%s failed, trying again %s: %s", what, again, error, exc_info=not foreseen)
