"""Every duty once: how its receipts come to be, for the tests that go over all of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg import Connection
from tests.rows import end_run, linked_run

from wakeful import producers
from wakeful.producers import Statement
from wakeful.testing.conformance import Case, Place

Conn = Connection[Any]

PLUGINS = tuple(
    f"wakeful_plugins.{name}"
    for name in ("request", "task_retry", "saved_comments", "interrupt", "native_status", "execution_wait")
)


def wake_of(conn: Conn, statement: Statement) -> UUID:
    """Run a producer that saves a wake, and return the wake."""
    made = producers.run(conn, statement).wake
    assert made is not None
    return made


def request(conn: Conn, place: Place) -> UUID:
    """A plain request."""
    return wake_of(conn, producers.request_wake(place.company, place.agent, place.issue))


def run_on(conn: Conn, place: Place) -> UUID:
    """A queued run on the issue, as an admission would have made it, for a host that is not there."""
    with conn.transaction():  # nobody may admit the wake meanwhile
        run = linked_run(conn, request(conn, place))
        conn.execute("UPDATE wakeful.run SET host = 'elsewhere', host_fixed = true WHERE id = %s", (run,))
    return run


def failed_run_on(conn: Conn, place: Place) -> UUID:
    """A failed run on the issue."""
    run = run_on(conn, place)
    end_run(conn, run)
    return run


def retry(conn: Conn, place: Place) -> UUID:
    """A retry of a failed run."""
    return wake_of(conn, producers.request_retry(place.company, failed_run_on(conn, place)))


def retry_beside_source(conn: Conn, place: Place) -> tuple[UUID, UUID]:
    """A retry of a run that has not ended, and that run."""
    run = run_on(conn, place)
    return wake_of(conn, producers.request_retry(place.company, run)), run


def chat_retry(conn: Conn, place: Place) -> UUID:
    """A retry through a chat whose action was processed without a run of its own."""
    action = wake_of(conn, producers.open_chat_action(place.company, failed_run_on(conn, place), actor="user:ann"))
    producers.run(conn, producers.settle_chat_action(place.company, action, "processed"))
    return action


def comment(conn: Conn, place: Place) -> UUID:
    """A saved comment."""
    return wake_of(
        conn,
        producers.save_comment(place.company, place.issue, "please look", "user:ann", agent=place.agent),
    )


def card(conn: Conn, place: Place) -> UUID:
    """An answered card."""
    name = f"card of {place.issue}"
    producers.run(conn, producers.create_card(place.company, place.issue, place.agent, {"text": "which?"}, id=name))
    return wake_of(conn, producers.answer_card(place.company, name, {"text": "that"}, actor="user:ann"))


def wait(conn: Conn, place: Place) -> UUID:
    """A comment that waits for the end of a run, which then came while nobody listened."""
    run = run_on(conn, place)
    saved = comment(conn, place)
    producers.run(conn, producers.stop_run(place.company, run))
    return saved


def interrupt(conn: Conn, place: Place) -> UUID:
    """A comment whose author interrupts the run that it waits for."""
    run_on(conn, place)
    saved = comment(conn, place)
    producers.run(conn, producers.interrupt_issue(place.company, place.issue, agent=place.agent, actor="user:ann"))
    return saved


def intent(conn: Conn, place: Place) -> UUID:
    """What a status decision must wake."""
    return wake_of(conn, producers.commit_status(place.company, place.issue, "in_progress", agent=place.agent))


def to_a_person(conn: Conn, place: Place) -> None:
    """The issue goes to a person."""
    producers.run(conn, producers.assign_issue(place.company, place.issue, "user:ann"))


def without_comments(conn: Conn, place: Place) -> None:
    """Every comment on the issue is deleted."""
    rows = conn.execute("SELECT id, revision FROM wakeful.comment WHERE issue = %s", (place.issue,)).fetchall()
    for found, revision in rows:
        producers.run(conn, producers.delete_comment(place.company, found, revision, actor="user:ann"))


def without_card(conn: Conn, place: Place) -> None:
    """The answered card gives way to nothing: its issue ends."""
    producers.run(conn, producers.set_issue_status(place.company, place.issue, "done"))


CASES = {
    "request": Case(PLUGINS, "request", request),
    "task_retry": Case(PLUGINS, "task_retry", retry, spoil=to_a_person, certified=retry_beside_source),
    "settlement": Case(PLUGINS, "settlement", chat_retry, spoil=to_a_person),
    "saved_comments": Case(PLUGINS, "saved_comments", comment, spoil=without_comments),
    "card": Case(PLUGINS, "saved_comments", card, spoil=without_card),
    "execution_wait": Case(PLUGINS, "execution_wait", wait, spoil=without_comments),
    "interrupt": Case(PLUGINS, "interrupt", interrupt, spoil=without_comments),
    "native_status": Case(PLUGINS, "native_status", intent, spoil=to_a_person),
}
