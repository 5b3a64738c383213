"""What a panic has to report, with proof: runs that still live, runs that have ended, companies that it holds."""

from __future__ import annotations

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


def ended_by_panic(conn: Connection[Any], company: str | None) -> dict[str, int]:
    """Count the runs that the present panic ended, by the evidence of their end."""
    rows = store.run(conn, "panics.ended_by_panic", {"company": company}, prepare=False)
    return {row.evidence or "unproven": row.runs for row in rows}


def panicked(conn: Connection[Any]) -> list[tuple[str, str]]:
    """Return the companies in panic, each with its state."""
    return [(row.company, row.state) for row in store.run(conn, "panics.panicked_companies", prepare=False)]
