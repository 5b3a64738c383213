"""``wakeful company``."""

from __future__ import annotations

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column


@noun()
def company() -> None:
    """Add, list or show companies. A company is a tenant: nothing crosses from one to another."""


@company.command("add")
@click.argument("company_id", metavar="ID")
@click.option("--name", help="What people call it.")
@pass_invocation
def add(invocation: Invocation, company_id: str, name: str | None) -> None:
    """Add a company. One that exists stays as it is."""
    from wakeful import producers

    with invocation.connection() as conn:
        made = invocation.produce(
            conn, producers.add_company(company_id, name=name, actor=invocation.config.actor), company=company_id
        )
    invocation.say(f"{invocation.noun('company')} {company_id}: {made.outcome}")


@company.command("list")
@pages.by_state
@pages.paged
@pass_invocation
def list_(invocation: Invocation, states: str | None, limit: int, after: str | None) -> None:
    """List companies by id."""
    columns = [
        column("company"),
        column("name"),
        column("state"),
        column("reason", "pause_reason"),
        column("panic since", "panic_at"),
    ]
    with invocation.connection() as conn:
        whose = invocation.optional_company(conn)
        pages.show(invocation, conn, "companies", columns, company=whose, states=states, limit=limit, after=after)


@company.command("show")
@click.argument("company_id", metavar="ID", required=False)
@pass_invocation
def show(invocation: Invocation, company_id: str | None) -> None:
    """Show one company."""
    from wakeful import listings

    with invocation.connection() as conn:
        whose = listings.enter_company(conn, company_id or invocation.config.company)
        row = listings.page(conn, "companies", company=whose).rows[0]
    if invocation.json:
        rendering.emit_json(row)
    else:
        rendering.record([(invocation.noun(key), value) for key, value in row.items()])
