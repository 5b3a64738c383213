"""``wakeful budget`` and ``wakeful spend``."""

from __future__ import annotations

from decimal import Decimal

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column
from wakeful.cli.parameters import Moment, moment
from wakeful.cli.parameters import money as amount_of


@noun()
def budget() -> None:
    """Set, raise or list budgets. POLICY is company, agent:ID or project:ID."""


@budget.command("set")
@click.argument("policy")
@click.argument("amount", type=amount_of, metavar="AMOUNT")
@click.option("--period", type=click.Choice(["month", "lifetime"]), help="What it is for; else month (UTC).")
@click.option("--warn", "warn_percent", type=int, metavar="PERCENT", help="When to warn; else 80.")
@click.option("--soft", is_flag=True, help="Only warn: admit runs past the limit, too.")
@click.option(
    "--estimate", type=amount_of, metavar="AMOUNT", help="What a run reserves if neither wake nor agent says."
)
@click.option("--on-overrun", type=click.Choice(["finish", "stop"]), help="A run past its reservation; else finish.")
@pass_invocation
def set_(
    invocation: Invocation,
    policy: str,
    amount: Decimal,
    period: str | None,
    warn_percent: int | None,
    soft: bool,
    estimate: Decimal | None,
    on_overrun: str | None,
) -> None:
    """Set what may be spent. What is not given here gets its default, whatever it was before."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.set_budget(
            company,
            policy,
            amount,
            period=period,
            warn_percent=warn_percent,
            hard_stop=not soft,
            estimate=estimate,
            on_overrun=on_overrun,
            actor=invocation.config.actor,
        )
        made = invocation.produce(conn, statement, company=company, policy=policy)
    invocation.say(f"{invocation.noun('budget')} {policy}: {made.outcome}")


@budget.command("raise")
@click.argument("policy")
@click.argument("amount", type=amount_of, metavar="AMOUNT", required=False)
@click.option("--by", "by_amount", type=amount_of, metavar="AMOUNT", help="By how much, instead of to how much.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say which wakes would run.")
@pass_invocation
def raise_(
    invocation: Invocation, policy: str, amount: Decimal | None, by_amount: Decimal | None, dry_run: bool
) -> None:
    """Raise a budget's limit to AMOUNT, or --by an amount. What waited for it is looked at at once."""
    from wakeful import producers

    if (amount is None) is (by_amount is None):
        raise click.UsageError("say to how much, or --by how much")
    if dry_run:
        _foretell(invocation, policy, amount, by_amount)
        return
    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.raise_budget(
            company, policy, amount=amount, by_amount=by_amount, actor=invocation.config.actor
        )
        made = invocation.produce(conn, statement, company=company, policy=policy)
    how = f"to {amount}" if amount is not None else f"by {by_amount}"
    invocation.say(f"{invocation.noun('budget')} {policy}: raised {how}{rendering.as_before(made)}")


def _foretell(invocation: Invocation, policy: str, amount: Decimal | None, by_amount: Decimal | None) -> None:
    from dataclasses import asdict

    from wakeful import forecast

    hooks = invocation.hooks()
    with invocation.connection() as conn:
        company = invocation.company(conn)
        told = forecast.of_raise(
            conn,
            company,
            policy,
            amount=amount,
            by_amount=by_amount,
            owners=hooks.owners(),
            gates=hooks.gates(),
        )
    if invocation.json:
        rendering.emit_json({"wakes": [asdict(one) for one in told]})
        return
    rows = [(one.wake, one.agent, one.issue, "runs" if one.runs else f"waits: {one.reason}") for one in told]
    rendering.table([invocation.noun("wake"), invocation.noun("agent"), invocation.noun("issue"), "then"], rows)


@budget.command("list")
@pages.paged
@pass_invocation
def list_(invocation: Invocation, limit: int, after: str | None) -> None:
    """List budgets, with what was spent in the present window and what admitted runs have reserved."""
    columns = [
        column("policy", "id"),
        column("limit", "amount"),
        column("spent"),
        column("reserved"),
        column("period"),
        column("hard", "hard_stop"),
    ]
    with invocation.connection() as conn:
        company = invocation.company(conn)
        pages.show(invocation, conn, "budgets", columns, company=company, limit=limit, after=after)


@noun()
def spend() -> None:
    """Record or list what was spent."""


@spend.command("add")
@click.argument("amount", type=amount_of, metavar="AMOUNT")
@click.option("--agent", metavar="ID", help="Which agent spent it.")
@click.option("--project", metavar="ID", help="For which project; else the issue's or the run's.")
@click.option("--issue", metavar="ID", help="For which issue.")
@click.option("--run", "run_id", metavar="RUN", help="Which run spent it.")
@click.option("--key", help="The same key is recorded once.")
@click.option("--provenance", type=click.Choice(["reported", "estimated", "unknown"]), help="Else reported.")
@click.option("--at", "at", type=moment, metavar="TIME", help="When; else now.")
@pass_invocation
def add(
    invocation: Invocation,
    amount: Decimal,
    agent: str | None,
    project: str | None,
    issue: str | None,
    run_id: str | None,
    key: str | None,
    provenance: str | None,
    at: Moment | None,
) -> None:
    """Record what was spent."""
    from wakeful import explain, listings, producers

    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.add_spend(
            company,
            amount,
            agent=agent,
            project=project,
            issue=issue,
            run=explain.find(conn, company, run_id, "run").id if run_id else None,
            key=key,
            provenance=provenance,
            at=at.resolved(listings.now(conn)) if at else None,
            actor=invocation.config.actor,
        )
        made = invocation.produce(conn, statement, company=company, amount=amount)
    invocation.say(f"spend of {amount}: {made.outcome}")


@spend.command("list")
@pages.paged
@pass_invocation
def list_spend(invocation: Invocation, limit: int, after: str | None) -> None:
    """List what was spent, newest first."""
    columns = [
        column("at"),
        column("amount"),
        column("agent"),
        column("project"),
        column("issue"),
        column("run"),
        column("provenance"),
    ]
    with invocation.connection() as conn:
        company = invocation.company(conn)
        pages.show(invocation, conn, "spend", columns, company=company, limit=limit, after=after)
