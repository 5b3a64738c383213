"""Coalescing: of many signals of one source the first acts at once, and all others together, later. Pure.

A source is one exact identity: company, gate, key. What it asks for is a reconstruction: a walk, page by page, over
the receipts behind the gate. For every signal at time s some walk takes its first page at s or later, and at the
latest when the window of an earlier walk closes (its first page + 30 s) or that walk ends.

A walk that admitted something closes no window: a source that brings work is never delayed. Any other one does, but

* if it left nothing behind the gate, the window opens again as soon as something is parked there: a signal from then
  on has something to look at that the walk cannot have seen. Behind a live run that happens in silence, so an
  admission opens such windows of its company too;
* where what a signal announces can be taken by another receipt first (a slot, an issue), a walk that finds it taken by
  an admission of a moment ago closes none, once for each admission: the end of that run has a signal of its own.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from wakeful.timers import Timers

WINDOW = 30.0  # seconds
MOMENT = 5.0  # seconds within which an admission may have taken what a signal announced
TAKEN = frozenset({"concurrency", "execution"})  # gates that what is admitted closes again
SILENT = "execution"  # the gate behind which a receipt may be saved parked without a signal
FIRST_ID = UUID(int=0)
# Of an issue or an agent more may have changed than what a receipt waits on: their walks look at all that wait.
WIDE = frozenset({"agent", "issue"})

Source = tuple[str, str, str]  # company, gate, key


@dataclass(slots=True)
class Walk:
    """One reconstruction under way.

    Arguments:
        source: what it looks behind.
        after: the last receipt of its last page.
        began: when it took its first page; None before that.
        admitted: whether anything it looked at was admitted.
        waiting: whether anything it looked at still waits there.
        stirred: whether something was parked there since its first page.
        again: whether the source was signalled since its first page.
        at_once: whether the next walk must not wait for a window.
    """

    source: Source
    after: UUID = FIRST_ID
    began: float | None = None
    admitted: bool = False
    waiting: bool = False
    stirred: bool = False
    again: bool = False
    at_once: bool = False


class Coalescer:
    """The walks and windows of all sources; those whose window is over are forgotten. Companies take turns.

    Arguments:
        window: seconds for which a walk that admitted nothing keeps the next one waiting.

    ``now`` is always seconds of one monotonic clock.
    """

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._walks: dict[Source, Walk] = {}
        self._line: OrderedDict[str, deque[Source]] = OrderedDict()  # whose next page is to be read, by company
        self._resting: Timers[Source] = Timers()  # walks whose next page could not be read
        self._closed: Timers[Source] = Timers()  # windows
        self._trailing: Timers[Source] = Timers()  # of the closed: those that were signalled since
        self._empty: dict[str, set[Source]] = {}  # of the closed, by company: those with nothing behind them
        self._wide: set[Source] = set()  # of the walks under way: those of issues and agents
        self._admitted: Timers[str] = Timers()  # companies of which something was admitted a moment ago
        self._excused: Timers[Source] = Timers()  # walks that closed no window for that

    def __len__(self) -> int:
        """Return how many sources are remembered."""
        return len(self._walks) + len(self._closed)

    def clear(self) -> None:
        """Forget everything."""
        for timers in (self._resting, self._closed, self._trailing, self._admitted, self._excused):
            timers.clear()
        for known in (self._walks, self._line, self._empty):
            known.clear()
        self._wide.clear()

    # ── what is told ────────────────────────────────────────────────────────────────────────────────────

    def signalled(self, source: Source, now: float) -> None:
        """Have a source walked: now, after the walk under way, or when its window closes."""
        self.ripen(now)
        walk = self._walks.get(source)
        if walk is not None:
            walk.again = walk.again or walk.began is not None
        elif (until := self._closed.get(source)) is not None:
            self._trailing.set(source, until)
        else:
            self._line_up(Walk(source))

    def needed(self, source: Source) -> None:
        """Have a source walked whatever its window says: its gate was seen to be open."""
        walk = self._walks.get(source)
        if walk is None:
            self._open(source)
            self._line_up(Walk(source))
        elif walk.began is not None:
            walk.again = walk.at_once = True

    def stirred(self, company: str, gates: Collection[tuple[str, str]] | None = None) -> None:
        """Open windows that were closed on finding nothing: now something waits there.

        Arguments:
            gates: (gate, key) of what was parked; None: anything may have been.
        """
        parked = None if gates is None else {(company, gate, key) for gate, key in gates}
        if parked is not None and not parked:
            return
        for source in list(self._walks) if parked is None else self._wide | parked:
            if source[0] == company and source in self._walks:
                self._walks[source].stirred = True
        empty = self._empty.get(company, set())
        for source in [one for one in empty if parked is None or one[1] in WIDE or one in parked]:
            signalled = source in self._trailing
            self._open(source)
            if signalled:
                self._line_up(Walk(source))

    def admitted(self, company: str, now: float) -> None:
        """Take note that something of a company was admitted, by whatever pass."""
        self._admitted.set(company, now + MOMENT)
        self.stirred(company, {(gate, key) for _, gate, key in self._empty.get(company, ()) if gate == SILENT})

    # ── walking ─────────────────────────────────────────────────────────────────────────────────────────

    def has_work(self) -> bool:
        """Whether a page is to be read now, as far as :meth:`ripen` knows."""
        return bool(self._line)

    def next_moment(self) -> float | None:
        """Return when the next walk becomes due by the clock, None if none does."""
        moments = [moment for moment in (self._trailing.next(), self._resting.next()) if moment is not None]
        return min(moments, default=None)

    def ripen(self, now: float) -> None:
        """Line up the walks whose time has come, and forget the windows that are over."""
        for source in self._trailing.pop_due(now):
            self._open(source)
            self._line_up(Walk(source))
        for source in self._closed.pop_due(now):
            self._forget_empty(source)
        for timers in (self._admitted, self._excused):
            deque(timers.pop_due(now), maxlen=0)
        for source in self._resting.pop_due(now):
            self._line_up(self._walks[source])

    def take(self, now: float) -> Walk | None:
        """Return the walk whose page is to be read next. Follow up with :meth:`looked` or :meth:`put_back`."""
        if not self._line:
            return None
        company, sources = self._line.popitem(last=False)
        walk = self._walks[sources.popleft()]
        if sources:
            self._line[company] = sources
        if walk.began is None:
            walk.began = now
            if walk.source[1] in WIDE:
                self._wide.add(walk.source)
        return walk

    def looked(self, walk: Walk, now: float, *, admitted: bool, waiting: bool, after: UUID | None) -> None:
        """Take note of what a page held.

        Arguments:
            admitted: whether anything on it was admitted.
            waiting: whether anything on it still waits there.
            after: its last receipt, if there may be a next page; None ends the walk.
        """
        walk.admitted = walk.admitted or admitted
        walk.waiting = walk.waiting or waiting
        if after is not None:
            walk.after = after
            self._line_up(walk)
        else:
            self._ended(walk, now)

    def put_back(self, walk: Walk, until: float) -> None:
        """Have a page that could not be read tried again at ``until``."""
        self._resting.set(walk.source, until)

    def _ended(self, walk: Walk, now: float) -> None:
        source = walk.source
        del self._walks[source]
        self._wide.discard(source)
        until = (now if walk.began is None else walk.began) + self._window
        unseen = walk.stirred and not walk.waiting
        if walk.admitted or walk.at_once or unseen or until <= now or self._is_excused(walk, now):
            if walk.again:
                self._line_up(Walk(source))
            return
        self._closed.set(source, until)
        if walk.again:
            self._trailing.set(source, until)
        if not walk.waiting:
            self._empty.setdefault(source[0], set()).add(source)

    def _is_excused(self, walk: Walk, now: float) -> bool:
        company, gate, _ = walk.source
        moment = self._admitted.get(company)
        if gate not in TAKEN or moment is None or moment <= now or moment == self._excused.get(walk.source):
            return False
        self._excused.set(walk.source, moment)
        return True

    def _line_up(self, walk: Walk) -> None:
        self._walks[walk.source] = walk
        self._line.setdefault(walk.source[0], deque()).append(walk.source)

    def _open(self, source: Source) -> None:
        self._closed.discard(source)
        self._trailing.discard(source)
        self._forget_empty(source)

    def _forget_empty(self, source: Source) -> None:
        empty = self._empty.get(source[0])
        if empty is not None:
            empty.discard(source)
            if not empty:
                del self._empty[source[0]]
