"""The program ``wakeful``: finds the command, runs it, and turns whatever happens into an exit code.

0 done, 1 failed, 2 wrong usage, 3 no database, 4 refused by a gate or in conflict. Help imports neither a command's
module nor a plugin; plugins are loaded when a command is looked up that wakeful itself does not have.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module

import click

from wakeful.cli.catalogue import CATALOGUE
from wakeful.cli.commands import common_options
from wakeful.cli.failures import INTERRUPTED, close_output, tell
from wakeful.cli.invocation import Invocation
from wakeful.errors import InvalidInput

TERMINATED = 128 + signal.SIGTERM


class Root(click.Group):
    """The top of the commands: its own by the catalogue, others by plugins."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return wakeful's own commands in the order of help, and those that plugins have added."""
        return [*(entry.name for entry in CATALOGUE), *sorted(self.commands)]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return one command, importing what it needs; plugins are asked only for what wakeful lacks."""
        for entry in CATALOGUE:
            if entry.name == name:
                module, _, attribute = entry.target.partition(":")
                found: click.Command = getattr(import_module(f"wakeful.cli.{module}"), attribute)
                return found
        if name not in self.commands and not context.resilient_parsing:
            context.ensure_object(Invocation).hooks().commands(self)
        return self.commands.get(name)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name, or suggest what was meant."""
        if self.get_command(context, args[0]) is None:
            import difflib

            close = difflib.get_close_matches(args[0], self.list_commands(context), n=1)
            meant = f"did you mean `wakeful {close[0]}`?" if close else "see: wakeful --help"
            raise InvalidInput(f"there is no command {args[0]!r}", hint=meant)
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in two sections, the daily ones first."""
        for title, first in (("Commands", True), ("More", False)):
            with formatter.section(title):
                formatter.write_dl([(entry.name, entry.summary) for entry in CATALOGUE if entry.first is first])


def root() -> Root:
    """Build the top of the commands."""
    return Root(
        "wakeful",
        help="wakeful keeps wakes: requests to run an agent that wait, saved, until nothing stands in their way.",
        params=[
            *common_options(hidden=False),
            click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_version,
                help="Print the version.",
            ),
        ],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no database, 4 refused by a gate or in conflict.",
        no_args_is_help=False,
        invoke_without_command=True,
        callback=_without_command,
    )


@click.pass_context
def _without_command(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _version(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        from importlib import metadata

        click.echo(f"wakeful {metadata.version('wakeful')}")
        context.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; None: this process's) and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    invocation = Invocation()
    invocation.json, invocation.debug = "--json" in given, "--debug" in given  # also for what cannot be parsed
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a narrow terminal is no reason to fail
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)
    try:
        code = _run(given, invocation)
        close_output()
        return code
    except BaseException as error:
        return _ended(error, invocation)


def _run(given: list[str], invocation: Invocation) -> int:
    for word in given:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"the argument {word!r} is not UTF-8") from None
    top = root()
    try:
        with top.make_context("wakeful", given, obj=invocation) as context:
            code = top.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    return code if isinstance(code, int) else 0


def _ended(error: BaseException, invocation: Invocation) -> int:
    """Return the exit code of a command that did not come to its end."""
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return INTERRUPTED
    try:
        close_output()
    except BrokenPipeError:
        pass  # said below, if it was not another error that came first
    except OSError as unwritten:
        error = unwritten
    if isinstance(error, BrokenPipeError):
        return 0  # a reader that has seen enough is no failure
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    return tell(error, as_json=invocation.json, debug=invocation.debug)


def _end(*_: object) -> None:
    # Unwinding lets go of the embedded server; the default action would leave it running.
    raise SystemExit(TERMINATED)


if __name__ == "__main__":
    sys.exit(main())
