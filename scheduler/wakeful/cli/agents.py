"""``wakeful agent``."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column
from wakeful.cli.parameters import command as command_line
from wakeful.cli.parameters import json_value, length, money, variable


@noun()
def agent() -> None:
    """Add, list or show agents. An agent is a command with the contract under which it runs."""


@agent.command("add")
@click.argument("agent_id", metavar="ID")
@click.option(
    "--run", "command", type=command_line, metavar="COMMAND", required=True, help="The command; no shell reads it."
)
@click.option("--name", help="What people call it.")
@click.option("--cwd", metavar="DIR", help="Where it runs; else in the run's own directory.")
@click.option(
    "--allow", multiple=True, metavar="NAME", help="A variable it inherits; else PATH HOME LANG LC_ALL TZ TMPDIR."
)
@click.option("--env", "values", type=variable, multiple=True, metavar="NAME=VALUE", help="A variable it gets.")
@click.option("--max-runtime", type=length, metavar="TIME", help="It is stopped after so long; else 1h.")
@click.option("--no-max-runtime", is_flag=True, help="It may run for ever.")
@click.option("--silence-limit", type=length, metavar="TIME", help="It is stopped when it printed nothing for so long.")
@click.option("--stop-grace", type=length, metavar="TIME", help="Between TERM and KILL; else 10s.")
@click.option("--max-attempts", type=int, metavar="N", help="How often one run may be started; else 3.")
@click.option("--max-concurrent", type=int, metavar="N", help="How many runs it may have at once; else any number.")
@click.option(
    "--estimate", type=money, metavar="AMOUNT", help="What a run is expected to cost; reserved when admitted."
)
@click.option("--provider", help="Whose limits it shares with others.")
@click.option("--account", help="Whose account at the provider.")
@click.option("--label", "labels", multiple=True, metavar="LABEL", help="What a host must carry to run it.")
@click.option("--host", "only_host", help="The one host that may run it.")
@click.option("--reports-to", metavar="AGENT", help="Another agent, for people.")
@click.option("--executor", help="Who starts it; else local processes.")
@click.option(
    "--session-policy",
    type=json_value,
    metavar="JSON",
    help="When a run goes on with the last one's session; else always.",
)
@click.option("--reader", type=json_value, metavar="JSON", help="How its output is read, or @FILE; else it is not.")
@pass_invocation
def add(
    invocation: Invocation,
    /,
    agent_id: str,
    command: tuple[str, ...],
    values: tuple[tuple[str, str], ...],
    allow: tuple[str, ...],
    max_runtime: timedelta | None,
    no_max_runtime: bool,
    max_concurrent: int | None,
    estimate: Decimal | None,
    labels: tuple[str, ...],
    only_host: str | None,
    **contract: Any,
) -> None:
    """Add an agent, or replace the contract of one that exists by what is given here and the defaults."""
    from wakeful import producers

    if no_max_runtime and max_runtime is not None:
        raise click.UsageError("--max-runtime and --no-max-runtime exclude each other")
    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        statement = producers.add_agent(
            company,
            agent_id,
            command,
            env_allow=allow or None,
            env_values=dict(values) or None,
            max_runtime=None if no_max_runtime else max_runtime or ...,
            max_concurrent_runs=max_concurrent,
            estimate=estimate,
            labels=labels or None,
            host=only_host,
            actor=invocation.config.actor,
            **contract,
        )
        made = invocation.produce(conn, statement, company=company, agent=agent_id)
    invocation.say(f"{invocation.noun('agent')} {agent_id}: {made.outcome}, {made.state}")


@agent.command("list")
@pages.by_state
@pages.paged
@pass_invocation
def list_(invocation: Invocation, states: str | None, limit: int, after: str | None) -> None:
    """List agents by id."""
    columns = [
        column("agent", "id"),
        column("name"),
        column("state"),
        column("reason", "pause_reason"),
        ("command", lambda row: " ".join(row["command"])),
    ]
    with invocation.connection() as conn:
        company = invocation.company(conn)
        pages.show(invocation, conn, "agents", columns, company=company, states=states, limit=limit, after=after)


@agent.command("show")
@click.argument("agent_id", metavar="ID")
@pass_invocation
def show(invocation: Invocation, agent_id: str) -> None:
    """Show one agent and its contract. Of its variables only the names are shown: values may be secrets."""
    from wakeful import listings

    with invocation.connection() as conn:
        row = listings.one(conn, "agents", invocation.company(conn), agent_id)
    if invocation.json:
        rendering.emit_json(row)
    else:
        rendering.record([(invocation.noun(key.replace("_", " ")), value) for key, value in row.items()])


@agent.command("approve")
@click.argument("agent_id", metavar="ID")
@pass_invocation
def approve(invocation: Invocation, agent_id: str) -> None:
    """Give the approval that an agent waits for. What is saved for it is looked at at once."""
    from wakeful import producers

    _change(invocation, agent_id, producers.approve_agent)


@agent.command("await-approval")
@click.argument("agent_id", metavar="ID")
@pass_invocation
def await_approval(invocation: Invocation, agent_id: str) -> None:
    """Let an agent wait for a person's approval. What is saved for it waits too."""
    from wakeful import producers

    _change(invocation, agent_id, producers.await_approval)


@agent.command("terminate")
@click.argument("agent_id", metavar="ID")
@pass_invocation
def terminate(invocation: Invocation, agent_id: str) -> None:
    """End an agent for good. What is saved for it is retired; runs in progress go on."""
    from wakeful import producers

    _change(invocation, agent_id, producers.terminate_agent)


@agent.command("archive")
@click.argument("agent_id", metavar="ID")
@pass_invocation
def archive(invocation: Invocation, agent_id: str) -> None:
    """Put an agent away for good, as terminate does."""
    from wakeful import producers

    _change(invocation, agent_id, producers.archive_agent)


@agent.command("reset-circuit")
@click.argument("agent_id", metavar="ID")
@pass_invocation
def reset_circuit(invocation: Invocation, agent_id: str) -> None:
    """Let an agent run again whose last runs all ended in one and the same way."""
    from wakeful import producers

    _change(invocation, agent_id, producers.reset_circuit, otherwise="circuit closed")


def _change(invocation: Invocation, agent_id: str, change: Any, *, otherwise: str = "") -> None:
    with invocation.connection() as conn:
        company = invocation.company(conn)
        statement = change(company, agent_id, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, agent=agent_id)
    invocation.say(f"{invocation.noun('agent')} {agent_id}: {made.state or otherwise}{rendering.as_before(made)}")
