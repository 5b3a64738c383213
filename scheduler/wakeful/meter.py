"""What runs used and which sessions they left: kept under their fence, and read back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import store
from wakeful.errors import NotFound
from wakeful.executions import EndClass
from wakeful.results import Conclusion
from wakeful.usage import Provenance, Usage


@dataclass(frozen=True, slots=True)
class RunUsage:
    """What a run has used, as far as anybody knows.

    Arguments:
        attempts: how often it was started.
        unknown: of how many attempts the usage is not known; one that still runs is among them.
        known: the money that is known, a lower bound where ``unknown`` is not 0.
        counted: the money that counts against budgets; once the run has ended, the reserved estimate if unknown.
        estimated: whether part of ``known`` is a reckoning.
        lines: what its attempts' results said, as (attempt, usage).
    """

    attempts: int
    unknown: int
    known: Decimal
    counted: Decimal
    estimated: bool
    lines: tuple[tuple[int, Usage], ...]

    @property
    def provenance(self) -> Provenance:
        """How good the figure is."""
        return "unknown" if self.unknown else "estimated" if self.estimated else "reported"

    @property
    def money(self) -> Decimal | None:
        """What it used, or None: unknown is never zero."""
        return None if self.unknown else self.known


def keep(conn: Connection[Any], company: str, ends: Mapping[UUID, Conclusion], resumed: Collection[UUID]) -> None:
    """Write what runs used and which sessions they left, in the transaction that has just made them final.

    Arguments:
        ends: of runs whose attempt has left a report.
        resumed: the runs whose attempt had been given a session.
    """
    lines = [(run, number, line) for run, end in ends.items() for number, line in enumerate(end.usage)]
    if lines:
        columns = {
            "runs": [run for run, _, _ in lines],
            "lines": [number for _, number, _ in lines],
            "providers": [line.provider for _, _, line in lines],
            "models": [line.model for _, _, line in lines],
            "tokens_in": [line.tokens_in for _, _, line in lines],
            "tokens_out": [line.tokens_out for _, _, line in lines],
            "tokens_cached": [line.tokens_cached for _, _, line in lines],
            "money": [line.money for _, _, line in lines],
            "provenances": [line.provenance for _, _, line in lines],
        }
        store.run(conn, "usage.keep", {"company": company, **columns})
    concerned = [
        run for run, end in ends.items() if end.session or end.end_class is EndClass.SESSION_LOST or run in resumed
    ]
    if concerned:
        tokens = [ends[run].session for run in concerned]
        store.run(conn, "usage.keep_sessions", {"company": company, "runs": concerned, "tokens": tokens})


def of_run(conn: Connection[Any], company: str, run: UUID) -> RunUsage:
    """Read what a run has used.

    Raises:
        NotFound: there is no such run.
    """
    key = {"company": company, "run": run}
    row = store.run(conn, "usage.of_run", key).fetchone()
    if row is None:
        raise NotFound(f"run {run} does not exist in company {company!r}", hint="list them: wakeful runs")
    lines = tuple((line[0], Usage(*line[1:])) for line in store.run(conn, "usage.lines", key))
    return RunUsage(row.attempts, row.attempts - row.known_attempts, row.known, row.spent, row.estimated, lines)
