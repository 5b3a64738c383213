"""``wakeful recovery``."""

from __future__ import annotations

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column


@noun()
def recovery() -> None:
    """Open, list or resolve recovery actions: what somebody must settle before an issue runs again."""


@recovery.command("open")
@click.argument("issue", metavar="ISSUE")
@click.option("--cause", required=True, help="What is to be looked at.")
@pass_invocation
def open_(invocation: Invocation, issue: str, cause: str) -> None:
    """Keep an issue from running until somebody has looked at it."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        statement = producers.open_recovery(company, issue, cause, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, issue=issue)
    invocation.say(f"recovery action {made.wake}: {made.outcome}")


@recovery.command("resolve")
@click.argument("action", metavar="ACTION")
@click.option("--dead", "outcome", flag_value="dead", help="The uncertain run's processes are gone; it may run again.")
@click.option("--lost", "outcome", flag_value="lost", help="The uncertain run is lost; it will not run again.")
@pass_invocation
def resolve(invocation: Invocation, action: str, outcome: str | None) -> None:
    """Resolve an action. Of an uncertain run, say what became of it: your word is its evidence."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        statement = producers.resolve_recovery(company, action, outcome=outcome, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, action=action)
    invocation.say(f"recovery action {action}: {made.state}{rendering.as_before(made)}")


@recovery.command("list")
@pages.by_state
@pages.paged
@pass_invocation
def list_(invocation: Invocation, states: str | None, limit: int, after: str | None) -> None:
    """List recovery actions, newest first."""
    columns = [
        column("action", "id"),
        column("state"),
        column("issue"),
        column("run"),
        column("cause"),
        column("opened", "opened_at"),
    ]
    with invocation.connection() as conn:
        company = invocation.company(conn)
        pages.show(invocation, conn, "recoveries", columns, company=company, states=states, limit=limit, after=after)
