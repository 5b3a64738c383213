"""A judgement: the locked receipts of one pass against hosts' own gates, the core's and their company's limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import reading, store
from wakeful.decisions import decide
from wakeful.judges import Judges
from wakeful.ledger import Ledger
from wakeful.outcomes import Admit, Outcome, Verdict
from wakeful.receipts import Fact, Limits

NONE: frozenset[UUID] = frozenset()


def of(
    conn: Connection[Any],
    key: Mapping[str, Any],
    judges: Judges,
    facts: Sequence[Fact],
    verdicts: Mapping[UUID, Verdict],
    limits: Limits,
    *,
    signalled: frozenset[UUID] = NONE,
    released: frozenset[UUID] = NONE,
) -> tuple[dict[UUID, Outcome], Ledger]:
    """Decide locked receipts; where a limit applies to what is to be admitted, again under the company's limits lock.

    Arguments:
        conn: inside the transaction that holds the locks of the receipts and of their issues.
        key: what the limits are read by: ``company`` and ``ids``.
        verdicts: of the kinds' plugins.
        limits: as read in the statement after the locks.
        signalled: receipts whose gate was signalled, so that their deadline need not have come.
        released: receipts that are looked at whatever their deadline.

    Returns:
        The outcome of each receipt, and the ledger that they were decided by.
    """
    further = judges.refusals(conn, facts)
    ledger = Ledger(limits)
    outcomes = decide(facts, verdicts, ledger, further, signalled, released)
    if any(isinstance(outcomes[fact.id], Admit) and ledger.limited(fact) for fact in facts):
        with conn.pipeline():
            store.run(conn, "admission.lock_limits", key)
            limiting = reading.limits(conn, key)
            ledger = Ledger(limiting())
        outcomes = decide(facts, verdicts, ledger, further, signalled, released)
    return outcomes, ledger
