"""File coordination: ends of runs and their events, ``wakeful coord`` for operators, ``wakeful emit`` for agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import wakeful

if TYPE_CHECKING:
    import click

    from wakeful.attendants import Attendant
    from wakeful.config import Config


@wakeful.hookimpl
def register_attendants(config: Config) -> list[Attendant]:
    """Attend the ends of this host's runs, and deliver what its agents say."""
    from wakeful_plugins.run_ends import RunEnds

    return [RunEnds(config.data)]


@wakeful.hookimpl
def register_commands(root: click.Group) -> None:
    """Add ``coord`` and ``emit``. What they work with is imported when one of them runs."""
    from wakeful_plugins.coord_command import coord
    from wakeful_plugins.emit_command import emit

    root.add_command(coord)
    root.add_command(emit)
