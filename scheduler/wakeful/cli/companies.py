"""``wakeful company``."""

from __future__ import annotations

import sys

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column
from wakeful.errors import InvalidInput


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
    state = f", {made.state}" if made.state not in (None, "active") else ""
    invocation.say(f"{invocation.noun('company')} {company_id}: {made.outcome}{state}")


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


@company.command("archive")
@click.argument("company_id", metavar="ID")
@pass_invocation
def archive(invocation: Invocation, company_id: str) -> None:
    """Put a company away for good. What is saved in it is retired; runs in progress go on."""
    from wakeful import producers

    with invocation.connection() as conn:
        statement = producers.archive_company(company_id, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company_id)
    invocation.say(f"{invocation.noun('company')} {company_id}: {made.state}")


@company.command("limit")
@click.argument("company_id", metavar="ID")
@click.argument("runs", metavar="N|none")
@pass_invocation
def limit(invocation: Invocation, company_id: str, runs: str) -> None:
    """Say how many runs of a company may live at once; `none`: any number."""
    from wakeful import producers

    if runs != "none" and not (runs.isascii() and runs.isdigit()):
        raise click.UsageError("say a number of runs, or none")
    most = None if runs == "none" else int(runs)
    with invocation.connection() as conn:
        statement = producers.limit_company(company_id, most, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company_id)
    invocation.say(f"{invocation.noun('company')} {company_id}: {made.outcome}")


@company.command("export")
@click.argument("company_id", metavar="ID")
@pass_invocation
def export(invocation: Invocation, company_id: str) -> None:
    """Print every row of a company as JSON lines: {"table": …, "row": {…}}."""
    from wakeful import company_data, listings

    with invocation.connection() as conn:
        listings.enter_company(conn, company_id)
        for line in company_data.export(conn, company_id):
            click.echo(line)


@company.command("erase")
@click.argument("company_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def erase(invocation: Invocation, company_id: str, yes: bool) -> None:
    """Erase what people wrote and agents printed. Rows, states, times, money and hashes stay. Archive it first."""
    from wakeful import company_data

    if not yes:
        _ask(company_id)
    config = invocation.config
    executors = invocation.hooks().executors(config)
    with invocation.connection() as conn:
        done = company_data.erase(
            conn, company_id, host=config.host, data=config.data, actor=config.actor, executors=executors
        )
    for executor in executors:
        executor.close()
    if invocation.json:
        elsewhere = [{"host": host, "directory": directory} for host, directory in done.elsewhere]
        rendering.emit_json({"company": company_id, "deleted": done.deleted, "elsewhere": elsewhere})
        return
    click.echo(rendering.printable(f"{company_id}: erased, {done.deleted} run directories deleted here"))
    for host, directory in done.elsewhere:
        click.echo(rendering.printable(f"still there on host {host}: {directory}"))


def _ask(company_id: str) -> None:
    try:
        click.confirm(f"Erase all words of company {company_id}? This cannot be undone", abort=True, err=True)
    except click.Abort:
        if sys.stdin is not None and sys.stdin.isatty():
            raise
        click.echo(err=True)  # below the question
        raise InvalidInput("nothing is erased: nobody said yes", hint="if you mean it: --yes") from None
