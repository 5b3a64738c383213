"""``wakeful limit``: providers' limits."""

from __future__ import annotations

from decimal import Decimal

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column
from wakeful.cli.parameters import Moment, moment, money


@noun()
def limit() -> None:
    """List, close or clear providers' accounts. A closed one keeps all its agents asleep until it reopens."""


@limit.command("list")
@pages.paged
@pass_invocation
def list_(invocation: Invocation, limit: int, after: str | None) -> None:
    """List the accounts that were ever limited or set up."""
    columns = [
        column("account", "id"),
        column("closed", "closed_at"),
        column("until", "closed_until"),
        column("reason"),
        column("resuming"),
        column("starts per second"),
    ]
    with invocation.connection() as conn:
        pages.show(invocation, conn, "limits", columns, company=invocation.company(conn), limit=limit, after=after)


@limit.command("close")
@click.argument("account", metavar="PROVIDER/ACCOUNT")
@click.option("--until", type=moment, metavar="TIME", help="When it reopens; else when somebody clears it.")
@click.option("--reason", help="For whoever asks why.")
@pass_invocation
def close(invocation: Invocation, account: str, until: Moment | None, reason: str | None) -> None:
    """Close an account for all who use it."""
    from wakeful import listings, producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        at = None if until is None else until.resolved(listings.now(conn))
        statement = producers.close_account(company, account, until=at, reason=reason, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, account=account)
    invocation.say(f"account {account}: {made.state}{rendering.as_before(made)}")


@limit.command("clear")
@click.argument("account", metavar="PROVIDER/ACCOUNT")
@pass_invocation
def clear(invocation: Invocation, account: str) -> None:
    """Open an account now. Its sleepers start one after another, faster and faster."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        statement = producers.clear_account(company, account, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, account=account)
    invocation.say(f"account {account}: {made.state}{rendering.as_before(made)}")


@limit.command("set")
@click.argument("account", metavar="PROVIDER/ACCOUNT")
@click.option(
    "--ask", is_flag=True, help="After a limit stay closed until somebody clears it; else the clock reopens it."
)
@click.option("--starts-per-second", type=money, metavar="N", help="A steady rate; else any.")
@pass_invocation
def set_(invocation: Invocation, account: str, ask: bool, starts_per_second: Decimal | None) -> None:
    """Say how an account resumes after a limit, and how fast its runs may start."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        resuming = "ask" if ask else "auto"
        statement = producers.set_account(
            company, account, resuming=resuming, starts_per_second=starts_per_second, actor=invocation.config.actor
        )
        made = invocation.produce(conn, statement, company=company, account=account)
    invocation.say(f"account {account}: {made.outcome}")
