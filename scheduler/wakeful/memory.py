"""What the owners know without asking the database: windows, deadlines, what is due, which gates to look behind.

"Is anything due?" is answered from here. Rows are the only truth: whatever is forgotten is read again. Not
thread-safe; does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from wakeful.admission import PASS, PassResult
from wakeful.clock import Clock, DatabaseTime
from wakeful.coalesce import WIDE, WINDOW, Coalescer, Source, Walk
from wakeful.debts import Debts
from wakeful.line import Line, Look, Manner
from wakeful.outcomes import Admit, Moved, Park
from wakeful.signals import Signal
from wakeful.timers import BUSY, Timers
from wakeful.window import SETTLEMENT, Entry, Window

BEFORE_ALL: Source = ("", "", "")
HELD = 1000  # rows of one company that somebody else holds; from there on none of it are read

Job = tuple[str, ...]  # ("window", owner), ("gates",), ("named", owner), ("owners",), ("walk", company, gate, key)


class Memory:
    """The memory of all owners of one driver.

    Arguments:
        owners: their names.
        clock: monotonic.
        time: the database's time.
        size: rows of one window; all owners together remember at most twice that many deadlines each.
        namers: names of the owners whose other rows name receipts.
        window: seconds of a source's window, see :class:`Coalescer`.
        draw: randomness for backoff, a number in [0, 1).
    """

    def __init__(
        self,
        owners: Sequence[str],
        clock: Clock,
        time: DatabaseTime,
        size: int,
        *,
        namers: Sequence[str] = (),
        window: float = WINDOW,
        draw: Callable[[], float],
    ) -> None:
        self.windows = {name: Window(name) for name in owners}
        self._clock = clock
        self._time = time
        self._size = max(1, len(owners)) * size
        self._deadlines: Timers[Look] = Timers()  # as the rows say
        self._returning: Timers[Look] = Timers()  # rows that somebody held, and those of passes that failed
        self._signalled: set[Look] = set()  # of the returning: those whose gate was signalled
        self._due = {manner: Line() for manner in Manner}
        self.walks = Coalescer(window)
        self._probes: dict[tuple[str, UUID], Source] = {}
        self._namers = tuple(namers)
        self.gates_after: Source | None = None  # how far the gates have been probed; None: all
        self.named_after: dict[str, Any] = {}  # by owner, how far its names have been read; absent: all
        self.owners_read = True  # whether it is known whose wakes nobody here looks after
        self.jobs: Debts[Job] = Debts(draw)  # of what is read
        self._owed: Debts[Look] = Debts(draw)  # of receipts whose passes failed
        self._together: dict[Look, int] = {}  # of these: how many may share their next pass
        self.last_company = ""

    def forget(self) -> None:
        """Forget everything but failures: the rows are about to be read anew."""
        for window in self.windows.values():
            window.stale = True
        for timers in (self._deadlines, self._returning):
            timers.clear()
        for line in self._due.values():
            line.clear()
        self._signalled.clear()
        self._probes.clear()
        self.walks.clear()
        self.jobs.forget_old(self._clock.monotonic())
        self._owed.forget_old(self._clock.monotonic())
        self._together = {look: most for look, most in self._together.items() if self._owed.failures(look)}
        self.gates_after = BEFORE_ALL
        self.named_after = dict.fromkeys(self._namers)
        self.owners_read = False

    def forgive(self) -> None:
        """Let everything that failed be tried at once."""
        self.jobs.forgive()
        self._owed.forgive()
        self._together.clear()

    # ── what there is to do ─────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        """Whether there is anything to do now."""
        moment = self.next_moment()
        return (
            not self.is_caught_up
            or self.walks.has_work()
            or bool(self.passed_windows())
            or self.next_job() is not None
            or (moment is not None and moment <= self._clock.monotonic())
        )

    def next_moment(self) -> float | None:
        """Return the monotonic time of the next deadline or horizon, None when only a signal can bring work."""
        now = self._clock.monotonic()
        moments = [self._deadlines.next(), self._returning.next(), self.walks.next_moment(), self.jobs.next(now)]
        ahead = [window for window in self.windows.values() if not window.stale and self._may_read(window)]
        moments += [self._time.monotonic_at(window.horizon) for window in ahead if window.horizon is not None]
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def is_caught_up(self) -> bool:
        """Whether nothing known is due: only then is more read."""
        return not any(self._due.values())

    def passed_windows(self) -> list[Window]:
        """Return the windows whose next deadlines have to be read."""
        now = self._time.now()
        passed = [window for window in self.windows.values() if now is None or window.passed(now)]
        return [window for window in passed if self._may_read(window)]

    def _may_read(self, window: Window) -> bool:
        return self.jobs.rest(("window", window.owner), self._clock.monotonic()) is None

    def next_job(self) -> Job | None:
        """Return the next part of what is read in the background after a start."""
        now = self._clock.monotonic()
        jobs: list[Job] = [("gates",)] if self.gates_after is not None else []
        jobs += [("named", name) for name in self.named_after]
        jobs += [] if self.owners_read else [("owners",)]
        return next((job for job in jobs if self.jobs.rest(job, now) is None), None)

    def held(self) -> tuple[list[str], list[UUID]]:
        """Return what no window is to be filled with: whole companies, and rows, that somebody else holds."""
        rows = Counter(look.company for look in self._returning)
        companies = [company for company, count in rows.items() if count >= HELD]
        return companies, [look.wake for look in self._returning if rows[look.company] < HELD]

    def ripen(self) -> None:
        """Make due whatever deadline has come."""
        now = self._clock.monotonic()
        for look in self._deadlines.pop_due(now):
            self.is_due(*look)
        for look in self._returning.pop_due(now):
            self.is_due(*look, signalled=look in self._signalled)
            self._signalled.discard(look)
        self.walks.ripen(now)

    def next_batch(self, manner: Manner = Manner.JUDGED) -> tuple[str, dict[UUID, bool]] | None:
        """Take at most one pass of due receipts of the next company; companies take turns.

        A pass that failed is halved again and again, so that one bad receipt ends up alone.
        """
        most = 1 if manner is Manner.RELEASED else PASS

        def together(company: str, wake: UUID) -> int:
            return self._together.get(Look(company, wake, manner), most)

        batch = self._due[manner].take(together)
        if batch is not None and manner is Manner.JUDGED:
            self.last_company = batch[0]
        return batch

    # ── what is learned ─────────────────────────────────────────────────────────────────────────────────

    def is_due(self, company: str, wake: UUID, manner: Manner = Manner.JUDGED, *, signalled: bool = False) -> None:
        """Remember that a receipt is to be looked at now, or when the rest after its failure is over."""
        look = Look(company, wake, manner)
        rest = self._owed.rest(look, self._clock.monotonic())
        if rest is None:
            self._due[manner].add(company, wake, signalled=signalled)
        else:
            self._returns(look, rest, signalled=signalled)

    def take(self, signals: Iterable[Signal]) -> None:
        """Take note of signals; one that names nothing asks for nothing."""
        for signal in signals:
            if signal.company is None:
                continue
            if signal.wake is not None:
                if signal.topic == SETTLEMENT:
                    self.is_due(signal.company, signal.wake, Manner.SETTLED, signalled=True)
                else:
                    self._told(signal.company, signal.wake, signal.due, signal.owner)
            elif signal.gate is not None and signal.key is not None:
                self.walks.signalled((signal.company, signal.gate, signal.key), self._clock.monotonic())

    def _told(self, company: str, wake: UUID, due_at: datetime | None, owner: str | None) -> None:
        """Remember a deadline that somebody told of, if its window reaches that far."""
        if owner == "execution_wait":
            self.walks.stirred(company)  # it was saved as waiting
        window = self.windows.get(owner or "")
        if window is None or due_at is None or window.stale:
            return
        if self._time.has_come(due_at):
            self.is_due(company, wake, window.manner)
        elif window.knows(due_at):
            self._deadline(Look(company, wake, window.manner), due_at)

    def opened(self, window: Window, entries: Sequence[Entry], size: int, *, complete: bool = True) -> None:
        """Take note of a window's nearest deadlines; where companies were left out, it is read again soon."""
        window.opened(entries, size)
        now = self._time.now()
        if not complete and now is not None:
            window.narrow(now + timedelta(seconds=BUSY))
        for entry in entries:
            look = Look(entry.company, entry.id, window.manner)
            if self._time.has_come(entry.due_at):
                self.is_due(*look)
            else:
                self._deadline(look, entry.due_at)

    def probe(self, source: Source, wake: UUID) -> None:
        """Have a gate judged again through one receipt; if it turns out open, all behind it are looked at."""
        self.is_due(source[0], wake, signalled=True)
        self._probes[(source[0], wake)] = source

    def judged(
        self, company: str, chosen: Mapping[UUID, bool], result: PassResult, manner: Manner = Manner.JUDGED
    ) -> None:
        """Take note of what a pass did."""
        now = self._clock.monotonic()
        settled = manner is Manner.SETTLED
        after = manner if settled else Manner.JUDGED  # how a stored deadline of these is looked at
        for look in [Look(company, wake, manner) for wake in chosen]:
            self._owed.paid(look)
            self._together.pop(look, None)
        for wake in result.busy:
            self._returns(Look(company, wake, manner), now + BUSY, signalled=bool(chosen.get(wake)))
        for wake, due_at in result.set_aside.items():
            self._deadline(Look(company, wake, after), due_at)
        for wake, outcome in result.outcomes.items():
            window = self.windows.get(result.timers.get(wake, "execution_wait"))
            if isinstance(outcome, Moved) and outcome.due_at is not None:
                if settled and self._time.has_come(outcome.due_at):
                    # Due, and yet not settled: it is no settlement's any more, and judged as any other, in a second.
                    self._returns(Look(company, wake), now + BUSY, signalled=False)
                else:
                    self._deadline(Look(company, wake, after), outcome.due_at)
            elif isinstance(outcome, Park) and outcome.due_at and (not window or window.knows(outcome.due_at)):
                self._deadline(Look(company, wake), outcome.due_at)
        for wake in result.reopened:
            self.is_due(company, wake, signalled=True)
        if result.runs:
            self.walks.admitted(company, now)
        self.walks.stirred(company, {o.refusal.at for o in result.outcomes.values() if isinstance(o, Park)})
        for wake in chosen:
            source = None if wake in result.busy or settled else self._probes.pop((company, wake), None)
            if source is not None and not waits_behind(result.outcomes.get(wake), source):
                self.walks.needed(source)

    def failed(self, company: str, chosen: Mapping[UUID, bool], manner: Manner = Manner.JUDGED) -> None:
        """Take note that a pass failed as a whole: its receipts come back after a pause, in halves."""
        looks = {Look(company, wake, manner): signalled for wake, signalled in chosen.items()}
        moment = self._owed.failed(self._clock.monotonic(), *looks)
        self._together.update(dict.fromkeys(looks, max(1, len(looks) // 2)))
        for look, signalled in looks.items():
            self._returns(look, moment, signalled=signalled)

    def looked(self, walk: Walk, page: Sequence[UUID], result: PassResult) -> None:
        """Take note of what the page of a walk led to."""
        _, gate, _ = walk.source
        outcomes = list(result.outcomes.values())
        behind = [o for o in outcomes if (isinstance(o, Park) if gate in WIDE else waits_behind(o, walk.source))]
        # Where the page has used up what there was, the next one fares no better: the next slot has its own signal.
        over = len(page) < PASS or (gate == "concurrency" and bool(behind))
        self.walks.looked(
            walk,
            self._clock.monotonic(),
            admitted=any(isinstance(outcome, Admit) for outcome in outcomes),
            waiting=bool(behind or result.busy or result.set_aside),
            after=None if over else page[-1],
        )

    def _returns(self, look: Look, moment: float, *, signalled: bool) -> None:
        self._returning.set(look, moment)
        if signalled:
            self._signalled.add(look)

    def _deadline(self, look: Look, due_at: datetime) -> None:
        self._deadlines.set(look, self._time.monotonic_at(due_at))
        if len(self._deadlines) > 2 * self._size:
            last = self._deadlines.keep_nearest(self._size)
            if last is not None:
                for window in self.windows.values():
                    window.narrow(self._time.moment(last))


def waits_behind(outcome: object, source: Source) -> bool:
    """Whether a pass found that a receipt waits behind just this gate."""
    return isinstance(outcome, Park) and outcome.refusal.at == source[1:]
