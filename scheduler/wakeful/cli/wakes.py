"""``wakeful wake``, ``wakes``, ``rearm`` and ``retire``."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column
from wakeful.cli.parameters import Moment, json_value, moment, money
from wakeful.errors import InvalidInput

ENDS = {
    "linked": "ran",
    "coalesced": "merged",
    "settled": "merged",
    "retired": "will not run",
    "skipped": "will not run",
    "cancelled": "will not run",
    "failed": "will not run",
}


@command()
@click.argument("agent", metavar="AGENT")
@click.argument("issue", metavar="ISSUE", required=False)
@click.option("--at", type=moment, metavar="TIME", help="Not before +30s, +5m, +2h, or 2031-05-06T07:08:09+02:00.")
@click.option("--key", help="Makes it idempotent: the same key answers with the same wake for 7 days.")
@click.option("--text", help="Words for the agent: `text` in the payload.")
@click.option("--payload", type=json_value, metavar="JSON", help="Input for the agent, @FILE or @-; at most 64 KiB.")
@click.option("--priority", type=int, metavar="N", help="-1000 to 1000, lower first; else 0.")
@click.option("--estimate", type=money, metavar="AMOUNT", help="What the run is expected to cost.")
@pass_invocation
def wake(
    invocation: Invocation,
    agent: str,
    issue: str | None,
    at: Moment | None,
    key: str | None,
    text: str | None,
    payload: Any,
    priority: int | None,
    estimate: Decimal | None,
) -> None:
    """Ask for one run of an agent, on an issue or on none, now or later.

    A closed gate never refuses it: the wake is saved, and `wakeful why` says what it waits for.
    """
    from wakeful import listings, producers

    given = _payload(text, payload)
    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.request_wake(
            company,
            agent,
            issue,
            at.resolved(listings.now(conn)) if at else None,
            key=key,
            payload=given,
            priority=priority,
            estimate=estimate,
            actor=invocation.config.actor,
        )
        made = invocation.produce(conn, statement, company=company, agent=agent, issue=issue)
    words = {"inserted": "saved", "existing": f"exists already, {made.state}"}
    carried = f", run {made.run}" if made.run else ""
    invocation.say(f"{invocation.noun('wake')} {made.wake} {words.get(made.outcome, made.outcome)}{carried}")


def _payload(text: str | None, payload: Any) -> Any:
    if text is None:
        return ... if payload is None else payload
    if payload is None:
        return {"text": text}
    if not isinstance(payload, Mapping) or "text" in payload:
        raise InvalidInput("--text goes into a payload that is an object without a `text` of its own")
    return {**payload, "text": text}


@command()
@pages.by_state
@click.option("--agent", metavar="ID", help="Only of this agent.")
@click.option("--issue", metavar="ID", help="Only for this issue.")
@click.option("--gate", metavar="GATE[:KEY]", help="Only those that wait behind this gate.")
@click.option("--by", type=click.Choice(["created", "ended"]), default="created", show_default=True, help="The order.")
@pages.paged
@pass_invocation
def wakes(
    invocation: Invocation,
    states: str | None,
    agent: str | None,
    issue: str | None,
    gate: str | None,
    by: str,
    limit: int,
    after: str | None,
) -> None:
    """List wakes, newest first. --state also takes pending, final, ran, merged and will-not-run."""
    kind, _, key = (gate or "").partition(":")
    columns = [
        column("wake", "id"),
        column("kind"),
        ("is", standing),
        column("agent"),
        column("issue"),
        ("because", because),
        column("created", "created_at"),
    ]
    with invocation.connection() as conn:
        pages.show(
            invocation,
            conn,
            "wakes",
            columns,
            company=invocation.company(conn),
            states=states,
            agent=agent,
            issue=issue,
            gate=kind or None,
            key=key or None,
            by_end=by == "ended",
            limit=limit,
            after=after,
        )


def standing(row: Mapping[str, Any]) -> str:
    """Return what a listed wake is, in people's words: it waits, or one of three ends."""
    from wakeful.receipts import LIVE_RUN

    if row["state"] == "linked" and row["run_state"] in LIVE_RUN:
        return str(row["run_state"])
    return ENDS.get(row["state"]) or ("waiting" if row["wait_reason"] else "saved")


def because(row: Mapping[str, Any]) -> object:
    """Return the one thing to know about a listed wake."""
    if row["ended_at"] is None:
        due = f"due {rendering.moment(row['due_at'])}" if row["due_at"] else None
        return row["wait_reason"] or row["error"] or due
    return row["run"] or row["coalesced_into"] or row["reason"] or row["wait_message"]


@command()
@click.argument("wake_id", metavar="WAKE")
@click.option("--at", type=moment, metavar="TIME", help="Not before this time; else now.")
@pass_invocation
def rearm(invocation: Invocation, wake_id: str, at: Moment | None) -> None:
    """Save a wake that has ended once more: same input, same effect keys. A second time answers with the first."""
    from wakeful import explain, listings, producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        found = explain.find(conn, company, wake_id, "wake")
        due = at.resolved(listings.now(conn)) if at else None
        statement = producers.rearm_wake(company, found.id, at=due, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, rearm_of=found.id)
    invocation.say(
        f"{invocation.noun('wake')} {made.wake} {'saved' if made.outcome == 'inserted' else 'exists already'}"
    )


@command()
@click.argument("wake_id", metavar="WAKE")
@click.option("--reason", help="Why, for whoever asks later.")
@pass_invocation
def retire(invocation: Invocation, wake_id: str, reason: str | None) -> None:
    """Take a pending wake back. It stays as a tombstone; one that has ended stays as it is."""
    from wakeful import explain, producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        found = explain.find(conn, company, wake_id, "wake")
        statement = producers.retire_wake(company, found.id, reason=reason, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company)
    words = "taken back" if made.outcome == "merged" else f"had ended already, {made.state}"
    invocation.say(f"{invocation.noun('wake')} {found.id} {words}")
