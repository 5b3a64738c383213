"""Recurring wakes for wakeful: a cron expression, a time zone, and what becomes of ticks that were missed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wakeful import hookimpl

if TYPE_CHECKING:
    import click

    from wakeful.owners import Owner


@hookimpl
def register_owners() -> Iterable[Owner]:
    """Add the owner of cron wakes."""
    from wakeful_cron.catch_up import Crons

    return [Crons()]


@hookimpl
def register_commands(root: click.Group) -> None:
    """Add ``wakeful cron``."""
    from wakeful_cron.command import cron

    root.add_command(cron)
