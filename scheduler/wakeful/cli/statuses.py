"""``wakeful status``."""

from __future__ import annotations

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column


@noun()
def status() -> None:
    """Decide the status of issues, and wake whom that concerns; list the decisions."""


@status.command("commit")
@click.argument("issue_id", metavar="ISSUE")
@click.argument("status_", metavar="STATUS")
@click.option("--expect", "expected", type=int, metavar="VERSION", help="Refuse another version of its status.")
@click.option("--key", help="The same key decides once.")
@click.option("--review", metavar="ID", help="Which review of the issue this is about.")
@click.option("--agent", metavar="ID", help="Whom to wake in place of the assignee, or as the reviewer.")
@click.option("--reason", help="Why, for whoever asks later.")
@pass_invocation
def commit(
    invocation: Invocation,
    issue_id: str,
    status_: str,
    expected: int | None,
    key: str | None,
    review: str | None,
    agent: str | None,
    reason: str | None,
) -> None:
    """Decide an issue's status: backlog, todo, in_progress, in_review, blocked, done or cancelled.

    The decision, the status and whom it wakes are saved together: the reviewer of an issue in review; the assignee of
    one to be worked on; of one that ends, the agents of its parent and of the issues that waited for it.
    """
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.commit_status(
            company,
            issue_id,
            status_,
            expected_version=expected,
            key=key,
            review=review,
            agent=agent,
            reason=reason,
            actor=invocation.config.actor,
        )
        made = invocation.produce(conn, statement, company=company, issue=issue_id)
    if made.wake is not None:
        woken = f", wake {made.wake}"
    elif made.outcome == "existing":
        woken = ""
    else:
        how = "; who reviews it: wakeful issue review ISSUE agent:ID" if made.state == "in_review" else ""
        woken = f"; no agent is woken{how}"
    invocation.say(f"{invocation.noun('issue')} {issue_id}: {made.state}{rendering.as_before(made)}{woken}")


@status.command("list")
@click.option("--issue", metavar="ID", help="Only those on this issue.")
@pages.paged
@pass_invocation
def list_(invocation: Invocation, issue: str | None, limit: int, after: str | None) -> None:
    """List the decisions, newest first."""
    columns = [
        column("issue"),
        column("from", "former"),
        column("to", "status"),
        column("version"),
        column("who", "actor"),
        column("why", "reason"),
        column("at"),
    ]
    with invocation.connection() as conn:
        company = invocation.company(conn)
        pages.show(invocation, conn, "decisions", columns, company=company, issue=issue, limit=limit, after=after)
