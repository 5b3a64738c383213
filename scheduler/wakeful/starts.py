"""Queued runs on their way to an executor: companies in line, claims, starts. For the dispatcher's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import islice

from wakeful import claims, store, work
from wakeful.claims import Claimant, Claims
from wakeful.clock import Clock, DatabaseTime
from wakeful.connections import Session
from wakeful.crash_points import Crash
from wakeful.database_errors import is_transient
from wakeful.endings import Endings
from wakeful.executions import RunKey, RunSpec
from wakeful.outcomes import Gate
from wakeful.retries import Retries, Timer
from wakeful.terminals import Ending
from wakeful.timers import BUSY, Timers
from wakeful.watch import Watch

log = logging.getLogger("wakeful.starts")

CHUNK = 50  # runs whose payloads are in memory together


class Starts:
    """Claims runs, company by company, and starts what was claimed.

    Arguments:
        slots: executions at once.
        may_claim: asked before each claim.
        ended: called with every run that ended without having been started.
    """

    def __init__(
        self,
        session: Session,
        who: Claimant,
        watch: Watch,
        endings: Endings,
        timers: Timers[Timer],
        retries: Retries,
        clock: Clock,
        time: DatabaseTime,
        *,
        slots: int,
        may_claim: Callable[[], bool],
        ended: Callable[[Ending], None],
        crash: Crash,
    ) -> None:
        self._session = session
        self._who = who
        self._watch = watch
        self._endings = endings
        self._timers = timers
        self._retries = retries
        self._clock = clock
        self._time = time
        self._slots = slots
        self._may_claim = may_claim
        self._ended = ended
        self._crash = crash
        self._in_line: dict[str, set[Gate]] = {}
        self._claimed: dict[RunKey, None] = {}
        self._held_up: set[RunKey] = set()

    def __contains__(self, key: RunKey) -> bool:
        return key in self._claimed or key in self._held_up

    def __len__(self) -> int:
        """How many claimed runs have not been handed to their executor."""
        return len(self._claimed) + len(self._held_up)

    @property
    def can_go_on(self) -> bool:
        """Whether there is something to start, or a company in line and a slot free."""
        return bool(self._claimed) or (bool(self._in_line) and self._free() > 0 and self._may_claim())

    def want(self, company: str, gates: Iterable[Gate] = ()) -> None:
        """Put a company in line, with the gates of its waiting runs that may have opened."""
        self._in_line.setdefault(company, set()).update(gates)

    def want_everything(self) -> None:
        """Put every company with queued runs in line, with every gate that one waits on."""
        with self._session.autocommit() as conn:
            for row in store.run(conn, "dispatch.companies").fetchall():
                self.want(row.company)
            for row in store.run(conn, "dispatch.waiting_gates").fetchall():
                self.want(row.company, [(row.wait_gate, row.wait_key)])

    def resume(self, key: RunKey) -> None:
        """A run that this scheduler has claimed, though it does not remember: start it. Twice starts it once."""
        self._claimed.setdefault(key)

    def try_again(self, key: RunKey) -> None:
        """The pause of a run that could not be prepared is over."""
        if key in self._held_up:
            self._held_up.discard(key)
            self._claimed.setdefault(key)

    # ── claims ──────────────────────────────────────────────────────────────────────────────────────────

    def claim(self) -> None:
        """Claim for one company after another while there are slots; who gets none left stays in line, first."""
        for company in list(self._in_line):
            if self._free() <= 0 or not self._may_claim():
                return
            gates: list[Gate | None] = [None, *self._in_line.pop(company)]
            while gates:
                free = self._free()
                if free <= 0 or not self._may_claim():
                    self.want(company, [gate for gate in gates if gate is not None])
                    return
                done = self._claim(company, gates[0], free)
                if done.halted:
                    self.want(company, [gate for gate in gates if gate is not None])
                    return
                gates.extend(gate for gate in done.reopened if gate not in gates)
                progress = bool(done.started or done.ended) or (gates[0] is None and bool(done.waiting))
                if not (done.full and progress):
                    gates.pop(0)
                self.start()

    def _claim(self, company: str, gate: Gate | None, free: int) -> Claims:
        with self._session.autocommit() as conn:
            done = claims.claim(conn, company, self._who, limit=free, gate=gate, crash=self._crash)
        self._claimed.update(dict.fromkeys(done.started))
        for opening, moment in claims.next_opening(done.waiting).items():
            self._timers.set(("gate", company, *opening), self._time.monotonic_at(moment))
        if done.turn is not None and gate is not None:
            self._timers.set(("gate", company, "rate", gate[1]), self._time.monotonic_at(done.turn))
        elif done.left:
            timer = ("company", company) if gate is None else ("gate", company, *gate)
            self._timers.set_earlier(timer, self._clock.monotonic() + BUSY)
        for ending in done.ended:
            self._ended(ending)
        return done

    def _free(self) -> int:
        return self._slots - len(self._watch) - len(self)

    # ── starts ──────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Hand over what was claimed. A run that cannot be prepared or started holds up no other."""
        while self._claimed:
            company = next(iter(self._claimed)).company
            self._start(company, list(islice((key for key in self._claimed if key.company == company), CHUNK)))

    def _start(self, company: str, keys: Sequence[RunKey]) -> None:
        try:
            with self._session.autocommit() as conn:
                given = work.read(conn, company, keys)
        except Exception as error:
            if is_transient(error):
                raise
            if len(keys) == 1:
                self._hold_up(keys[0], error)
                return
            for key in keys:
                self._start(company, [key])
            return
        for key in keys:
            ready = given.get(key)
            if ready is not None and ready.executor not in self._watch.executors:
                self._hold_up(key, LookupError(f"executor {ready.executor!r} is not loaded here"))
                continue
            self._claimed.pop(key)
            self._retries.succeeded(("start", key))
            if ready is not None:
                self._hand_over(key, ready)

    def _hold_up(self, key: RunKey, error: Exception) -> None:
        pause = self._retries.failed(("start", key))
        log.warning("run %s cannot be prepared, trying again in %.1f s: %s", key.cookie, pause, error)
        self._held_up.add(key)
        self._claimed.pop(key)

    def _hand_over(self, key: RunKey, given: work.Work) -> None:
        self._watch.add(key, given.executor)
        try:
            if given.unusable is not None:
                self._endings.not_started(key, given.unusable)
            elif given.stopping:
                self._keep_from_starting(key, given.spec)
            else:
                self._watch.executors[given.executor].submit(given.spec, key)
        except (Exception, SystemExit) as error:
            log.warning("run %s did not start: %s", key.cookie, error)
            self._endings.not_started(key, str(error) or type(error).__name__)

    def _keep_from_starting(self, key: RunKey, spec: RunSpec) -> None:
        """It was asked to stop before it was started; should it have been started nevertheless, it ends."""
        name = self._watch.name(key)
        self._watch.executors[name].stop(key, max(spec.stop_grace, timedelta(0)))
        self._endings.examine(key, name)
