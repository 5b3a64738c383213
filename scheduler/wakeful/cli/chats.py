"""``wakeful chat``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column
from wakeful.cli.parameters import json_value

if TYPE_CHECKING:
    from uuid import UUID

    from psycopg import Connection

COLUMNS = (
    column("action", "id"),
    column("state"),
    column("agent"),
    column("issue"),
    column("source run"),
    column("asked by", "actor"),
    column("run"),
    column("made", "created_at"),
    column("settled", "settled_at"),
)


@noun()
def chat() -> None:
    """Retry a failed run through a chat, settle, list or show chat actions."""


@chat.command("retry")
@click.argument("run_id", metavar="RUN")
@click.option("--payload", type=json_value, metavar="JSON", help="New input, @FILE or @-; else that of the first wake.")
@click.option("--key", help="Makes it idempotent, beside a second retry of one run being the same anyway.")
@pass_invocation
def retry(invocation: Invocation, run_id: str, payload: Any, key: str | None) -> None:
    """Ask, as a person, for a failed run's retry in a chat. It waits until the chat's action is settled."""
    from wakeful import explain, producers

    actor = invocation.config.actor
    with invocation.connection() as conn:
        company = invocation.company(conn)
        found = explain.find(conn, company, run_id, "run").id
        given = ... if payload is None else payload
        statement = producers.open_chat_action(company, found, actor, payload=given, key=key)
        made = invocation.produce(conn, statement, company=company, retry_of=found)
    words = "saved" if made.outcome == "inserted" else f"exists already, {made.state}"
    carried = f", run {made.run}" if made.run else ""
    invocation.say(f"{invocation.noun('wake')} {made.wake} {words}{carried}")


@chat.command("begin")
@click.argument("action_id", metavar="ACTION")
@pass_invocation
def begin(invocation: Invocation, action_id: str) -> None:
    """Note that the chat has taken an action up."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        action = found_action(conn, company, action_id)
        statement = producers.begin_chat_action(company, action, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, action=action)
    invocation.say(f"chat action {action}: {made.state}{rendering.as_before(made)}")


@chat.command("settle")
@click.argument("action_id", metavar="ACTION")
@click.option("--processed", "state", flag_value="processed", help="The chat is through with it.")
@click.option("--failed", "state", flag_value="failed", help="The chat could not process it; nothing runs.")
@click.option("--run", "run_id", metavar="RUN", help="The run the chat itself led to; without it the retry goes on.")
@click.option("--error", help="Why it failed.")
@pass_invocation
def settle(invocation: Invocation, action_id: str, state: str | None, run_id: str | None, error: str | None) -> None:
    """Say, once, what an action came to: --processed or --failed."""
    from wakeful import explain, producers
    from wakeful.errors import InvalidInput

    if state is None:
        raise InvalidInput("say what the action came to", hint="--processed or --failed")
    with invocation.connection() as conn:
        company = invocation.company(conn)
        action = found_action(conn, company, action_id)
        run = None if run_id is None else explain.find(conn, company, run_id, "run").id
        actor = invocation.config.actor
        statement = producers.settle_chat_action(company, action, state, run=run, error=error, actor=actor)
        made = invocation.produce(conn, statement, company=company, action=action)
    led = f" by run {made.run}" if made.run else ""
    invocation.say(f"chat action {action}: {made.state}{led}{rendering.as_before(made)}")


@chat.command("list")
@pages.by_state
@pages.paged
@pass_invocation
def list_(invocation: Invocation, states: str | None, limit: int, after: str | None) -> None:
    """List chat actions, newest first."""
    with invocation.connection() as conn:
        company = invocation.company(conn)
        pages.show(invocation, conn, "chats", COLUMNS, company=company, states=states, limit=limit, after=after)


@chat.command("show")
@click.argument("action_id", metavar="ACTION")
@pass_invocation
def show(invocation: Invocation, action_id: str) -> None:
    """Show one chat action. What its retry waits for: wakeful why ACTION."""
    from wakeful import listings

    with invocation.connection() as conn:
        company = invocation.company(conn)
        row = listings.chat(conn, company, found_action(conn, company, action_id))
    if invocation.json:
        rendering.emit_json(row)
    else:
        rendering.record([(invocation.noun(key.replace("_", " ")), value) for key, value in row.items()])


def found_action(conn: Connection[Any], company: str, text: str) -> UUID:
    """Return the action that an id, or a part of one, means: actions bear the ids of their wakes."""
    from wakeful import explain

    return explain.find(conn, company, text, "wake").id
