"""The stage of one check: a company, its receipts, and schedulers that come and go."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from wakeful import config, plugins, producers, store
from wakeful.plugins import Hooks
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing.conformance.case import Case, NonConforming, Place, load
from wakeful.testing.database import Database
from wakeful.testing.instant import Executors, InstantExecutor

T = TypeVar("T")
COMPANY, AGENT, OTHER = "conformance", "worker", "other"
TIMING = "wakeful_plugins.execution_wait"  # times whatever waits, for every owner


def hooks_of(settings: config.Config, names: Iterable[str], executor: InstantExecutor) -> Hooks:
    """Load plugins by name, what times waits, and an executor without processes.

    Raises:
        ValueError: one of them cannot be used.
    """
    wanted = dict.fromkeys((*names, TIMING))
    loaded = plugins.load(settings, plugins=[*map(load, wanted), Executors(executor)], discover=False)
    loaded.owners()  # a name or a kind that is taken twice shows only now
    for status in loaded.report:
        if status.state == "failed":
            raise ValueError(f"plugin {status.name} cannot be used: {status.reason}")
    return loaded


class Stage:
    """One check's company, connection and schedulers; everything ends with it.

    Arguments:
        rule: the rule that is checked, for messages.
        patience: seconds after which what should have happened did not.
    """

    def __init__(self, rule: str, case: Case, database: Database, directory: Path, patience: float) -> None:
        self.rule = rule
        self.case = case
        self.database = database
        self.directory = directory
        self.patience = patience
        self.conn = database.connect(purpose="conformance")
        self.wakes: dict[UUID, Place] = {}
        self._places = 0
        self._sources: list[UUID] = []
        self._running: list[Scheduler] = []

    def __enter__(self) -> Self:
        producers.run(self.conn, producers.add_company(COMPANY))
        for agent in (AGENT, OTHER):
            producers.run(self.conn, producers.add_agent(COMPANY, agent, ["true"]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._running:
            self._running.pop().stop()

    def broken(self, seen: str, expected: str) -> NonConforming:
        """Return the error of a rule that does not hold."""
        return NonConforming(self.rule, seen, expected)

    # ── receipts ────────────────────────────────────────────────────────────────────────────────────────

    def place(self, agent: str = AGENT) -> Place:
        """Return a place where nothing has been saved yet."""
        self._places += 1
        return Place(COMPANY, agent, f"I-{self._places:05d}")

    def save(self, by: str = AGENT) -> UUID:
        """Save one receipt for an agent at a new place."""
        place = self.place(by)
        with self.conn.transaction():
            wake = self.case.save(self.conn, place)
            # Runs that are there now belong to the receipt's past: nobody else can have seen it yet.
            self._sources += [run.id for run in self.runs(place.issue)]
        self.wakes[wake] = place
        return wake

    def save_beside_source(self) -> tuple[UUID, UUID] | None:
        """Save a receipt that a living run of another host certifies; return both, or None where nothing certifies."""
        if self.case.certified is None:
            return None
        place = self.place()
        with self.conn.transaction():
            wake, source = self.case.certified(self.conn, place)
            store.run(self.conn, "conformance.send_elsewhere", {"company": COMPANY, "run": source})
            self._sources += [run.id for run in self.runs(place.issue)]
        self.wakes[wake] = place
        return wake, source

    def overtake(self, run: UUID) -> None:
        """Give a queued run a newer generation, as a proven death does."""
        with self.conn.transaction():
            store.run(self.conn, "conformance.start_run", {"company": COMPANY, "run": run})
            store.run(self.conn, "conformance.requeue_run", {"company": COMPANY, "run": run})

    def save_many(self, count: int) -> list[UUID]:
        """Save several receipts, each at a place of its own, in one transaction."""
        with self.conn.transaction():
            return [self.save() for _ in range(count)]

    def block(self) -> None:
        """Close the gate."""
        self.case.block(self.conn, Place(COMPANY, AGENT, ""))

    def reopen(self) -> None:
        """Open the gate."""
        self.case.reopen(self.conn, Place(COMPANY, AGENT, ""))

    def look(self, wake: UUID) -> Any:
        """Return one receipt's row."""
        (row,) = store.run(self.conn, "conformance.state_of", {"company": COMPANY, "wake": wake}).fetchall()
        return row

    def runs(self, issue: str) -> list[Any]:
        """Return the runs of one issue, without those that belong to a receipt's past."""
        parameters = {"company": COMPANY, "issue": issue, "except": self._sources}
        return store.run(self.conn, "conformance.runs_on", parameters).fetchall()

    def runs_of(self, wake: UUID) -> list[Any]:
        """Return the runs that a receipt led to."""
        return self.runs(self.wakes[wake].issue)

    def pending(self, issues: Iterable[str] | None = None) -> list[Any]:
        """Return what is pending on the receipts' issues."""
        wanted = [place.issue for place in self.wakes.values()] if issues is None else list(issues)
        return store.run(self.conn, "conformance.pending", {"company": COMPANY, "issues": wanted}).fetchall()

    def move(self, seconds: float, *wakes: UUID) -> None:
        """Move stored deadlines, as an edit would: to so many seconds from now."""
        store.run(self.conn, "conformance.move", {"company": COMPANY, "wakes": list(wakes), "seconds": seconds})

    def tie(self, wakes: Iterable[UUID]) -> None:
        """Give all these receipts the same deadline."""
        store.run(self.conn, "conformance.tie", {"company": COMPANY, "wakes": list(wakes)})

    def run_by_hand(self, block: str) -> None:
        """Run one statement of the suite's own in a transaction."""
        with self.conn.transaction():
            self.conn.execute(store.query(f"conformance.{block}"))

    # ── schedulers ──────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def scheduler(self, tuning: Tuning | None = None, name: str = "host") -> Iterator[Scheduler]:
        """Lend a scheduler with the owner under test, ready; stopped afterwards."""
        flags = {"dsn": self.database.dsn, "data": str(self.directory / name), "host": name}
        settings = config.load(flags, {}, self.directory)
        made = Scheduler(settings, hooks_of(settings, self.case.plugins, InstantExecutor()), tuning=tuning)
        made.start()
        self._running.append(made)
        if not made.wait_ready(self.patience):
            raise self.broken("the scheduler is not ready", "LISTEN and the first window, within seconds")
        yield made
        self._running.remove(made)
        made.stop()

    def until(self, condition: Callable[[], T], seen: Callable[[], str], expected: str) -> T:
        """Wait for a condition.

        Raises:
            NonConforming: it does not come true; ``seen`` then says what is the case instead.
        """
        deadline = time.monotonic() + self.patience
        while not (value := condition()):
            if time.monotonic() >= deadline:
                raise self.broken(seen(), expected)
            time.sleep(0.01)
        return value

    def until_run_once(self, *wakes: UUID) -> None:
        """Wait until each receipt has led to exactly one run that has ended, and nothing is pending on its issue."""
        issues = [self.wakes[wake].issue for wake in wakes]

        def wrong() -> list[Any]:
            parameters = {"company": COMPANY, "issues": issues, "except": self._sources}
            return store.run(self.conn, "conformance.overloaded", parameters).fetchall()

        def settled() -> bool:
            unended = store.run(self.conn, "conformance.unended", {"company": COMPANY}).fetchall()[0].runs
            return not self.pending(issues) and not unended

        def seen() -> str:
            left = self.pending(issues)
            if left:
                return f"{len(left)} receipt(s) are still pending, as wake {left[0].id} ({standing(left[0])})"
            return "runs have not ended"

        self.until(settled, seen, "each receipt has led to one run")
        found = wrong()
        if found:
            first = next(wake for wake in wakes if self.wakes[wake].issue == found[0].issue)
            raise self.broken(
                f"the receipt {first} led to {found[0].runs} runs ({standing(self.look(first))})", "exactly one run"
            )


def standing(row: Any) -> str:
    """Return in a few words how a receipt stands."""
    words = [row.state]
    if row.wait_gate:
        words.append(f"waits on ({row.wait_gate}, {row.wait_key}): {row.wait_reason}")
    if row.error:
        words.append(f"error: {row.error[:200]}")
    if getattr(row, "reason", None):
        words.append(row.reason)
    return ", ".join(words)
