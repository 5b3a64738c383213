"""``wakeful drain`` and ``undrain``."""

from __future__ import annotations

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation


@command()
@pass_invocation
def drain(invocation: Invocation) -> None:
    """Admit and start nothing more, on every host, until undrained. Saving goes on; what runs goes on."""
    _set(invocation, draining=True)


@command()
@pass_invocation
def undrain(invocation: Invocation) -> None:
    """End a drain: everything saved meanwhile is looked at."""
    _set(invocation, draining=False)


def _set(invocation: Invocation, *, draining: bool) -> None:
    from wakeful import producers

    with invocation.connection() as conn:
        statement = producers.set_setting("draining", draining, actor=invocation.config.actor)
        made = invocation.produce(conn, statement)
    invocation.say(("draining" if draining else "working") + rendering.as_before(made))
