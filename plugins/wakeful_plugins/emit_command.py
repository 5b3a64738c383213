"""``wakeful emit``: what an agent says while it runs, by files alone."""

from __future__ import annotations

import os

import click

from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation


@command("emit")
@click.argument("type", metavar="TYPE")
@click.argument("body", metavar="[BODY]", default="{}")
@click.option("--key", metavar="TEXT", help="Publish once, however often this is called with the same key.")
@click.option("--generation", metavar="TOKEN", help="Whose event it is; else WAKEFUL_INSTANCE.")
@click.option("--root", "given", metavar="DIR", help="The coordination root; else WAKEFUL_COORD.")
@pass_invocation
def emit(
    invocation: Invocation, type: str, body: str, key: str | None, generation: str | None, given: str | None
) -> None:
    """Publish an event of this agent's run: spend, comment, status, or a type of your own.

    BODY is a JSON object, @FILE to read one, or @- for standard input. Prints the event's id. When this returns, the
    event survives kill -9 and power loss; neither the database nor the scheduler needs to be up. The database takes
    spend, comment and status; a type of your own stays in the files. Exit code 4: this run's generation is over,
    stand down.
    """
    from wakeful.cli import parameters
    from wakeful.errors import InvalidInput
    from wakeful_coordination import Generation
    from wakeful_plugins import emission
    from wakeful_plugins.coordination_root import named_root, opened, translated

    said = emission.check_body(type, parameters.json_value(body, emission.EXAMPLE))
    path = named_root(given)
    token = generation or os.environ.get("WAKEFUL_INSTANCE")
    if path is None or not token:
        absent = "WAKEFUL_COORD" if path is None else "WAKEFUL_INSTANCE"
        option = "--root DIR" if path is None else "--generation TOKEN"
        raise InvalidInput(f"{absent} is not set", hint=f"a run's processes have it; elsewhere give {option}")
    with translated():
        captured = Generation.parse(token)
    with opened(path) as root:
        made = emission.emit(root, captured, type, said, key=key)
    invocation.answer({"txid": made.txid, "repeated": made.repeated}, made.txid)
