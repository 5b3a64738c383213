"""Retries asked for in a chat, as tests make, settle and look at them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
from tests.passes import admission, admit, end, start
from tests.rows import request

from wakeful import producers
from wakeful.admission import PassResult

Conn = psycopg.Connection[Any]
ACME, CODER, ANN = "acme", "coder", "user:ann"
PROCESSED, FAILED = "processed", "failed"

SET, DELETE = "UPDATE wakeful.chat_action SET", "DELETE FROM wakeful.chat_action"


def failed(conn: Conn, issue: str | None = "I-1", **arguments: Any) -> UUID:
    """A run that has failed."""
    wake = request(conn, issue, **arguments)
    run = admit(conn, wake).runs[wake]
    (key,) = start(conn)
    end(conn, key)
    return run


def asked(conn: Conn, source: UUID, **arguments: Any) -> UUID:
    """A retry that waits for its chat action; both bear this id."""
    made = producers.run(conn, producers.open_chat_action(ACME, source, ANN, **arguments))
    assert (made.outcome, made.state, made.run) == ("inserted", "deferred", None)
    assert made.wake is not None
    return made.wake


def settled(conn: Conn, action: UUID, state: str = PROCESSED, **how: Any) -> producers.ProducerResult:
    return producers.run(conn, producers.settle_chat_action(ACME, action, state, **how))


def settle(conn: Conn, *wakes: UUID) -> PassResult:
    """One settlement pass."""
    return admission().settle(conn, ACME, wakes)


def image(conn: Conn, wake: UUID) -> Any:
    """The wake's row and its physical version: any write at all changes it."""
    return conn.execute("SELECT w.*, w.xmin::text, w.ctid::text FROM wakeful.wake w WHERE id = %s", (wake,)).fetchone()


def tamper(conn: Conn, action: UUID, change: str) -> None:
    """Change an action as nobody may: around the producers, and its guards."""
    for statement in (
        "SET ROLE wakeful_owner",
        "ALTER TABLE wakeful.chat_action DISABLE TRIGGER USER",
        "RESET ROLE",
        f"{change} WHERE id = '{action}'",
        "SET ROLE wakeful_owner",
        "ALTER TABLE wakeful.chat_action ENABLE TRIGGER USER",
        "RESET ROLE",
    ):
        conn.execute(statement)
