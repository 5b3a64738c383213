"""``wakeful pause`` and ``wakeful resume``."""

from __future__ import annotations

import click

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.errors import InvalidInput

THINGS = ("company", "project", "agent")


@command()
@click.argument("thing", metavar="company|project|agent", type=click.Choice(THINGS))
@click.argument("id", metavar="ID")
@click.option("--reason", help="Why a company is paused.")
@pass_invocation
def pause(invocation: Invocation, thing: str, id: str, reason: str | None) -> None:
    """Admit nothing more for a company, a project or an agent. What is saved waits; what runs goes on."""
    from wakeful import producers

    actor = invocation.config.actor
    if reason is not None and thing != "company":
        raise InvalidInput(f"the pause of a {thing} has no reason of its own")
    with invocation.connection() as conn:
        if thing == "company":
            statement = producers.pause_company(id, reason=reason, actor=actor)
        elif thing == "project":
            statement = producers.pause_project(invocation.company(conn), id, actor=actor)
        else:
            statement = producers.pause_agent(invocation.company(conn), id, actor=actor)
        made = invocation.produce(conn, statement, **{thing: id})
    invocation.say(f"{invocation.noun(thing)} {id}: {made.state}")


@command()
@click.argument("what", metavar="[COMPANY | company|project|agent ID]", nargs=-1)
@pass_invocation
def resume(invocation: Invocation, what: tuple[str, ...]) -> None:
    """Lift a panic, or resume a company, a project or an agent. What waited for it is looked at at once.

    Alone: lifts the panic of the instance and of every company; a company that a person had paused before stays
    paused until it is named. With a company: lifts its panic and its pause.
    """
    from wakeful import producers

    if len(what) > 2 or (what and what[0] in THINGS and len(what) == 1) or (len(what) == 2 and what[0] not in THINGS):
        raise click.UsageError("name a company, or one of company, project, agent with its id; nothing lifts a panic")
    if not what:
        _lift(invocation)
        return
    thing, id = what if len(what) == 2 else ("company", what[0])
    actor = invocation.config.actor
    with invocation.connection() as conn:
        if thing == "company":
            statement = producers.resume_company(id, actor=actor)
        elif thing == "project":
            statement = producers.resume_project(invocation.company(conn), id, actor=actor)
        else:
            statement = producers.resume_agent(invocation.company(conn), id, actor=actor)
        made = invocation.produce(conn, statement, **{thing: id})
    invocation.say(f"{invocation.noun(thing)} {id}: {made.state}{rendering.as_before(made)}")


def _lift(invocation: Invocation) -> None:
    """Lift the panic of the instance and of every company; a person's pause stays."""
    from wakeful import panics, producers

    actor = invocation.config.actor
    resumed: list[str] = []
    left: list[str] = []
    with invocation.connection() as conn:
        lifted = producers.run(conn, producers.set_setting("panic", False, actor=actor)).outcome == "merged"
        for company, state in panics.panicked(conn):
            producers.run(conn, producers.lift_panic(company, actor=actor))
            (resumed if state == "active" else left).append(company)
    if invocation.json:
        rendering.emit_json({"panic": False, "lifted": lifted, "resumed": resumed, "left": left})
        return
    if lifted or resumed or left:
        click.echo(rendering.printable("panic lifted" + (f": {', '.join(resumed)}" if resumed else "")))
    else:
        click.echo("nothing is in panic")
    for company in left:
        click.echo(
            rendering.printable(f"{company} is paused or archived as well, and stays so: wakeful resume {company}")
        )
