"""``wakeful doctor``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.errors import WakefulError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wakeful.diagnosis import Check

_MARKS = {"ok": "ok  ", "warning": "warn", "failed": "FAIL"}


@command()
@pass_invocation
def doctor(invocation: Invocation) -> int:
    """Try out everything wakeful needs: server, login, schema, notifications, locks, clocks, files, plugins.

    One line a check. Exit code 1 when one failed; a warning stops nothing.
    """
    checks = []
    for check in examine(invocation):
        checks.append(check)
        if not invocation.json:
            remedy = f"; {check.remedy}" if check.remedy else ""
            click.echo(rendering.printable(f"{_MARKS[check.verdict]}  {check.name.ljust(18)}  {check.found}{remedy}"))
    failed = any(check.verdict == "failed" for check in checks)
    if invocation.json:
        rendering.emit_json({"ok": not failed, "checks": checks})
    return 1 if failed else 0


def examine(invocation: Invocation) -> Iterator[Check]:
    """Yield the checks one after the other, those without a database first."""
    from wakeful import diagnosis
    from wakeful import plugins as loading
    from wakeful.diagnosis import Check

    yield diagnosis.data_directory(invocation.config.data)
    logging.getLogger(loading.__name__).setLevel(logging.ERROR)  # the checks say it
    owners = None
    try:
        hooks = loading.load(invocation.config)
        owners = [owner.name for owner in hooks.owners()]
    except WakefulError as error:
        yield Check("plugins", "failed", error.message, error.hint)
    else:
        for status in hooks.report:
            verdict = "failed" if status.state == "failed" else "ok"
            yield Check("plugin", verdict, str(status).removeprefix("plugin "))  # type: ignore[arg-type]  # one of two
    try:
        with invocation.server() as config:
            if invocation.config.dsn is None:
                with invocation.session():
                    pass  # joins the embedded server as any command does, which brings its schema up to date
            yield from diagnosis.database(config, config.dsn or "", owners)
    except WakefulError as error:
        yield Check("database", "failed", error.message, error.hint)
