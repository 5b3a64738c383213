"""``wakeful plugins``."""

from __future__ import annotations

import logging

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation


@command()
@pass_invocation
def plugins(invocation: Invocation) -> int:
    """Show all plugins in load order, with their distribution, and why one cannot be used.

    Exit code 1 when one cannot. WAKEFUL_PLUGINS_DISABLED names plugins to leave alone.
    """
    from wakeful import plugins as loading

    logging.getLogger(loading.__name__).setLevel(logging.ERROR)  # the table says it
    hooks = loading.load(invocation.config)
    hooks.owners()
    hooks.migrations()
    if invocation.json:
        rendering.emit_json({"rows": hooks.report, "after": None})
    else:
        rows = [[one.name, one.distribution, one.version, one.state, one.reason] for one in hooks.report]
        rendering.table(["plugin", "distribution", "version", "state", "reason"], rows)
    return 1 if any(one.state == "failed" for one in hooks.report) else 0
