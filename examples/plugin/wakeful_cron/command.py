"""``wakeful cron``: add, list and stop schedules."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.parameters import json_value
from wakeful_cron.catch_up import CAP, HIGHEST_CAP, KIND, POLICIES

if TYPE_CHECKING:
    from psycopg import Connection

PREVIEW = 3
MOST = 1000
LEAST_DIGITS = 6


@noun()
def cron() -> None:
    """Wake agents again and again, by cron expressions."""


@cron.command()
@click.argument("agent", metavar="AGENT")
@click.argument("issue", metavar="ISSUE", required=False)
@click.option("--cron", "expression", metavar="EXPRESSION", required=True, help="Five fields, as '*/5 * * * *'.")
@click.option("--zone", metavar="ZONE", default="UTC", show_default=True, help="Whose clock, as Europe/Berlin.")
@click.option(
    "--catch-up",
    type=click.Choice(POLICIES),
    default="skip",
    show_default=True,
    help="Of the ticks that were missed none runs, one for all, or each up to --cap.",
)
@click.option(
    "--cap", type=click.IntRange(1, HIGHEST_CAP), default=CAP, show_default=True, help="How many all-capped runs."
)
@click.option("--key", help="Makes it idempotent: the same key answers with the schedule there is.")
@click.option("--payload", type=json_value, metavar="JSON", help="Input for the agent, @FILE or @-.")
@click.option("--priority", type=int, metavar="N", help="-1000 to 1000, lower first; else 0.")
@pass_invocation
def add(
    invocation: Invocation,
    agent: str,
    issue: str | None,
    expression: str,
    zone: str,
    catch_up: str,
    cap: int,
    key: str | None,
    payload: Any,
    priority: int | None,
) -> None:
    """Add a schedule: one run of an agent at each of its ticks, on an issue or on none."""
    import wakeful
    from wakeful import listings
    from wakeful.errors import InvalidInput
    from wakeful_cron.catch_up import Plan
    from wakeful_cron.ticks import schedule

    wanted = schedule(expression, zone)
    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        ticks = list(islice(wanted.ticks(listings.now(conn)), PREVIEW))
        if not ticks:
            raise InvalidInput(f"{expression!r} does not fire any more")
        statement = wakeful.request_wake(
            company,
            agent,
            issue,
            ticks[0],
            key=key,
            payload=Plan(wanted, ticks[0], catch_up, cap, payload).as_payload(),
            priority=priority,
            actor=invocation.config.actor,
            source="timer",
            kind=KIND,
        )
        shown = [wanted.local(tick) for tick in ticks]
        made = invocation.produce(conn, statement, company=company, agent=agent, issue=issue, ticks=shown)
    if made.outcome == "existing":
        invocation.say(f"this key has a {invocation.noun('wake')} already: {made.wake}, {made.state}")
        return
    invocation.say(f"saved, {invocation.noun('wake')} {made.wake} for its first tick")
    invocation.say(f"next: {', '.join(shown)}{', …' if len(ticks) == PREVIEW else ''}")


@cron.command("list")
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the schedules, each with the wake of its next tick, soonest first."""
    from wakeful.cli import rendering

    with invocation.connection() as conn:
        found = _pending(conn, invocation.company(conn))
    if invocation.json:
        rendering.emit_json({"rows": found, "after": None})
        return
    columns = ["wake", "agent", "issue", "cron", "zone", "tick", "catch_up", "key", "waits_for"]
    rows = [[row[column] for column in columns] for row in found]
    rendering.table([invocation.noun(column.replace("_", " ")) for column in columns], rows)
    if len(found) == MOST:
        rendering.note(f"only the first {MOST} are shown")


@cron.command()
@click.argument("wake_id", metavar="WAKE")
@click.option("--reason", help="Why, for whoever asks later.")
@pass_invocation
def stop(invocation: Invocation, wake_id: str, reason: str | None) -> None:
    """End a schedule by taking back the wake of its next tick. A run that has begun goes on.

    WAKE as `wakeful cron list` shows it, or its last six digits or more.
    """
    import wakeful
    from wakeful.errors import Conflict

    with invocation.connection() as conn:
        company = invocation.company(conn)
        wake = _named(_pending(conn, company), wake_id)
        statement = wakeful.retire_wake(company, wake, reason=reason, actor=invocation.config.actor)
        made = wakeful.run(conn, statement)
    if made.outcome != "merged":
        raise Conflict("its tick has come meanwhile, and the schedule goes on", hint="see: wakeful cron list")
    told = {"company": company, "outcome": made.outcome, "wake": wake, "state": made.state}
    invocation.answer(told, f"the schedule of {invocation.noun('wake')} {wake} has ended")


def _pending(conn: Connection[Any], company: str) -> list[dict[str, Any]]:
    from psycopg.rows import dict_row

    text = (resources.files(__package__) / "pending.sql").read_bytes()
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(text, {"company": company, "limit": MOST}).fetchall()


def _named(found: Sequence[dict[str, Any]], text: str) -> Any:
    from wakeful.errors import InvalidInput, NotFound

    digits = text.replace("-", "").lower()
    if len(digits) < LEAST_DIGITS:
        raise InvalidInput(f"{text!r} is too short to name a wake", hint=f"give {LEAST_DIGITS} digits or more")
    named = [row["wake"] for row in found if row["wake"].hex.endswith(digits) or row["wake"].hex.startswith(digits)]
    if not named:
        raise NotFound(f"no schedule waits as wake {text!r}", hint="each tick has another: wakeful cron list")
    if len(named) > 1:
        raise InvalidInput(f"{text!r} names several schedules", hint="give more digits")
    return named[0]
