"""The driver: when owners work, and when they are silent.

"Is anything due?" is answered from memory. The thread sleeps until the nearest known deadline, the horizon of
a window, or a signal; with any number of parked and sleeping receipts it sends no statement. The clock, the
gate and the failure are three exits: deadlines are timers, gates are signals, failures are stored back-offs
(of a receipt) or a timer of this loop (of the connection).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import backoff, store
from wakeful.admission import PASS, Admission, PassResult
from wakeful.clock import Clock, DatabaseTime, SystemClock
from wakeful.connections import Session
from wakeful.errors import WakefulError
from wakeful.memory import Memory, Source, waits_behind
from wakeful.outcomes import Moved
from wakeful.signals import Signal
from wakeful.window import SIZE, Entry, Window

log = logging.getLogger("wakeful.driver")

SHARDS = list(range(16))

Told = Callable[[str, PassResult], None]


class Driver(threading.Thread):
    """Owns the memory of all owners and runs their passes, while this process holds the owners' lock.

    Arguments:
        session: the driver's own work session.
        admission: judges and writes the passes.
        owners: names of the owners to time.
        told: called after each pass, with the company and what the pass did.
        size: rows of one window.
    """

    def __init__(
        self,
        session: Session,
        admission: Admission,
        owners: Sequence[str],
        *,
        clock: Clock | None = None,
        told: Told = lambda company, result: None,
        size: int = SIZE,
        draw: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(name="wakeful driver", daemon=True)
        self._session = session
        self._admission = admission
        self._clock = clock or SystemClock()
        self.time = DatabaseTime(self._clock)
        self._told = told
        self._size = size
        self._draw = draw
        self.condition = threading.Condition()
        # Under the condition: what other threads tell.
        self._inbox: list[Signal] = []
        self._owner = False
        self._enabled = True
        self._resync = False
        self._stopping = False
        self.ready = threading.Event()
        # The driver's own.
        self._memory = Memory(owners, self._clock, self.time, size)
        self._failures = 0
        self._blocked_until: float | None = None
        self.passes = 0

    # ── told by other threads ───────────────────────────────────────────────────────────────────────────

    def connected(self, *, owner: bool) -> None:
        """LISTEN is in force: read everything anew, and at once, if this process owns.

        The pause after an outage's failures is over: a session has just proven that the server answers.
        """
        with self.condition:
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
        """A signal of topic eligibility (or of an instance setting, which asks for everything)."""
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
                inbox, self._inbox = self._inbox, []
            try:
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
        level = logging.WARNING if isinstance(error, WakefulError) else logging.ERROR
        log.log(level, "owners' work failed, trying again in %.1f s: %s", pause, error, exc_info=level == logging.ERROR)
        with self.condition:
            # What the failed turn had taken out of memory is in the rows: read them again.
            self._resync = True
        self._blocked_until = self._clock.monotonic() + pause

    # ── one turn ────────────────────────────────────────────────────────────────────────────────────────

    def _turn(self) -> None:
        self._blocked_until = None
        memory = self._memory
        with self._session.autocommit() as conn:
            if memory.is_caught_up:
                for window in memory.passed_windows():
                    self._read_window(conn, window)
                self.ready.set()
            if memory.gates_after is not None and memory.is_caught_up:
                self._probe_gates(conn, memory.gates_after)
            memory.ripen()
            if (walk := memory.next_source()) is not None:
                self._walk(conn, *walk)
            if (batch := memory.next_batch()) is not None:
                self._judge(conn, *batch)

    def _read_window(self, conn: Connection[Any], window: Window) -> None:
        """Read what is overdue, fairly, and what comes next; with a page full of overdue ones the rest comes later."""
        memory = self._memory
        parameters = {
            "owner": window.owner,
            "shards": SHARDS,
            "limit": self._size,
            "share": PASS,
            "start": memory.last_company,
        }
        overdue = store.run(conn, "window.overdue", parameters).fetchall()
        for row in overdue:
            self.time.observe(row.now)
            memory.is_due(row.company, row.id)
        if len(overdue) >= self._size:
            window.stale = True
            return
        rows = store.run(conn, "window.upcoming", parameters).fetchall()
        self.time.observe(rows[-1].now if rows else self._ask_time(conn))
        memory.opened(window, [Entry(row.company, row.id, row.due_at) for row in rows], self._size)

    def _ask_time(self, conn: Connection[Any]) -> datetime:
        now: datetime = store.run(conn, "settings.now").fetchall()[0].now
        return now

    def _probe_gates(self, conn: Connection[Any], after: Source) -> None:
        """After a start each distinct gate is judged again through one receipt, never each receipt."""
        company, gate, key = after
        parameters = {"company": company, "gate": gate, "key": key, "limit": PASS}
        rows = store.run(conn, "window.gates", parameters).fetchall()
        for row in rows:
            self._memory.probe((row.company, row.gate, row.key), row.first)
        last = rows[-1] if len(rows) == PASS else None
        self._memory.gates_after = None if last is None else (last.company, last.gate, last.key)

    def _walk(self, conn: Connection[Any], source: Source, after: UUID) -> None:
        """Judge one page of the receipts parked on a signalled gate; the gate goes to the end of the line."""
        company, gate, key = source
        parameters = {"company": company, "gate": gate, "key": key, "after": after, "limit": PASS}
        ids = [row.id for row in store.run(conn, _WALKS.get(gate, "window.parked"), parameters)]
        if not ids:
            return
        result = self._judge(conn, company, dict.fromkeys(ids, True))
        # Where the page has used up what there was, the next one fares no better: the next slot has its own signal.
        full = gate == "concurrency" and any(waits_behind(outcome, source) for outcome in result.outcomes.values())
        if len(ids) == PASS and not full:
            self._memory.walk_on(source, ids[-1])

    def _judge(self, conn: Connection[Any], company: str, chosen: Mapping[UUID, bool]) -> PassResult:
        result = self._admission.admit(conn, company, chosen)
        self.passes += 1
        if any(isinstance(o, Moved) and o.due_at and self.time.has_come(o.due_at) for o in result.outcomes.values()):
            # We thought it due and the database does not: its clock is the one that counts.
            self.time.correct(self._ask_time(conn))
        self._memory.judged(company, chosen, result)
        self._told(company, result)
        return result


# Of an issue or an agent more may have changed than what a receipt waits on: look at all that wait.
_WALKS = {"issue": "window.waiting_on_issue", "agent": "window.waiting_for_agent"}
