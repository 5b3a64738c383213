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
from collections import OrderedDict
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
from wakeful.outcomes import Admit, Moved, Park
from wakeful.signals import Signal
from wakeful.timers import Timers
from wakeful.window import SIZE, Entry, Window

log = logging.getLogger("wakeful.driver")

SHARDS = list(range(16))
FIRST_ID = UUID(int=0)
BUSY = 1.0

Source = tuple[str, str, str]  # company, gate, key
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
        self._windows = {name: Window(name) for name in owners}
        self._deadlines: Timers[tuple[str, UUID]] = Timers()
        self._due: OrderedDict[str, dict[UUID, bool]] = OrderedDict()
        self._sources: OrderedDict[Source, UUID] = OrderedDict()
        self._gates_after: Source | None = None
        self._probes: dict[tuple[str, UUID], Source] = {}
        self._failures = 0
        self._blocked_until: float | None = None
        self._last_company = ""
        self.passes = 0

    # ── told by other threads ───────────────────────────────────────────────────────────────────────────

    def connected(self, *, owner: bool) -> None:
        """LISTEN is in force: read everything anew, if this process owns."""
        with self.condition:
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
            elif signal.company is not None:
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
                    self._forget()
                self._take(inbox)
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
        if self._resync or self._inbox or self._due or self._sources or self._gates_after is not None:
            return True
        now = self.time.now()
        if now is None or any(window.passed(now) for window in self._windows.values()):
            return True
        nearest = self._deadlines.next()
        return nearest is not None and nearest <= self._clock.monotonic()

    def _pause(self) -> float | None:
        if not (self._owner and self._enabled):
            return None
        moments = [m for m in (self._blocked_until, self._deadlines.next()) if m is not None]
        if self._blocked_until is not None:
            moments = [self._blocked_until]
        else:
            moments += [self.time.monotonic_at(w.horizon) for w in self._windows.values() if w.horizon is not None]
        return max(0.0, min(moments) - self._clock.monotonic()) if moments else None

    def _back_off(self, error: Exception) -> None:
        pause = backoff.delay(self._failures, self._draw)
        self._failures += 1
        level = logging.WARNING if isinstance(error, WakefulError) else logging.ERROR
        log.log(level, "owners' work failed, trying again in %.1f s: %s", pause, error, exc_info=level == logging.ERROR)
        with self.condition:
            # What the failed turn had taken out of memory is in the rows: read them again.
            self._resync = True
        self._blocked_until = self._clock.monotonic() + pause

    def _forget(self) -> None:
        for window in self._windows.values():
            window.stale = True
        self._deadlines.clear()
        self._due.clear()
        self._sources.clear()
        self._probes.clear()
        self._gates_after = ("", "", "")

    def _take(self, inbox: Sequence[Signal]) -> None:
        for signal in inbox:
            if signal.company is None:
                continue
            if signal.wake is not None:
                self._known(signal.company, signal.wake, signal.due, signal.owner)
            elif signal.gate is not None and signal.key is not None:
                source = (signal.company, signal.gate, signal.key)
                # A walk under way started before this signal; it starts again.
                self._sources[source] = FIRST_ID

    def _known(self, company: str, wake: UUID, due_at: datetime | None, owner: str | None) -> None:
        """Remember a deadline that somebody told of, if its window reaches that far."""
        window = self._windows.get(owner or "")
        now = self.time.now()
        if window is None or due_at is None or window.stale:
            return
        if now is not None and due_at <= now:
            self._due.setdefault(company, {}).setdefault(wake, False)
        elif window.knows(due_at):
            self._deadlines.set((company, wake), self.time.monotonic_at(due_at))

    def _turn(self) -> None:
        self._blocked_until = None
        with self._session.autocommit() as conn:
            now = self.time.now()
            if not self._due:
                for window in self._windows.values():
                    if now is None or window.passed(now):
                        self._read_window(conn, window)
                self.ready.set()
            if self._gates_after is not None and not self._due:
                self._probe_gates(conn)
            for company, wake in self._deadlines.pop_due(self._clock.monotonic()):
                self._due.setdefault(company, {}).setdefault(wake, False)
            if self._sources:
                self._walk(conn)
            if self._due:
                self._pass(conn)

    def _read_window(self, conn: Connection[Any], window: Window) -> None:
        parameters = {
            "owner": window.owner,
            "shards": SHARDS,
            "limit": self._size,
            "share": PASS,
            "start": self._last_company,
        }
        overdue = store.run(conn, "window.overdue", parameters).fetchall()
        if overdue:
            self.time.observe(overdue[0].now)
            for row in overdue:
                self._due.setdefault(row.company, {}).setdefault(row.id, False)
            # More may be overdue: the window stays stale until these are done.
            window.stale = True
            if len(overdue) < self._size:
                self._read_upcoming(conn, window, parameters)
            return
        self._read_upcoming(conn, window, parameters)

    def _read_upcoming(self, conn: Connection[Any], window: Window, parameters: Mapping[str, object]) -> None:
        rows = store.run(conn, "window.upcoming", parameters).fetchall()
        if rows:
            self.time.observe(rows[0].now)
        else:
            self.time.observe(store.run(conn, "settings.now").fetchall()[0].now)
        entries = [Entry(row.company, row.id, row.due_at) for row in rows]
        window.opened(entries, self._size)
        now = self.time.now()
        for entry in entries:
            if now is not None and entry.due_at <= now:
                self._due.setdefault(entry.company, {}).setdefault(entry.id, False)
            else:
                self._deadlines.set((entry.company, entry.id), self.time.monotonic_at(entry.due_at))

    def _probe_gates(self, conn: Connection[Any]) -> None:
        """After a start each distinct gate is judged again through one receipt, never each receipt."""
        company, gate, key = self._gates_after or ("", "", "")
        parameters = {"company": company, "gate": gate, "key": key, "limit": PASS}
        rows = store.run(conn, "window.gates", parameters).fetchall()
        for row in rows:
            self._due.setdefault(row.company, {})[row.first] = True
            self._probes[(row.company, row.first)] = (row.company, row.gate, row.key)
        self._gates_after = (rows[-1].company, rows[-1].gate, rows[-1].key) if len(rows) == PASS else None

    def _walk(self, conn: Connection[Any]) -> None:
        """Read one page of the receipts parked on a signalled gate; the source goes to the end of the line."""
        source, after = self._sources.popitem(last=False)
        company, gate, key = source
        block = _WALKS.get(gate, "window.parked")
        parameters = {"company": company, "gate": gate, "key": key, "after": after, "limit": PASS}
        ids = [row.id for row in store.run(conn, block, parameters)]
        if not ids:
            return
        result = self._judge(conn, company, dict.fromkeys(ids, True))
        # Behind a full agent the next page fares no better than this one did.
        full = gate == "concurrency" and not any(isinstance(o, Admit) for o in result.outcomes.values())
        if len(ids) == PASS and not full:
            self._sources.setdefault(source, ids[-1])

    def _pass(self, conn: Connection[Any]) -> None:
        """Judge at most 100 receipts of the next company; companies take turns."""
        company, waiting = self._due.popitem(last=False)
        chosen = {i: waiting[i] for i in list(waiting)[:PASS]}
        rest = {i: signalled for i, signalled in waiting.items() if i not in chosen}
        if rest:
            self._due[company] = rest
        self._last_company = company
        self._judge(conn, company, chosen)

    def _judge(self, conn: Connection[Any], company: str, chosen: Mapping[UUID, bool]) -> PassResult:
        result = self._admission.admit(conn, company, chosen)
        self.passes += 1
        self._remember(company, chosen, result)
        self._told(company, result)
        return result

    def _remember(self, company: str, chosen: Mapping[UUID, bool], result: PassResult) -> None:
        for wake in result.busy:
            self._deadlines.set((company, wake), self._clock.monotonic() + BUSY)
        for wake, due_at in result.set_aside.items():
            self._deadlines.set((company, wake), self.time.monotonic_at(due_at))
        for wake, outcome in result.outcomes.items():
            if isinstance(outcome, (Park, Moved)) and outcome.due_at is not None:
                window = self._windows.get("execution_wait") if isinstance(outcome, Park) else None
                if window is None or window.knows(outcome.due_at):
                    self._deadlines.set((company, wake), self.time.monotonic_at(outcome.due_at))
        for wake in result.reopened:
            self._due.setdefault(company, {})[wake] = True
        for wake in chosen:
            source = self._probes.pop((company, wake), None)
            if source is not None and not _still_closed(result.outcomes.get(wake), source):
                self._sources.setdefault(source, FIRST_ID)


# Of an issue or an agent more may have changed than what a receipt waits on: look at all that wait.
_WALKS = {"issue": "window.waiting_on_issue", "agent": "window.waiting_for_agent"}


def _still_closed(outcome: object, source: Source) -> bool:
    return isinstance(outcome, Park) and (outcome.refusal.gate, outcome.refusal.key) == source[1:]
