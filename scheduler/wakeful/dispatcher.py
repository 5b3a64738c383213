"""The dispatcher: one host's claims, starts, stops and ends. It works in standby too.

One thread reacts to signals of topic dispatch, to news from executors and to its own few timers; with no run
of this host alive it sends no statement. Everything it must not forget is a row or a file: after any failure,
and at every start, it looks at both.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import backoff, claims, reaper, store, terminals, work
from wakeful.claims import Claimant, Gate
from wakeful.clock import Clock, DatabaseTime, SystemClock
from wakeful.connections import Session
from wakeful.errors import WakefulError
from wakeful.executions import (
    EndClass,
    Ended,
    Executor,
    Grade,
    NeverStarted,
    RunKey,
    Running,
    Status,
    Uncertain,
    Vanished,
)
from wakeful.identity import Identity
from wakeful.results import Conclusion, conclude
from wakeful.signals import Signal
from wakeful.timers import Timers
from wakeful.watch import Watch

log = logging.getLogger("wakeful.dispatcher")

BATCH = 100


@dataclass(frozen=True, slots=True)
class Lease:
    """How claims are kept alive; shorter in tests.

    Arguments:
        length: a claim not renewed for this long makes others look at the evidence.
        renewal: between renewals while children run; at most a third of ``length``.
        margin: how much later than the host itself the owners of its companies look.
    """

    length: timedelta = timedelta(seconds=60)
    renewal: timedelta = timedelta(seconds=20)
    margin: timedelta = timedelta(seconds=20)


@dataclass(slots=True)
class _News:
    """What other threads told, under the condition."""

    companies: dict[str, set[Gate]] = field(default_factory=dict)
    everything: bool = False
    stops: bool = False
    changed: bool = False
    examined: list[tuple[RunKey, Status]] = field(default_factory=list)
    renewal: datetime | None = None

    def any(self) -> bool:
        """Whether there is anything to do at all."""
        return bool(self.companies or self.everything or self.stops or self.changed or self.examined or self.renewal)


class Dispatcher(threading.Thread):
    """Runs of one host, from claim to terminal.

    Arguments:
        session: the dispatcher's own work session.
        identity: who claims.
        executors: by name.
        labels: what this host offers.
        slots: children at once.
        lease: see :class:`Lease`.
        settings: called with the stored instance settings whenever they were read.
        told: called after each commit that ended, requeued or started runs.
        crash: called with the name of each crash point.
    """

    def __init__(
        self,
        session: Session,
        identity: Identity,
        executors: Mapping[str, Executor],
        *,
        labels: Sequence[str] = (),
        slots: int = 32,
        lease: Lease | None = None,
        clock: Clock | None = None,
        settings: Callable[[Mapping[str, Any]], None] = lambda values: None,
        told: Callable[[str, Any], None] = lambda what, details: None,
        crash: terminals.Crash = lambda point: None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(name="wakeful dispatcher", daemon=True)
        self._session = session
        self._identity = identity
        self._watch = Watch(executors)
        self._slots = slots
        self._lease = lease or Lease()
        self._clock = clock or SystemClock()
        self._time = DatabaseTime(self._clock)
        self._settings = settings
        self._told = told
        self._crash = crash
        self._draw = draw
        names = tuple(sorted(executors))
        self._who = Claimant(identity.host, identity.claimer, tuple(labels), names, self._lease.length.total_seconds())
        self.condition = threading.Condition()
        self._news = _News()
        self._connected = False
        self._owner = False
        self._admitting = True
        self._stopping = False
        self.ready = threading.Event()
        self._pending: dict[str, set[Gate]] = {}
        self._timers: Timers[tuple[str, ...]] = Timers()
        self._unwritten: dict[RunKey, Status] = {}
        self._unclaimed: list[RunKey] = []
        self._doubted: dict[RunKey, RunKey] = {}  # files of an overtaken generation -> the row's key
        self._failures = 0
        self._blocked_until: float | None = None
        self._examiner = reaper.Examiner(self._watch.executors, self._examined)
        for executor in executors.values():
            executor.attach(self._changed)

    # ── told by other threads ───────────────────────────────────────────────────────────────────────────

    def connected(self, *, owner: bool) -> None:
        """Signals arrive from now on; look at every run of this host, and at every queue."""
        with self.condition:
            self._connected, self._owner = True, owner
            self._news.everything = True
            self.condition.notify_all()

    def disconnected(self) -> None:
        """Deaf: claims wait, running children go on being watched."""
        with self.condition:
            self._owner = False

    def admit(self, *, admitting: bool) -> None:
        """Settings allow claims, or not."""
        with self.condition:
            self._news.everything = self._news.everything or (admitting and not self._admitting)
            self._admitting = admitting
            self.condition.notify_all()

    def signalled(self, signal: Signal) -> None:
        """A signal of topic dispatch or renewal."""
        with self.condition:
            if signal.topic == "renewal":
                if signal.due is not None and (self._owner or signal.host == self._identity.host):
                    earlier = self._news.renewal
                    self._news.renewal = signal.due if earlier is None else min(earlier, signal.due)
            elif signal.run is not None:
                self._news.stops = self._news.stops or signal.host in (None, self._identity.host)
            elif signal.company is not None:
                gates = self._news.companies.setdefault(signal.company, set())
                if signal.gate is not None and signal.key is not None:
                    gates.add((signal.gate, signal.key))
            else:
                self._news.everything = True
            self.condition.notify_all()

    def poke(self, company: str) -> None:
        """Runs of a company were just queued by this very process: no need to wait for their signal."""
        with self.condition:
            self._news.companies.setdefault(company, set())
            self.condition.notify_all()

    def stop(self) -> None:
        """Finish what is physically in progress, then end; children stay."""
        with self.condition:
            self._stopping = True
            self.condition.notify_all()

    def stop_children(self, deadline: float) -> bool:
        """Ask every child to end, and wait for that until ``deadline`` (the machine's monotonic seconds).

        Their ends are written as any other; what does not end in time is adopted by the next scheduler.
        """
        with self.condition:
            self._admitting = False
            for key in self.children():
                executor = self._watch.executor(key)
                if executor is not None:
                    executor.stop(key, timedelta(seconds=max(0.0, deadline - time.monotonic()) / 2))
            while len(self._watch) and time.monotonic() < deadline:
                self.condition.wait(deadline - time.monotonic())
            return not len(self._watch)

    def children(self) -> list[RunKey]:
        """Return the executions under watch."""
        return self._watch.keys()

    def _changed(self) -> None:
        with self.condition:
            self._news.changed = True
            self.condition.notify_all()

    def _examined(self, key: RunKey, status: Status) -> None:
        with self.condition:
            self._news.examined.append((key, status))
            self.condition.notify_all()

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Work until stopped."""
        self._examiner.start()
        while True:
            with self.condition:
                while not self._stopping and not self._work_waits():
                    self._clock.wait(self.condition, self._pause())
                if self._stopping:
                    break
                news, self._news = self._news, _News()
            try:
                self._blocked_until = None
                self._turn(news)
                self._failures = 0
            except Exception as error:
                self._back_off(error, news)
        self._examiner.stop()
        self._session.close()

    def _work_waits(self) -> bool:
        if self._blocked_until is not None:
            return self._clock.monotonic() >= self._blocked_until
        if not self._connected:
            return False
        nearest = self._timers.next()
        due = nearest is not None and nearest <= self._clock.monotonic()
        can_claim = bool(self._pending) and self._admitting and len(self._watch) < self._slots
        return self._news.any() or due or can_claim or bool(self._unclaimed)

    def _pause(self) -> float | None:
        moment = self._blocked_until if self._blocked_until is not None else self._timers.next()
        return None if moment is None else max(0.0, moment - self._clock.monotonic())

    def _back_off(self, error: Exception, news: _News) -> None:
        pause = backoff.delay(self._failures, self._draw)
        self._failures += 1
        level = logging.WARNING if isinstance(error, WakefulError) else logging.ERROR
        log.log(level, "dispatch failed, trying again in %.1f s: %s", pause, error, exc_info=level == logging.ERROR)
        with self.condition:
            self._news.everything = True
            self._news.changed = True
            self._news.examined = news.examined + self._news.examined
        self._blocked_until = self._clock.monotonic() + pause

    def _turn(self, news: _News) -> None:
        for company, gates in news.companies.items():
            self._pending.setdefault(company, set()).update(gates)
        if news.renewal is not None:
            self._timers.set_earlier(("expiry",), self._time.monotonic_at(news.renewal) + 1.0)
        for key, status in news.examined:
            self._watch.examined(key)
            self._unwritten[key] = status
        with self._session.autocommit() as conn:
            if news.everything:
                self._look_at_everything(conn)
            if news.changed or news.everything:
                self._poll()
            self._write_news(conn)
            if news.stops or news.everything:
                self._carry_out_stops(conn)
            for timer in list(self._timers.pop_due(self._clock.monotonic())):
                self._timer(conn, timer)
            self._start(conn)
            if self._admitting:
                self._claim(conn)
            self._start(conn)
            self.ready.set()

    # ── claims and starts ───────────────────────────────────────────────────────────────────────────────

    def _look_at_everything(self, conn: Connection[Any]) -> None:
        self._time.observe(store.run(conn, "settings.now").fetchall()[0].now)
        self._settings({row.name: row.value for row in store.run(conn, "settings.all")})
        for row in store.run(conn, "dispatch.companies"):
            self._pending.setdefault(row.company, set())
        for row in store.run(conn, "dispatch.waiting_gates"):
            self._pending.setdefault(row.company, set()).add((row.wait_gate, row.wait_key))
        self._adopt(conn)
        self._expiry(conn)

    def _claim(self, conn: Connection[Any]) -> None:
        """Claim for one company after another while there are slots; a full pass leaves its company in line."""
        for company in list(self._pending):
            gates: list[Gate | None] = [None, *self._pending.pop(company)]
            while gates:
                free = self._slots - len(self._watch) - len(self._unclaimed)
                if free <= 0:
                    self._pending.setdefault(company, set()).update(gate for gate in gates if gate is not None)
                    return
                gate = gates[0]
                done = claims.claim(conn, company, self._who, limit=min(free, BATCH), gate=gate, crash=self._crash)
                self._unclaimed.extend(done.started)
                gates.extend(reopened for reopened in done.reopened if reopened not in gates)
                for opening, moment in claims.next_opening(done.waiting).items():
                    self._timers.set(("gate", company, *opening), self._time.monotonic_at(moment))
                self._tell_ended(done.ended)
                progress = bool(done.started or done.ended) or (gate is None and bool(done.waiting))
                if not (done.full and progress):
                    gates.pop(0)
                self._start(conn)

    def _start(self, conn: Connection[Any]) -> None:
        """Start what was claimed. A start that fails is looked into before anything is said of it."""
        while self._unclaimed:
            key = self._unclaimed[0]
            given = work.read(conn, key)
            self._unclaimed.pop(0)
            if given is None:
                continue
            name, spec = given
            self._watch.add(key, name)
            try:
                self._watch.executors[name].submit(spec, key)
            except Exception as error:
                log.warning("run %s did not start: %s", key.cookie, error)
                self._not_started(key, error)
        self._renew_later()

    def _not_started(self, key: RunKey, error: Exception) -> None:
        executor = self._watch.executor(key)
        status = executor.examine(key) if executor else NeverStarted()
        if isinstance(status, Running):
            return
        if isinstance(status, NeverStarted):
            text = str(error)[:2000]
            conclusion = Conclusion("failed", EndClass.FAILED, "run.not_started", message=text, error=text)
            self._ended(terminals.Ending(key, conclusion, grade=Grade.CONTAINED))
        else:
            self._unwritten[key] = status

    # ── news of executions ──────────────────────────────────────────────────────────────────────────────

    def _ended(self, ending: terminals.Ending) -> None:
        with self._session.autocommit() as conn:
            self._record(conn, ending.key.company, [ending], [])

    def _poll(self) -> None:
        """Take over what executors have to say; what poll cannot prove is examined."""
        for key, status in self._watch.poll():
            if isinstance(status, (Running, Ended)):
                self._unwritten[key] = status
            elif self._watch.examine(key):
                self._examiner.ask(self._watch.name(key), key)

    def _write_news(self, conn: Connection[Any]) -> None:
        """Write what executors said, per company; what cannot be written now stays."""
        by_company: dict[str, list[RunKey]] = {}
        for key in self._unwritten:
            by_company.setdefault(key.company, []).append(key)
        for company, keys in by_company.items():
            for start in range(0, len(keys), BATCH):
                self._write_batch(conn, company, keys[start : start + BATCH])

    def _write_batch(self, conn: Connection[Any], company: str, keys: Sequence[RunKey]) -> None:
        endings: list[terminals.Ending] = []
        deaths: list[terminals.Death] = []
        started: list[tuple[UUID, int, datetime]] = []
        for key in keys:
            status = self._unwritten[key]
            if key in self._doubted:
                deaths.extend(self._proof(key, status))
            elif isinstance(status, Running):
                started.append((key.run, key.generation, status.started_at))
            elif isinstance(status, Ended):
                report = status.report
                directory = str(PurePath(report.stdout.path).parent)
                endings.append(terminals.Ending(key, conclude(report), report, directory=directory))
            elif isinstance(status, NeverStarted):
                cause = status.reason or "its scheduler died before it started"
                deaths.append(terminals.Death(key, Grade.CONTAINED, cause))
            elif isinstance(status, Vanished):
                deaths.append(terminals.Death(key, status.grade, "its runner was killed"))
            elif isinstance(status, Uncertain):
                self._doubt(conn, key, status)
        if started:
            runs, generations, at = (list(column) for column in zip(*started, strict=True))
            parameters = {"company": company, "runs": runs, "generations": generations, "at": at}
            store.run(conn, "dispatch.started", parameters)
        if endings or deaths:
            self._record(conn, company, endings, deaths)
        for key in keys:
            self._unwritten.pop(key, None)

    def _proof(self, key: RunKey, status: Status) -> list[terminals.Death]:
        """What its own host found of a run that was declared uncertain: an older exit record is evidence only."""
        if isinstance(status, (Running, Uncertain)):
            return []
        grade = status.report.grade if isinstance(status, Ended) else getattr(status, "grade", Grade.CONTAINED)
        self._watch.drop(key)
        return [
            terminals.Death(self._doubted.pop(key), grade, "it was uncertain, and its own host has proven its death")
        ]

    def _record(
        self,
        conn: Connection[Any],
        company: str,
        endings: Sequence[terminals.Ending],
        deaths: Sequence[terminals.Death],
    ) -> None:
        settled = terminals.record(conn, company, endings, deaths, crash=self._crash)
        with self.condition:
            for key in [e.key for e in endings] + [d.key for d in deaths]:
                self._watch.drop(key)
            self.condition.notify_all()
        reaper.delete_freed(self._identity.host, settled.freed)
        if settled.requeued:
            self._pending.setdefault(company, set())
        self._tell_ended([e for e in endings if e.key.run in settled.ended])
        for key in settled.refused:
            log.info("a late report of %s was refused", key.cookie)

    def _tell_ended(self, endings: Sequence[terminals.Ending]) -> None:
        for ending in endings:
            self._told("run.ended", ending)

    def _doubt(self, conn: Connection[Any], key: RunKey, status: Uncertain) -> None:
        parameters = {"company": key.company, "run": key.run, "generation": key.generation, "reason": status.reason}
        store.run(conn, "recovery.declare_uncertain", parameters)
        self._watch.drop(key)

    # ── stops, adoption, renewal ────────────────────────────────────────────────────────────────────────

    def _carry_out_stops(self, conn: Connection[Any]) -> None:
        for row in store.run(conn, "recovery.stops", {"host": self._identity.host}).fetchall():
            key = RunKey(row.company, row.run, row.generation)
            executor = self._watch.executor(key)
            if executor is not None:
                executor.stop(key, row.stop_grace)

    def _adopt(self, conn: Connection[Any]) -> None:
        """Take over this host's runs whose claimer is proven dead, and find out the truth about each."""
        orphans = reaper.orphans(conn, self._identity)
        for orphan in orphans:
            if orphan.key in self._watch or orphan.executor not in self._watch.executors:
                continue
            self._watch.add(orphan.key, orphan.executor, started=orphan.started)
            if orphan.row != orphan.key:
                self._doubted[orphan.key] = orphan.row
            if self._watch.examine(orphan.key):
                self._examiner.ask(orphan.executor, orphan.key)
        reaper.adopt(conn, self._identity, self._lease.length, orphans)
        self._renew_later()

    def _renew_later(self) -> None:
        if len(self._watch):
            self._timers.set_earlier(("renew",), self._clock.monotonic() + self._lease.renewal.total_seconds())

    def _timer(self, conn: Connection[Any], timer: tuple[str, ...]) -> None:
        if timer[0] == "renew" and len(self._watch):
            lease = self._lease.length.total_seconds()
            parameters = {"host": self._identity.host, "claimer": self._identity.claimer, "lease": lease}
            store.run(conn, "recovery.renew", parameters)
            self._renew_later()
        elif timer[0] == "expiry":
            self._adopt(conn)
            self._expiry(conn)
        elif timer[0] == "gate":
            _, company, gate, key = timer
            self._pending.setdefault(company, set()).add((gate, key))

    def _expiry(self, conn: Connection[Any]) -> None:
        """Look after claims of others: of this host at their expiry, of other hosts (as owner) a margin later."""
        if self._owner:
            reaper.declare_uncertain(conn, self._identity.host, self._lease.margin)
        seconds = reaper.next_expiry(conn, self._identity, everywhere=self._owner)
        if seconds is not None:
            margin = self._lease.margin.total_seconds() if self._owner else 1.0
            self._timers.set(("expiry",), self._clock.monotonic() + max(seconds, 0.0) + margin)
