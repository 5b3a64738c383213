"""The relay of a host: it hears the doorbells of its roots, and sends no statement while nobody has said anything."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from wakeful import backoff, store
from wakeful.database_errors import is_transient
from wakeful_plugins.event_relay import EventRelay
from wakeful_plugins.left_over import LeftOvers
from wakeful_plugins.run_directory import company_folder

if TYPE_CHECKING:
    from wakeful.attendants import Lend
    from wakeful_coordination.watcher import Watcher
    from wakeful_plugins.company_roots import CompanyRoots

_log = logging.getLogger(__name__)

WATCHED = 32  # doorbells heard at once: each costs three threads, and one of the user's instances of inotify
RESCAN = timedelta(seconds=30)
PARTING = 0.5  # seconds that a stop waits for the pass at work


class HostRelay(threading.Thread):
    """Looks at each root of this host that rang, all of them now and then, and everything that was left at its start.

    Arguments:
        lend: a connection; not asked for while there is nothing to deliver.
        left: what ends of earlier lives left open.
        rescan: between two looks at outboxes that did not ring.
        watched: doorbells heard at once, those of the companies that ran last.
    """

    def __init__(
        self, roots: CompanyRoots, relay: EventRelay, left: LeftOvers, lend: Lend, *, rescan: timedelta, watched: int
    ) -> None:
        super().__init__(name="wakeful relay", daemon=True)
        self._roots = roots
        self._relay = relay
        self._left = left
        self._lend = lend
        self._rescan = rescan.total_seconds()
        self._watched = watched
        self._changed = threading.Condition()
        self._rung: dict[str, None] = {}
        self._known: dict[str, None] = {}
        self._watchers: OrderedDict[str, Watcher | None] = OrderedDict()
        self._said: dict[str, str] = {}
        self._stopping = False
        self._failures = 0

    def watch(self, company: str) -> None:
        """Hear a company's doorbell from now on, and look at its outbox."""
        with self._changed:
            self._known[company] = None
            fresh = company not in self._watchers
            self._watchers.setdefault(company, None)
            self._watchers.move_to_end(company)
            dropped = [self._watchers.popitem(last=False)[1]] if len(self._watchers) > self._watched else []
            fresh = fresh and company in self._watchers
        if fresh:
            self._listen(company)
        for watcher in dropped:
            self._end(watcher)

    def ring(self, company: str) -> None:
        """Look at a company's outbox soon."""
        with self._changed:
            self._rung[company] = None
            self._changed.notify()

    def end(self) -> None:
        """End after the event at work; what takes longer is left behind."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
            watchers = list(self._watchers.values())
        for watcher in watchers:
            self._end(watcher)
        if self.is_alive():
            self.join(PARTING)

    def run(self) -> None:
        """Work until ended."""
        started = False
        due = time.monotonic()
        while True:
            with self._changed:
                while not self._stopping and time.monotonic() < due and not (self._rung and not self._failures):
                    self._changed.wait(max(0.0, due - time.monotonic()))
                if self._stopping:
                    return
                late = time.monotonic() >= due
                rung = list(self._known if late else self._rung)
                self._rung = {}
            try:
                if not started:
                    self._start_with_what_is_here()
                    started = True
                for company in rung:
                    self._look(company)
                if late:
                    self._left.finish()
                self._failures = 0
                due = time.monotonic() + self._rescan if late else due
            except Exception as error:
                pause = backoff.delay(self._failures, random.random)
                self._failures += 1
                level = logging.WARNING if is_transient(error) else logging.ERROR
                _log.log(level, "events wait, trying again in %.1f s: %s", pause, error)
                due = time.monotonic() + pause

    # ── one look ────────────────────────────────────────────────────────────────────────────────────────

    def _start_with_what_is_here(self) -> None:
        """Recover every root, finish the ends that earlier lives left open, and ask again about what was refused."""
        folders = {path.name for path in (self._roots.data.absolute() / "coord").glob("*") if _is_root(path)}
        if not folders:
            return
        with self._lend() as conn:
            names = [row.id for row in store.run(conn, "relay.companies", prepare=False).fetchall()]
        for company in names:
            if company_folder(company) not in folders:
                continue
            self.watch(company)
            self._guarded(company, lambda one=company: self._recover(one))  # type: ignore[misc]

    def _recover(self, company: str) -> None:
        root = self._roots.root(company)
        done = root.recover(timeout=1.0)
        for txid, reason in done.left:
            _log.warning("transaction %s of %s is left: %s", txid, company, reason)
        self._left.find(company)
        self._relay.everything(root, company)

    def _look(self, company: str) -> None:
        if not self._roots.path(company).exists():  # the company was erased
            with self._changed:
                self._known.pop(company, None)
                watcher = self._watchers.pop(company, None)
            self._end(watcher)
            self._roots.forget(company)
            return
        self._guarded(company, lambda: self._relay.everything(self._roots.root(company), company))

    def _guarded(self, company: str, work: Callable[[], None]) -> None:
        """One company's broken root hinders no other's."""
        from wakeful_coordination import CoordinationError

        if self._stopping:
            return
        try:
            work()
            self._said.pop(company, None)
        except CoordinationError as error:
            self._warn(company, error.message)

    def _warn(self, company: str, why: str) -> None:
        """Say once why a company's events wait, until that changes."""
        if self._said.get(company) != why:
            self._said[company] = why
            _log.warning("the events of %s wait: %s", company, why)

    # ── doorbells ───────────────────────────────────────────────────────────────────────────────────────

    def _listen(self, company: str) -> None:
        from wakeful_coordination import CoordinationError

        try:
            root = self._roots.root(company)
        except CoordinationError as error:
            self._warn(company, error.message)
            return
        watcher = root.watcher(
            lambda: self.ring(company),
            announce=lambda line: _log.warning("events of %s: %s", company, line),
            rescan=self._rescan,
        )
        watcher.start()
        with self._changed:
            if company in self._watchers and not self._stopping:
                self._watchers[company] = watcher
                return
        self._end(watcher)

    @staticmethod
    def _end(watcher: Watcher | None) -> None:
        if watcher is not None:
            try:
                watcher.stop()
            except Exception as error:
                _log.warning("a doorbell was not heard any more: %s", error)


def _is_root(path: Path) -> bool:
    return (path / "root.json").exists()
