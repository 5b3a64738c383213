"""Click commands of wakeful's kind: each takes the common options, wherever on the line they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from wakeful.cli.invocation import Invocation

COMMON = "Every command also takes --json --company --as --dsn --data --config --debug; see wakeful --help."


def common_options(*, hidden: bool) -> list[click.Option]:
    """Return the options that every command takes."""
    names: list[tuple[list[str], dict[str, Any], str]] = [
        (["--json", "json_"], {"is_flag": True, "default": None}, "Print JSON."),
        (["--company"], {"metavar": "ID"}, "Which company; else WAKEFUL_COMPANY, else the only one."),
        (["--as", "actor"], {"metavar": "ACTOR"}, "Who acts: user:ID, agent:ID or system:ID; else the login."),
        (["--dsn"], {"metavar": "DSN"}, "The PostgreSQL server; else WAKEFUL_DSN, else an embedded one."),
        (["--data"], {"metavar": "DIR"}, "The data directory; else WAKEFUL_DATA."),
        (["--config"], {"metavar": "FILE"}, "Read this instead of the nearest wakeful.toml."),
        (["--debug"], {"is_flag": True, "default": None}, "Show the trace of an error."),
    ]
    return [
        click.Option(words, help=text, expose_value=False, hidden=hidden, callback=_remember, **more)
        for words, more, text in names
    ]


def _remember(context: click.Context, option: click.Parameter, value: object) -> None:
    if value is None:
        return
    invocation = context.ensure_object(Invocation)
    if option.name == "json_":
        invocation.json = True
    elif option.name == "debug":
        invocation.debug = True
    else:
        invocation.remember(str(option.name), value)


def _usage(param: click.Parameter, context: click.Context) -> list[str]:
    if isinstance(param, click.Argument) and not param.required and param.metavar and not param.metavar.startswith("["):
        return [f"[{param.metavar}]"]
    return param.get_usage_pieces(context)


class Leaf(click.Command):
    """A command that does something; its help does not repeat the common options."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.params = [*self.params, *common_options(hidden=True)]

    def collect_usage_pieces(self, context: click.Context) -> list[str]:
        """Return the words after the command's name; brackets around each argument that may be left out."""
        return [self.options_metavar or "", *(word for param in self.params for word in _usage(param, context))]

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Point at the common options."""
        super().format_epilog(context, formatter)
        formatter.write_paragraph()
        formatter.write_text(COMMON)


class Noun(click.Group):
    """Commands about one thing, listed in the order they are written in."""

    command_class = Leaf

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.params = [*self.params, *common_options(hidden=True)]

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Show people who name no subcommand which there are, line by line: an error's one line has no room for it."""
        if not args and self.no_args_is_help and not context.ensure_object(Invocation).json:
            click.echo(context.get_help(), err=True)
            context.exit(2)
        if not args and self.no_args_is_help:
            raise click.UsageError("which command is missing", context)
        return super().parse_args(context, args)

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the subcommands, unsorted."""
        return list(self.commands)


def command(name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a top-level command."""
    return click.command(name, cls=Leaf)


def noun(name: str | None = None, **how: Any) -> Callable[[Callable[..., Any]], click.Group]:
    """Make a top-level group of commands."""
    return click.group(name, cls=Noun, **how)
