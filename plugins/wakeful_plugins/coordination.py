"""File coordination on the command line: ``wakeful coord`` for operators, ``wakeful emit`` for agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import wakeful

if TYPE_CHECKING:
    import click


@wakeful.hookimpl
def register_commands(root: click.Group) -> None:
    """Add ``coord`` and ``emit``. What they work with is imported when one of them runs."""
    from wakeful_plugins.coord_command import coord
    from wakeful_plugins.emit_command import emit

    root.add_command(coord)
    root.add_command(emit)
