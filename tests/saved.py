"""Saved input as tests make it: comments on ``I-1``, which is the agent ``coder``'s, and runs that are given them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
from tests.passes import admit, start

import wakeful
from wakeful.executions import RunKey

Conn = psycopg.Connection[Any]


def save(conn: Conn, id: str, *, issue: str = "I-1", author: str = "user:ann", body: str = "words", **more: Any) -> Any:
    """Save a comment and return what the producer answered."""
    return wakeful.run(conn, wakeful.save_comment("acme", issue, body, author, id=id, **more))


def started(conn: Conn, wake: UUID, *, signalled: bool = False) -> RunKey:
    """Admit a receipt, claim its run, and let its command run."""
    admit(conn, wake, signalled=signalled)
    (key,) = start(conn)
    conn.execute("UPDATE wakeful.run SET state = 'running', started_at = wakeful.now() WHERE id = %s", (key.run,))
    return key


def busy(conn: Conn, issue: str = "I-1") -> RunKey:
    """A run of the issue that is at work."""
    wake = wakeful.run(conn, wakeful.request_wake("acme", "coder", issue)).wake
    assert wake is not None
    return started(conn, wake)


def given(conn: Conn, run: UUID | None) -> tuple[list[str], str]:
    """The comments that a run is given, and its authority."""
    found = conn.execute("SELECT comments, authority FROM wakeful.run WHERE id = %s", (run,)).fetchone()
    assert found is not None
    return found[0], found[1]
