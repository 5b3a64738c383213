"""``wakeful migrate``."""

from __future__ import annotations

import click

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import MIGRATION_DEADLINE, Invocation, pass_invocation


@command()
@click.option("--print", "print_", is_flag=True, help="Print the SQL instead, for a migration tool of your own.")
@pass_invocation
def migrate(invocation: Invocation, print_: bool) -> None:
    """Bring the schema up to date: the core's migrations, then the plugins'. Repeating it changes nothing."""
    from wakeful import migrations

    steps = invocation.hooks().migrations()
    if print_:
        click.echo(migrations.text(steps), nl=False)
        return
    from wakeful.connections import Session

    with invocation.server() as config:
        assert config.dsn is not None  # noqa: S101 - server() says so; for the type checker
        with Session(config.dsn, purpose="migrate") as session, session.autocommit(within=MIGRATION_DEADLINE) as conn:
            applied = migrations.apply(conn, steps)
    if invocation.json:
        rendering.emit_json(
            {"applied": [{"plugin": step.plugin, "version": step.version, "name": step.name} for step in applied]}
        )
        return
    for step in applied:
        click.echo(f"applied {step.plugin or 'wakeful'} {step.version:04d} {step.name}")
    if not applied:
        click.echo("nothing to do: the schema is up to date")
