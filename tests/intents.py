"""Status intents as tests make them, follow them and spoil them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
from tests.passes import end, row, start
from tests.rows import say

import wakeful
from wakeful.executions import RunKey
from wakeful.receipts import Fact
from wakeful_plugins.native_status import StatusIntents

Conn = psycopg.Connection[Any]
ACME = "acme"


def own(conn: Conn, issue: str, company: str = ACME, agent: str = "coder") -> None:
    """Make an issue an agent's without asking for a run."""
    say(conn, wakeful.create_issue(company, issue))
    conn.execute(
        "UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = %s WHERE company = %s AND id = %s",
        (agent, company, issue),
    )


def intent(conn: Conn, issue: str = "I-1", status: str | None = None, company: str = ACME, **given: Any) -> UUID:
    """Commit a change of status that wakes somebody, and return the intent."""
    [now] = conn.execute("SELECT status FROM wakeful.issue WHERE company = %s AND id = %s", (company, issue)).fetchone()
    wanted = status or ("todo" if now == "in_progress" else "in_progress")
    made = wakeful.run(conn, wakeful.commit_status(company, issue, wanted, **given)).wake
    assert made is not None
    return made


def reviewed_issues(conn: Conn) -> None:
    """Issues I-1 and I-2 of coder, which critic reviews."""
    say(conn, wakeful.add_agent(ACME, "critic", ["true"]))
    for issue in ("I-1", "I-2"):
        own(conn, issue)
        say(conn, wakeful.assign_review(ACME, issue, "agent:critic"))


def state(conn: Conn, wake: UUID) -> str:
    return row(conn, wake, "state")[0]


def pending(conn: Conn, kind: str = "dispatch") -> list[UUID]:
    found = conn.execute(
        "SELECT id FROM wakeful.wake WHERE kind = %s AND ended_at IS NULL ORDER BY created_at, id", (kind,)
    )
    return [wake for (wake,) in found]


def finish(conn: Conn) -> None:
    """Start what is queued and end all that runs."""
    for (company,) in conn.execute("SELECT company FROM wakeful.company").fetchall():
        start(conn, company)
    found = conn.execute("SELECT company, id, generation FROM wakeful.run WHERE ended_at IS NULL").fetchall()
    for key in found:
        end(conn, RunKey(*key), "succeeded")


class Choosy(StatusIntents):
    """Cannot judge one of them."""

    def __init__(self, bad: UUID) -> None:
        self._bad = bad

    def judge(self, facts: Sequence[Fact]) -> Any:
        if self._bad in [fact.id for fact in facts]:
            raise ValueError("this one cannot be judged")
        return super().judge(facts)
