"""``wakeful project``."""

from __future__ import annotations

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column


@noun()
def project() -> None:
    """Add, list or show projects. An issue may belong to one; its budget and its pause hold for all its issues."""


@project.command("add")
@click.argument("project_id", metavar="ID")
@click.option("--name", help="What people call it.")
@pass_invocation
def add(invocation: Invocation, project_id: str, name: str | None) -> None:
    """Add a project. One that exists stays as it is."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.add_project(company, project_id, name=name, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, project=project_id)
    invocation.say(f"{invocation.noun('project')} {project_id}: {made.outcome}")


@project.command("list")
@pages.by_state
@pages.paged
@pass_invocation
def list_(invocation: Invocation, states: str | None, limit: int, after: str | None) -> None:
    """List projects by id."""
    columns = [
        column("project", "id"),
        column("name"),
        column("state"),
        column("reason", "pause_reason"),
        column("since", "paused_at"),
    ]
    with invocation.connection() as conn:
        company = invocation.company(conn)
        pages.show(invocation, conn, "projects", columns, company=company, states=states, limit=limit, after=after)


@project.command("show")
@click.argument("project_id", metavar="ID")
@pass_invocation
def show(invocation: Invocation, project_id: str) -> None:
    """Show one project."""
    from wakeful import listings

    with invocation.connection() as conn:
        row = listings.one(conn, "projects", invocation.company(conn), project_id)
    if invocation.json:
        rendering.emit_json(row)
    else:
        rendering.record([(invocation.noun(key), value) for key, value in row.items()])


@project.command("archive")
@click.argument("project_id", metavar="ID")
@pass_invocation
def archive(invocation: Invocation, project_id: str) -> None:
    """Put a project away for good. What is saved in it is retired."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        statement = producers.archive_project(company, project_id, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, project=project_id)
    invocation.say(f"{invocation.noun('project')} {project_id}: {made.state}")
