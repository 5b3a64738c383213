"""``wakeful up``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click

from wakeful import hookimpl
from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import MIGRATION_DEADLINE, Invocation, pass_invocation

if TYPE_CHECKING:
    from wakeful.owners import Observation


@command()
@click.option("--label", "labels", multiple=True, metavar="LABEL", help="What this host offers to agents that need it.")
@pass_invocation
def up(invocation: Invocation, labels: tuple[str, ...]) -> int:
    """Run the scheduler until SIGTERM or Ctrl-C; a second signal ends it at once.

    Prints one line per event. Without a DSN it starts, or joins, the embedded PostgreSQL and keeps its schema up to
    date. Runs outlive it: the next `wakeful up` on this host adopts them.
    """
    from wakeful.scheduler import Scheduler

    log_to_stderr()
    hooks = invocation.hooks([Narrator(as_json=invocation.json)])
    with invocation.server() as config:
        if invocation.config.dsn is None:
            bring_up_to_date(config.dsn or "", hooks.migrations())
        return Scheduler(config, hooks, labels=labels).run_until_signalled()


def bring_up_to_date(dsn: str, steps: Any) -> None:
    """Apply what is missing to an embedded database, the plugins' migrations included."""
    from wakeful import migrations
    from wakeful.connections import Session

    with Session(dsn, purpose="migrate") as session, session.autocommit(within=MIGRATION_DEADLINE) as conn:
        migrations.apply(conn, steps)


def log_to_stderr() -> None:
    """Send the program's log, one line a record, to standard error."""
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


class Narrator:
    """An observer that prints what was committed, one line an event."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._printing = threading.Lock()

    @hookimpl
    def on_observation(self, observation: Observation) -> None:
        """Print one event."""
        with self._printing:  # several threads observe
            if self._as_json:
                rendering.emit_json(observation)
            else:
                click.echo(rendering.printable(line(observation)))


def line(observation: Observation) -> str:
    """Return one event as a line."""
    words = [rendering.moment(observation.at), observation.what, observation.company]
    about = {"wake": observation.wake, "run": observation.run} | dict(observation.details)
    words += [f"{name}={rendering.text(value)}" for name, value in about.items() if value is not None]
    return "  ".join(words)
