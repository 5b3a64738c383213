"""``wakeful runs``, ``run`` and ``retry``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import command, noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column
from wakeful.cli.parameters import json_value

if TYPE_CHECKING:
    from wakeful.meter import RunUsage


@command()
@pages.by_state
@click.option("--agent", metavar="ID", help="Only of this agent.")
@click.option("--issue", metavar="ID", help="Only on this issue.")
@click.option("--by", type=click.Choice(["created", "ended"]), default="created", show_default=True, help="The order.")
@pages.paged
@pass_invocation
def runs(
    invocation: Invocation,
    states: str | None,
    agent: str | None,
    issue: str | None,
    by: str,
    limit: int,
    after: str | None,
) -> None:
    """List runs, newest first. --state also takes live and ended."""
    columns = [
        column("run", "id"),
        column("state"),
        column("agent"),
        column("issue"),
        column("attempt"),
        ("because", because),
        column("host"),
        column("started", "started_at"),
        column("ended", "ended_at"),
    ]
    with invocation.connection() as conn:
        pages.show(
            invocation,
            conn,
            "runs",
            columns,
            company=invocation.company(conn),
            states=states,
            agent=agent,
            issue=issue,
            by_end=by == "ended",
            limit=limit,
            after=after,
        )


def because(row: Mapping[str, Any]) -> object:
    """Return the one thing to know about a listed run."""
    if row["uncertain_at"] is not None and row["ended_at"] is None:
        return "uncertain"
    if row["exit_code"]:
        return f"exit code {row['exit_code']}" + (f" ({row['end_class']})" if row["end_class"] != "failed" else "")
    if row["exit_signal"]:
        return f"signal {row['exit_signal']} ({row['end_class']})"
    return row["wait_reason"] or row["reason"] or (row["end_class"] if row["end_class"] != "ok" else None)


@noun()
def run() -> None:
    """List, show or stop runs, or let one take another issue."""


run.add_command(runs, "list")


@run.command("show")
@click.argument("run_id", metavar="RUN")
@pass_invocation
def show(invocation: Invocation, run_id: str) -> None:
    """Show one run, with its result and what it used."""
    from wakeful import explain, listings, meter

    with invocation.connection() as conn:
        company = invocation.company(conn)
        found = explain.find(conn, company, run_id, "run").id
        row, usage = listings.run(conn, company, found), meter.of_run(conn, company, found)
    if invocation.json:
        lines = [{"attempt": attempt, **rendering.plain_data(line)} for attempt, line in usage.lines]
        figures = {"money": usage.money, "provenance": usage.provenance, "counted": usage.counted, "lines": lines}
        rendering.emit_json({**row, "usage": figures if usage.attempts else None})
    else:
        pairs = [*row.items(), ("used", used(usage))]
        rendering.record([(invocation.noun(key.replace("_", " ")), value) for key, value in pairs])


def used(usage: RunUsage) -> str | None:
    """Return what a run has used. Unknown is said to be unknown, with what counts in its stead."""
    if not usage.attempts:
        return None
    if usage.money is None:
        return f"unknown; {rendering.text(usage.counted)} counted"
    return rendering.text(usage.money) + (" (estimated)" if usage.estimated else "")


@run.command("stop")
@click.argument("run_id", metavar="RUN")
@click.option("--reason", help="Why, for whoever asks later.")
@pass_invocation
def stop(invocation: Invocation, run_id: str, reason: str | None) -> None:
    """Ask a run to stop. Its host ends its processes; a queued one ends at once."""
    from wakeful import explain, producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        found = explain.find(conn, company, run_id, "run")
        statement = producers.stop_run(company, found.id, reason=reason, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company)
    invocation.say(f"{invocation.noun('run')} {found.id} is {made.state}")


@run.command("take")
@click.argument("run_id", metavar="RUN")
@click.argument("issue", metavar="ISSUE")
@click.option("--generation", type=int, help="The run's own; an older one may take nothing. Else the present one.")
@pass_invocation
def take(invocation: Invocation, run_id: str, issue: str, generation: int | None) -> None:
    """Let a live run work on another issue besides its own, until it ends or goes back to its queue."""
    from wakeful import conversations, explain, producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        found = explain.find(conn, company, run_id, "run").id
        current = conversations.generation(conn, company, found) if generation is None else generation
        statement = producers.take_issue(company, found, current, issue, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, issue=issue)
    invocation.say(
        f"{invocation.noun('run')} {found} has {invocation.noun('issue')} {issue} too{rendering.as_before(made)}"
    )


@command()
@click.argument("run_id", metavar="RUN")
@click.option("--payload", type=json_value, metavar="JSON", help="New input, @FILE or @-; else that of the first wake.")
@click.option("--key", help="Makes it idempotent, beside a second retry of one run being the same anyway.")
@pass_invocation
def retry(invocation: Invocation, run_id: str, payload: Any, key: str | None) -> None:
    """Ask for another run in place of one that did not succeed. What stands in its way makes it wait."""
    from wakeful import explain, producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        found = explain.find(conn, company, run_id, "run")
        statement = producers.request_retry(
            company,
            found.id,
            payload=... if payload is None else payload,
            key=key,
            actor=invocation.config.actor,
        )
        made = invocation.produce(conn, statement, company=company, retry_of=found.id)
    words = "saved" if made.outcome == "inserted" else f"exists already, {made.state}"
    carried = f", run {made.run}" if made.run else ""
    invocation.say(f"{invocation.noun('wake')} {made.wake} {words}{carried}")
