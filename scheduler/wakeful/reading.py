"""What a judgement reads: the facts of receipts and the limits of their company, as values.

Each function sends its statements and returns a function that takes the answers, so that a caller may send
more before it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import store
from wakeful.receipts import Account, AgentLimit, Fact, Limits, Policy, Saved, SavedComment

SAVED = [field.name for field in fields(Fact)].index("saved")  # its place among the columns of facts


def facts_and_limits(conn: Connection[Any], key: Mapping[str, Any]) -> Callable[[], tuple[list[Fact], Limits]]:
    """Ask for the facts of receipts, in the order in which they may be admitted, and for their limits.

    Arguments:
        key: ``company``, ``ids``, a list of wake ids, and ``payload_kinds``, the kinds whose payloads are read.
    """
    # Prepared at once: planning it costs several times what running it does.
    reading = conn.cursor().execute(store.query("admission.facts"), {"payload_kinds": [], **key}, prepare=True)
    limiting = limits(conn, key)
    return lambda: ([_fact(row) for row in reading], limiting())


def _fact(row: tuple[Any, ...]) -> Fact:
    if row[SAVED] is not None:
        row = (*row[:SAVED], _saved(row[SAVED]), *row[SAVED + 1 :])
    return Fact(*row)


def _saved(found: Mapping[str, Any]) -> Saved:
    comments = tuple(SavedComment(c[0], c[1], c[2], c[3], c[4], _uuid(c[5])) for c in found["comments"])
    moment = found["interrupt_at"]
    return Saved(
        comments,
        found["card"],
        found["card_status"],
        found["card_now"],
        _uuid(found["last_run"]),
        found["interrupt_by"],
        None if moment is None else datetime.fromisoformat(moment),
        found["chat_action"],
        found["chat_state"],
        _uuid(found["chat_run"]),
        found["chat_outcome"],
        found["card_by"],
        _uuid(found["assignees_run"]),
    )


def _uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


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
