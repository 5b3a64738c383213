"""``wakeful up``."""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any

import click

from wakeful import hookimpl
from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import MIGRATION_DEADLINE, Invocation, pass_invocation

if TYPE_CHECKING:
    from collections.abc import Callable

    from wakeful.owners import Observation


def scheduler_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every setting that only a scheduler has; `wakeful.config` reads their values."""
    flags = {
        "listen-dsn": "A direct connection, when the DSN goes through a pooler.",
        "host": "This machine's name, which its runs are known by.",
        "postgres": "Programs of the embedded server: wheel or path.",
        "plugins-strict": "true: refuse to start with a plugin that cannot be used.",
        "plugins-disabled": "Plugins to leave alone, comma between them.",
        "notify": "on: listen; poll: look again and again.",
        "poll": "Time between two looks.",
        "shutdown-grace": "How long a stop waits for what is under way.",
        "stop-children": "leave or kill running children at a stop.",
        "slots": "Children at once, 1 to 10000.",
    }
    for name, words in reversed(flags.items()):
        option = click.option(f"--{name}", metavar="VALUE", expose_value=False, callback=_remember, help=words)
        function = option(function)
    return function


def _remember(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).flags[str(option.name)] = value


@command()
@scheduler_settings
@click.option("--label", "labels", multiple=True, metavar="LABEL", help="What this host offers to agents that need it.")
@pass_invocation
def up(invocation: Invocation, labels: tuple[str, ...]) -> int:
    """Run the scheduler until SIGTERM or Ctrl-C; a second signal ends it at once.

    Prints one line per event. Without a DSN it starts, or joins, the embedded PostgreSQL and keeps its schema up to
    date. Runs outlive it: the next `wakeful up` on this host adopts them.
    """
    from wakeful.scheduler import Scheduler

    log_to_stderr(debug=invocation.debug)
    hooks = invocation.hooks([Narrator(as_json=invocation.json)])
    with invocation.server(keep=True) as config:
        if invocation.config.dsn is None:
            bring_up_to_date(config.dsn or "", hooks.migrations())
        return Scheduler(config, hooks, labels=labels).run_until_signalled()


def bring_up_to_date(dsn: str, steps: Any) -> None:
    """Apply what is missing to an embedded database, the plugins' migrations included."""
    from wakeful import migrations
    from wakeful.connections import Session

    with Session(dsn, purpose="migrate") as session, session.autocommit(within=MIGRATION_DEADLINE) as conn:
        migrations.apply(conn, steps)


def log_to_stderr(*, debug: bool) -> None:
    """Send the program's log, one line a record, to standard error; ``debug`` adds the traces of errors."""
    import logging

    class OneLine(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            """Return the record as one line."""
            if debug:
                return super().format(record)
            kind = record.exc_info[0] if record.exc_info else None
            brief = copy.copy(record)  # others may want the whole
            brief.exc_info = brief.exc_text = brief.stack_info = None
            line = rendering.printable(super().format(brief))
            return f"{line} ({kind.__name__})" if kind is not None else line

    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


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
