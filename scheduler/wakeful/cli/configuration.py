"""``wakeful config``."""

from __future__ import annotations

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation


@command("config")
@pass_invocation
def configuration(invocation: Invocation) -> None:
    """Show every setting of this process, and where its value comes from. Secrets are hidden."""
    from wakeful import config

    rows = config.shown(invocation.config)
    if invocation.json:
        rendering.emit_json({name: {"value": value, "origin": origin} for name, value, origin in rows})
    else:
        rendering.table(["setting", "value", "from"], rows)
