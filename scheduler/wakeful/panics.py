"""What a panic has to report, with proof: runs that still live, runs that have ended, companies that it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from wakeful import store


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """Runs that have processes, or may have; ``unanswered`` names the hosts whose scheduler does not renew them."""

    running: int
    stopping: int
    uncertain: int
    unanswered: tuple[str, ...]

    @property
    def total(self) -> int:
        """How many there are."""
        return self.running + self.stopping


def live_runs(conn: Connection[Any], company: str | None) -> LiveRuns:
    """Count the runs that live, of one company or of all."""
    rows = store.run(conn, "panics.live_runs", {"company": company}, prepare=False).fetchall()
    stopping = sum(row.runs for row in rows if row.state == "stopping")
    return LiveRuns(
        running=sum(row.runs for row in rows) - stopping,
        stopping=stopping,
        uncertain=sum(row.runs for row in rows if row.uncertain),
        unanswered=tuple(sorted({str(row.host) for row in rows if row.unanswered})),
    )


@dataclass(frozen=True, slots=True)
class Proof:
    """What became of the process trees that a panic was to end.

    Arguments:
        trees: the runs that it asked to stop, and those that live on unasked.
        processes: processes that were ended with them, as far as they are counted.
        survivors: trees that are not proven gone, those in doubt left out.
        uncertain: trees of which nobody can say whether they live.
        ended: trees that are gone, by what proves it.
        unanswered: hosts whose scheduler does not answer for its survivors.
    """

    trees: int
    processes: int
    survivors: int
    uncertain: int
    ended: Mapping[str, int]
    unanswered: tuple[str, ...]


def prove(conn: Connection[Any], company: str | None) -> Proof:
    """Report on the present panic of one company, or of all; the rows say it, each by its evidence."""
    live = live_runs(conn, company)
    rows = store.run(conn, "panics.ended_by_panic", {"company": company}, prepare=False).fetchall()
    ended = {row.evidence or "unproven": row.runs for row in rows}
    return Proof(
        trees=live.total + sum(ended.values()),
        processes=sum(row.processes for row in rows),
        survivors=live.total - live.uncertain,
        uncertain=live.uncertain,
        ended=ended,
        unanswered=live.unanswered,
    )


def panicked(conn: Connection[Any]) -> list[tuple[str, str]]:
    """Return the companies in panic, each with its state."""
    return [(row.company, row.state) for row in store.run(conn, "panics.panicked_companies", prepare=False)]
