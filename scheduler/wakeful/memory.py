"""What the owners know without asking the database: windows, deadlines, what is due, which gates to look behind.

"Is anything due?" is answered from here. Rows are the only truth: whatever is forgotten is read again. Not
thread-safe; does no I/O.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from wakeful.admission import PASS, PassResult
from wakeful.clock import Clock, DatabaseTime
from wakeful.outcomes import Moved, Park
from wakeful.signals import Signal
from wakeful.timers import BUSY, Timers
from wakeful.window import Entry, Window

FIRST_ID = UUID(int=0)

Receipt = tuple[str, UUID]
Source = tuple[str, str, str]  # company, gate, key
BEFORE_ALL: Source = ("", "", "")


class Memory:
    """The memory of all owners of one driver.

    Arguments:
        owners: their names.
        clock: monotonic.
        time: the database's time.
        size: rows of one window; all owners together remember at most twice that many deadlines each.
    """

    def __init__(self, owners: Sequence[str], clock: Clock, time: DatabaseTime, size: int) -> None:
        self.windows = {name: Window(name) for name in owners}
        self._clock = clock
        self._time = time
        self._size = max(1, len(owners)) * size
        self._deadlines: Timers[Receipt] = Timers()  # as the rows say
        self._returning: Timers[Receipt] = Timers()  # rows that somebody held
        self._signalled: set[Receipt] = set()  # of the returning: those whose gate was signalled
        self._due: OrderedDict[str, dict[UUID, bool]] = OrderedDict()
        self._sources: OrderedDict[Source, UUID] = OrderedDict()
        self._probes: dict[Receipt, Source] = {}
        self.gates_after: Source | None = None  # how far the gates have been probed; None: all
        self.last_company = ""

    def forget(self) -> None:
        """Forget everything: the rows are about to be read anew."""
        for window in self.windows.values():
            window.stale = True
        for timers in (self._deadlines, self._returning):
            timers.clear()
        for known in (self._signalled, self._due, self._sources, self._probes):
            known.clear()
        self.gates_after = BEFORE_ALL

    # ── what there is to do ─────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        """Whether there is anything to do now."""
        moment = self.next_moment()
        now = self._time.now()
        return (
            now is None
            or bool(self._due or self._sources)
            or self.gates_after is not None
            or any(window.passed(now) for window in self.windows.values())
            or (moment is not None and moment <= self._clock.monotonic())
        )

    def next_moment(self) -> float | None:
        """Return the monotonic time of the next deadline or horizon, None when only a signal can bring work."""
        horizons = (w.horizon for w in self.windows.values())
        moments = [self._deadlines.next(), self._returning.next()]
        moments += [self._time.monotonic_at(horizon) for horizon in horizons if horizon is not None]
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def is_caught_up(self) -> bool:
        """Whether nothing known is due: only then is more read."""
        return not self._due

    def passed_windows(self) -> list[Window]:
        """Return the windows whose next deadlines have to be read."""
        now = self._time.now()
        return [window for window in self.windows.values() if now is None or window.passed(now)]

    def ripen(self) -> None:
        """Make due whatever deadline has come."""
        now = self._clock.monotonic()
        for company, wake in self._deadlines.pop_due(now):
            self.is_due(company, wake)
        for company, wake in self._returning.pop_due(now):
            self.is_due(company, wake, signalled=(company, wake) in self._signalled)
            self._signalled.discard((company, wake))

    def next_source(self) -> tuple[Source, UUID] | None:
        """Take the next signalled gate, with the last receipt that was looked at behind it."""
        return self._sources.popitem(last=False) if self._sources else None

    def next_batch(self) -> tuple[str, dict[UUID, bool]] | None:
        """Take at most one pass of due receipts of the next company; companies take turns."""
        if not self._due:
            return None
        company, waiting = self._due.popitem(last=False)
        chosen = {wake: waiting[wake] for wake in list(waiting)[:PASS]}
        rest = {wake: signalled for wake, signalled in waiting.items() if wake not in chosen}
        if rest:
            self._due[company] = rest
        self.last_company = company
        return company, chosen

    # ── what is learned ─────────────────────────────────────────────────────────────────────────────────

    def is_due(self, company: str, wake: UUID, *, signalled: bool = False) -> None:
        """Remember that a receipt is to be judged now."""
        waiting = self._due.setdefault(company, {})
        waiting[wake] = signalled or waiting.get(wake, False)

    def take(self, signals: Iterable[Signal]) -> None:
        """Take note of signals."""
        for signal in signals:
            if signal.company is None:
                continue
            if signal.wake is not None:
                self._told(signal.company, signal.wake, signal.due, signal.owner)
            elif signal.gate is not None and signal.key is not None:
                # A walk under way started before this signal; it starts again.
                self._sources[(signal.company, signal.gate, signal.key)] = FIRST_ID

    def _told(self, company: str, wake: UUID, due_at: datetime | None, owner: str | None) -> None:
        """Remember a deadline that somebody told of, if its window reaches that far."""
        window = self.windows.get(owner or "")
        if window is None or due_at is None or window.stale:
            return
        if self._time.has_come(due_at):
            self.is_due(company, wake)
        elif window.knows(due_at):
            self._deadline(company, wake, due_at)

    def opened(self, window: Window, entries: Sequence[Entry], size: int) -> None:
        """Take note of a window's nearest deadlines."""
        window.opened(entries, size)
        for entry in entries:
            if self._time.has_come(entry.due_at):
                self.is_due(entry.company, entry.id)
            else:
                self._deadline(entry.company, entry.id, entry.due_at)

    def probe(self, source: Source, wake: UUID) -> None:
        """Have a gate judged again through one receipt; if it turns out open, all behind it are looked at."""
        self.is_due(source[0], wake, signalled=True)
        self._probes[(source[0], wake)] = source

    def walk_on(self, source: Source, after: UUID) -> None:
        """Look at more receipts behind a gate later, unless a newer signal has it looked at from the start anyway."""
        self._sources.setdefault(source, after)

    def judged(self, company: str, chosen: Mapping[UUID, bool], result: PassResult) -> None:
        """Take note of what a pass did."""
        for wake in result.busy:
            self._returning.set((company, wake), self._clock.monotonic() + BUSY)
            if chosen.get(wake):
                self._signalled.add((company, wake))
        for wake, due_at in result.set_aside.items():
            self._deadline(company, wake, due_at)
        waits = self.windows.get("execution_wait")
        for wake, outcome in result.outcomes.items():
            if (isinstance(outcome, Moved) and outcome.due_at is not None) or (
                isinstance(outcome, Park) and outcome.due_at is not None and (not waits or waits.knows(outcome.due_at))
            ):
                self._deadline(company, wake, outcome.due_at)
        for wake in result.reopened:
            self.is_due(company, wake, signalled=True)
        for wake in chosen:
            source = None if wake in result.busy else self._probes.pop((company, wake), None)
            if source is not None and not waits_behind(result.outcomes.get(wake), source):
                self._sources.setdefault(source, FIRST_ID)

    def _deadline(self, company: str, wake: UUID, due_at: datetime) -> None:
        self._deadlines.set((company, wake), self._time.monotonic_at(due_at))
        if len(self._deadlines) > 2 * self._size:
            last = self._deadlines.keep_nearest(self._size)
            if last is not None:
                for window in self.windows.values():
                    window.narrow(self._time.moment(last))


def waits_behind(outcome: object, source: Source) -> bool:
    """Whether a pass found that a receipt waits behind just this gate."""
    return isinstance(outcome, Park) and outcome.refusal.at == source[1:]
