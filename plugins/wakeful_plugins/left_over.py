"""Ends that were begun and not finished: by an earlier life of the scheduler, or by a cleanup that failed."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeful import store
from wakeful_plugins.root_examination import instances
from wakeful_plugins.run_instance import execution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wakeful.attendants import Lend
    from wakeful.executions import RunKey
    from wakeful_coordination import Coordination, Generation
    from wakeful_plugins.company_roots import CompanyRoots

_log = logging.getLogger(__name__)

AT_ONCE = 500  # runs whose rows one statement reads
LEASE = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class LeftOver:
    """An execution whose generation may still have to be ended."""

    key: RunKey
    generation: Generation


class LeftOvers:
    """Remembers them, and ends the generations of those whose run is over. Thread-safe to add to."""

    def __init__(self, roots: CompanyRoots, lend: Lend) -> None:
        self._roots = roots
        self._lend = lend
        self._guard = threading.Lock()
        self._left: dict[RunKey, LeftOver] = {}

    def add(self, key: RunKey, generation: Generation) -> None:
        """Remember one, to be looked at later."""
        with self._guard:
            self._left[key] = LeftOver(key, generation)

    def find(self, company: str) -> None:
        """Look at every instance of a company's root, once, for what an earlier life left; then finish it.

        Raises CoordinationError, and what the database raises.
        """
        root = self._roots.root(company)
        for home in instances(Path(root.root.path)):
            key = execution(company, home.name)
            if key is None or any(name.startswith("end-") for name in os.listdir(home)):
                continue
            current = root.generations.current(home.name)
            if current is not None:
                self.add(key, current.generation)
        self.finish()

    def finish(self) -> None:
        """Finish what can be finished: no statement while nothing is left. Raises what the database raises."""
        with self._guard:
            left = list(self._left.values())
        for company in sorted({one.key.company for one in left}):
            own = [one for one in left if one.key.company == company]
            for start in range(0, len(own), AT_ONCE):
                self._finish(company, own[start : start + AT_ONCE])

    def _finish(self, company: str, left: Sequence[LeftOver]) -> None:
        from wakeful_coordination import CoordinationError
        from wakeful_coordination.errors import GenerationRefused

        parameters = {"company": company, "runs": [one.key.run for one in left]}
        with self._lend() as conn:
            rows = {row.id: row for row in store.run(conn, "relay.runs", parameters, prepare=False).fetchall()}
        for one in left:
            try:
                row = rows.get(one.key.run)
                if row is None or row.ended or row.generation != one.key.generation:
                    _conclude(self._roots.root(company), one, row)
            except GenerationRefused as error:  # somebody replaced it: it is theirs now
                _log.warning("the end of %s is somebody else's: %s", one.key.cookie, error.message)
            except CoordinationError as error:
                _log.warning("the end of %s stays unfinished: %s", one.key.cookie, error.message)
                continue
            with self._guard:  # one that lives is ended by those who watch it
                self._left.pop(one.key, None)


def _conclude(root: Coordination, left: LeftOver, row: Any) -> None:
    """End a generation whose run is over; what it said first stands. Raises CoordinationError."""
    generation = left.generation
    landed = row is not None and row.ended and row.generation == left.key.generation
    with root.lease(generation.instance, timeout=LEASE):
        before = root.terminals.read(generation)
        outcome = before.outcome if before else (row.state if landed else "died")
        reason = before.reason if before else "its scheduler did not live to say so"
        permission = root.conclude(generation, outcome, reason)
        root.generations.retire(generation)
        if landed and outcome in (row.state, "died"):
            root.ends.record(permission)
