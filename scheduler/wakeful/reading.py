"""What a judgement reads: the facts of receipts and the limits of their company, as values.

Each function sends its statements and returns a function that takes the answers, so that a caller may send
more before it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from psycopg import Connection

from wakeful import store
from wakeful.receipts import Account, AgentLimit, Fact, Limits, Policy


def facts_and_limits(conn: Connection[Any], key: Mapping[str, Any]) -> Callable[[], tuple[list[Fact], Limits]]:
    """Ask for the facts of receipts, in the order in which they may be admitted, and for their limits.

    Arguments:
        key: ``company`` and ``ids``, a list of wake ids.
    """
    reading = conn.cursor().execute(store.query("admission.facts"), key)
    limiting = limits(conn, key)
    return lambda: ([Fact(*row) for row in reading], limiting())


def limits(conn: Connection[Any], key: Mapping[str, Any]) -> Callable[[], Limits]:
    """Ask for the limits of receipts: budgets, agents, provider accounts, the company's own."""
    policies = conn.cursor().execute(store.query("admission.policies"), key)
    agents = conn.cursor().execute(store.query("admission.agents"), key)
    accounts = conn.cursor().execute(store.query("admission.accounts"), key)
    company = store.run(conn, "admission.company_runs", key)

    def answers() -> Limits:
        whole = company.fetchone()
        return Limits(
            {row[0]: Policy(*row) for row in policies},
            {row[0]: AgentLimit(*row) for row in agents},
            {row[0]: Account(*row) for row in accounts},
            whole.live if whole else 0,
            whole.limit if whole else None,
        )

    return answers
