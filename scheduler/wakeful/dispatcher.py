"""The dispatcher: one host's claims, starts, stops and ends. It works in standby too.

One thread reacts to signals of topic dispatch, to news from executors and to its own few timers; with no run
of this host alive it sends no statement. Everything it must not forget is a row or a file: after any failure,
and at every start, it looks at both.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from wakeful import backoff, store
from wakeful.attendance import Attendance
from wakeful.attendants import Attendant
from wakeful.claims import Claimant
from wakeful.clock import Clock, DatabaseTime, SystemClock
from wakeful.connections import Session
from wakeful.crash_points import Crash, no_crash
from wakeful.endings import Endings
from wakeful.errors import WakefulError
from wakeful.examiner import Examiner
from wakeful.executions import Executor, RunKey
from wakeful.identity import Identity
from wakeful.inbox import Inbox, News
from wakeful.last_stops import stop_all
from wakeful.readers import ResultReader
from wakeful.reaper import SLACK, Lease, Reaper
from wakeful.retries import Retries, Timer
from wakeful.signals import Signal
from wakeful.starts import Starts
from wakeful.terminals import Ending
from wakeful.timers import Timers
from wakeful.watch import Watch

__all__ = ["Dispatcher", "Lease"]

log = logging.getLogger("wakeful.dispatcher")


class Dispatcher(threading.Thread):
    """Runs of one host, from claim to terminal.

    Arguments:
        session: the dispatcher's own work session.
        identity: who claims.
        executors: by name.
        labels, slots: what this host offers, and how many children at once.
        lease: see :class:`Lease`.
        readers: result readers, by name.
        attendants: asked before each end is written.
        aside: the attendants' own work session.
        settings: called with the stored instance settings whenever they were read.
        told: called after each commit, with ``run.ended`` and the ending.
        crash: called at each ``CrashPoint``.
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
        readers: Mapping[str, ResultReader] | None = None,
        attendants: Sequence[Attendant] = (),
        aside: Session | None = None,
        settings: Callable[[Mapping[str, Any]], None] = lambda values: None,
        told: Callable[[str, Ending], None] = lambda what, ending: None,
        crash: Crash = no_crash,
        draw: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(name="wakeful dispatcher", daemon=True)
        lease = lease or Lease()
        self._session = session
        self._clock = clock or SystemClock()
        self._time = DatabaseTime(self._clock)
        self._settings = settings
        ended = partial(told, "run.ended")
        self._draw = draw
        self._inbox = Inbox(identity)
        self.condition = self._inbox.condition
        self.ready = threading.Event()
        self._failures = 0
        self._blocked_until: float | None = None
        self._timers: Timers[Timer] = Timers()
        retries = Retries(self._timers, self._clock, draw)
        self._attendance = Attendance(attendants, aside or session, retries, answered=self._inbox.attended)
        self._watch = Watch(executors, self._attendance.began)
        self._examiner = Examiner(executors, self._inbox.examined)
        who = Claimant(
            identity.host, identity.claimer, tuple(labels), tuple(sorted(executors)), lease.length.total_seconds()
        )
        self._endings = Endings(
            session,
            self._watch,
            self._examiner,
            self._attendance,
            retries,
            identity.host,
            readers=readers or {},
            ended=ended,
            freed=self._notify,
            requeued=lambda company: self._starts.want(company),
            crash=crash,
        )
        self._starts = Starts(
            session,
            who,
            self._watch,
            self._endings,
            self._timers,
            retries,
            self._clock,
            self._time,
            slots=slots,
            may_claim=lambda: self._inbox.claiming,
            ended=ended,
            crash=crash,
        )
        self._reaper = Reaper(
            session, identity, self._watch, self._endings, self._starts, self._timers, retries, self._clock, lease
        )
        for executor in executors.values():
            executor.attach(self._inbox.changed)

    # ── told by other threads ───────────────────────────────────────────────────────────────────────────

    def connected(self, *, owner: bool) -> None:
        """Signals arrive from now on; look at every run of this host, and at every queue, without waiting."""
        with self.condition:
            self._failures, self._blocked_until = 0, None
            self._inbox.connected(owner=owner)

    def disconnected(self) -> None:
        """Deaf, and no owner; running children go on being watched."""
        self._inbox.disconnected()

    def admit(self, *, admitting: bool) -> None:
        """Settings allow claims, or not."""
        self._inbox.admit(admitting=admitting)

    def signalled(self, signal: Signal) -> None:
        """Take a signal of topic dispatch, renewal or settings."""
        self._inbox.signalled(signal)

    def poke(self, company: str) -> None:
        """Runs of a company were just queued by this very process: no need to wait for their signal."""
        self._inbox.poke(company)

    def stop(self) -> None:
        """Finish what is physically in progress, then end; children stay."""
        self._inbox.stop()

    def stop_children(self, deadline: float, message: str) -> bool:
        """Claim nothing more, and end every child; see :func:`wakeful.last_stops.stop_all`."""
        self._inbox.close()
        return stop_all(self._watch, self._endings, self._starts, self.condition, deadline, message)

    def children(self) -> list[RunKey]:
        """Return the executions under watch."""
        return self._watch.all()

    def _notify(self) -> None:
        with self.condition:
            self.condition.notify_all()

    # ── the loop ────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Work until stopped."""
        self._examiner.start()
        self._attendance.start()
        while True:
            with self.condition:
                while not self._inbox.stopping and not self._work_waits():
                    self._clock.wait(self.condition, self._pause())
                if self._inbox.stopping:
                    break
                news = self._inbox.take()
            try:
                self._blocked_until = None
                self._turn(news)
                self._failures = 0
            except Exception as error:
                self._back_off(error)
        self._examiner.stop()
        self._attendance.stop()
        self._session.close()

    def _work_waits(self) -> bool:
        if self._blocked_until is not None:
            return self._clock.monotonic() >= self._blocked_until
        if not self._inbox.listening:
            return False
        nearest = self._timers.next()
        due = nearest is not None and nearest <= self._clock.monotonic()
        return due or self._inbox.waits() or self._starts.can_go_on

    def _pause(self) -> float | None:
        moment = self._blocked_until
        if moment is None and self._inbox.listening:
            moment = self._timers.next()
        return None if moment is None else max(0.0, moment - self._clock.monotonic())

    def _back_off(self, error: Exception) -> None:
        pause = backoff.delay(self._failures, self._draw)
        self._failures += 1
        level = logging.WARNING if isinstance(error, WakefulError) else logging.ERROR
        log.log(level, "dispatch failed, trying again in %.1f s: %s", pause, error, exc_info=level == logging.ERROR)
        self._inbox.look_at_everything()
        self._blocked_until = self._clock.monotonic() + pause

    def _turn(self, news: News) -> None:
        # First what cannot fail: nothing that was told is lost by what follows.
        for company, gates in news.companies.items():
            self._starts.want(company, gates)
        for key, status in news.examined:
            self._endings.examined(key, status)
        for key, answer in news.attended:
            self._endings.attended(key, answer)
        if news.expiry is not None:
            self._timers.set_earlier(("expiry",), self._time.monotonic_at(news.expiry) + SLACK)
        if news.everything:
            self._look_at_everything()
        if news.changed or news.everything:
            self._endings.poll()
        self._endings.write()
        if news.stops or news.everything:
            self._reaper.stop_runs()
        self._act_on_timers()
        self._starts.start()
        self._starts.claim()
        self._reaper.renew_later()
        self.ready.set()

    def _look_at_everything(self) -> None:
        with self._session.autocommit() as conn:
            self._time.observe(store.run(conn, "settings.now").fetchall()[0].now)
            self._settings({row.name: row.value for row in store.run(conn, "settings.all").fetchall()})
        self._reaper.renew()
        self._starts.want_everything()
        self._inbox.buried = self._reaper.bury()
        self._reaper.look()
        self._reaper.expire(owner=self._inbox.owner)

    def _act_on_timers(self) -> None:
        now = self._clock.monotonic()
        for timer in self._timers.pop_due(now):
            try:
                self._act_on(timer)
            except Exception:
                self._timers.set(timer, now)
                raise

    def _act_on(self, timer: Timer) -> None:
        match timer:
            case ("renew",):
                self._reaper.renew()
            case ("expiry",):
                self._reaper.look(everything=False)
                self._reaper.expire(owner=self._inbox.owner)
                self._endings.write()
            case ("company", str(company)):
                self._starts.want(company)
            case ("gate", str(company), str(gate), str(key)):
                self._starts.want(company, [(gate, key)])
            case ("start", RunKey() as run):
                self._starts.try_again(run)
            case ("examine", RunKey() as run):
                self._endings.examine_again(run)
            case ("attend", RunKey() as run):
                self._attendance.ask_again(run)
            case ("stops",):
                self._reaper.stop_runs()
            case ("poll",):
                self._endings.poll()
                self._endings.write()
            case ("write",):
                self._endings.write_aside()
                self._endings.write()
