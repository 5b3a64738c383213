"""``wakeful issue``."""

from __future__ import annotations

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column


@noun()
def issue() -> None:
    """Create, assign, list or show issues. At most one run works on an issue at a time."""


@issue.command("create")
@click.argument("issue_id", metavar="ID")
@click.option("--title", help="One line for people and the agent.")
@click.option("--body", help="What is to be done.")
@click.option("--project", metavar="ID", help="A project that exists.")
@click.option("--parent", metavar="ID", help="The issue above it.")
@click.option("--assign", "assignee", metavar="WHO", help="agent:ID or user:ID; an agent is woken for it.")
@pass_invocation
def create(
    invocation: Invocation,
    issue_id: str,
    title: str | None,
    body: str | None,
    project: str | None,
    parent: str | None,
    assignee: str | None,
) -> None:
    """Create an issue. One that exists stays as it is."""
    from wakeful import producers

    actor = invocation.config.actor
    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.create_issue(
            company, issue_id, title=title, body=body, project=project, parent=parent, actor=actor
        )
        with conn.transaction():  # created and assigned, or neither
            if assignee is None:
                made = invocation.produce(conn, statement, company=company, issue=issue_id)
                wake = None
            else:
                made = producers.run(conn, statement)
                assignment = producers.assign_issue(company, issue_id, assignee, actor=actor)
                wake = invocation.produce(conn, assignment, company=company, issue=issue_id).wake
    invocation.say(f"{invocation.noun('issue')} {issue_id}: {made.outcome}" + (f", wake {wake}" if wake else ""))


issue.add_command(create, "add")


@issue.command("assign")
@click.argument("issue_id", metavar="ID")
@click.argument("assignee", metavar="WHO", required=False)
@click.option("--nobody", is_flag=True, help="Take the assignment away.")
@pass_invocation
def assign(invocation: Invocation, issue_id: str, assignee: str | None, nobody: bool) -> None:
    """Assign an issue to agent:ID or user:ID. An agent is woken for it."""
    from wakeful import producers

    if nobody is (assignee is not None):
        raise click.UsageError("say who gets it, or --nobody")
    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.assign_issue(company, issue_id, assignee, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, issue=issue_id)
    who = assignee or "nobody"
    invocation.say(
        f"{invocation.noun('issue')} {issue_id} is {who}'s: {made.outcome}"
        + (f", wake {made.wake}" if made.wake else "")
    )


@issue.command("status")
@click.argument("issue_id", metavar="ID")
@click.argument("status", metavar="STATUS")
@pass_invocation
def status_(invocation: Invocation, issue_id: str, status: str) -> None:
    """Set an issue's status: backlog, todo, in_progress, in_review, blocked, done or cancelled."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.set_issue_status(company, issue_id, status, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, issue=issue_id)
    invocation.say(f"{invocation.noun('issue')} {issue_id}: {made.state}")


@issue.command("review")
@click.argument("issue_id", metavar="ID")
@click.argument("reviewer", metavar="WHO", required=False)
@click.option("--nobody", is_flag=True, help="Take the review away.")
@pass_invocation
def review(invocation: Invocation, issue_id: str, reviewer: str | None, nobody: bool) -> None:
    """Say who reviews an issue: agent:ID or user:ID. The status in_review wakes an agent, this does not."""
    from wakeful import producers

    if nobody is (reviewer is not None):
        raise click.UsageError("say who reviews it, or --nobody")
    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.assign_review(company, issue_id, reviewer, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, issue=issue_id)
    invocation.say(
        f"{invocation.noun('issue')} {issue_id}: {reviewer or 'nobody'} reviews it{rendering.as_before(made)}"
    )


@issue.command("list")
@pages.by_state
@pages.paged
@pass_invocation
def list_(invocation: Invocation, states: str | None, limit: int, after: str | None) -> None:
    """List issues by id."""
    columns = [
        column("issue", "id"),
        column("title"),
        column("status", "state"),
        column("assignee"),
        column("project"),
        column("run", "execution_run"),
    ]
    with invocation.connection() as conn:
        company = invocation.company(conn)
        pages.show(invocation, conn, "issues", columns, company=company, states=states, limit=limit, after=after)


@issue.command("show")
@click.argument("issue_id", metavar="ID")
@pass_invocation
def show(invocation: Invocation, issue_id: str) -> None:
    """Show one issue, with what waits for it and what ran on it last."""
    from wakeful import listings

    with invocation.connection() as conn:
        company = invocation.company(conn)
        row = listings.issue(conn, company, issue_id)
        waiting = listings.page(conn, "wakes", company=company, issue=issue_id, states=["pending"], limit=20).rows
        latest = listings.page(conn, "runs", company=company, issue=issue_id, limit=5).rows
    if invocation.json:
        rendering.emit_json({**row, "pending_wakes": waiting, "latest_runs": latest})
        return
    rendering.record([(invocation.noun(key.replace("_", " ")), value) for key, value in row.items()])
    for wake in waiting:
        words = wake["wait_message"] or wake["wait_reason"] or f"due {rendering.text(wake['due_at'])}"
        click.echo(f"  {invocation.noun('wake')} {wake['id']} waits: {rendering.printable(words)}")
    for run in latest:
        click.echo(f"  {invocation.noun('run')} {run['id']} {run['state']}")


@issue.command("depend")
@click.argument("issue_id", metavar="ID")
@click.argument("blocker", metavar="BLOCKER")
@pass_invocation
def depend(invocation: Invocation, issue_id: str, blocker: str) -> None:
    """Let an issue wait until another one is done."""
    _dependency(invocation, issue_id, blocker, wanted=True)


@issue.command("undepend")
@click.argument("issue_id", metavar="ID")
@click.argument("blocker", metavar="BLOCKER")
@pass_invocation
def undepend(invocation: Invocation, issue_id: str, blocker: str) -> None:
    """Let an issue wait for another one no more."""
    _dependency(invocation, issue_id, blocker, wanted=False)


def _dependency(invocation: Invocation, issue_id: str, blocker: str, *, wanted: bool) -> None:
    from wakeful import producers

    change = producers.add_dependency if wanted else producers.remove_dependency
    with invocation.connection() as conn:
        company = invocation.company(conn, known=not wanted)
        statement = change(company, issue_id, blocker, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, issue=issue_id)
    waits = "waits" if wanted else "does not wait"
    invocation.say(f"{invocation.noun('issue')} {issue_id} {waits} for {blocker}{rendering.as_before(made)}")
