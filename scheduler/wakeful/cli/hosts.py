"""``wakeful host``."""

from __future__ import annotations

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column


@noun()
def host() -> None:
    """List the hosts that schedulers run on, or declare one dead."""


@host.command("list")
@pages.paged
@pass_invocation
def list_(invocation: Invocation, limit: int, after: str | None) -> None:
    """List hosts by id. A scheduler that idles sends nothing, so an old `seen` proves nothing."""
    columns = [
        column("host", "id"),
        column("labels"),
        column("seen", "seen_at"),
        column("dead since", "dead_at"),
        column("declared by", "dead_by"),
    ]
    with invocation.connection() as conn:
        if invocation.config.company is not None:
            invocation.company(conn)  # a viewer's login sees hosts only from within a company
        pages.show(invocation, conn, "hosts", columns, limit=limit, after=after)


@host.command("dead")
@click.argument("host_id", metavar="HOST")
@pass_invocation
def dead(invocation: Invocation, host_id: str) -> None:
    """Say that a host is gone for good: your word is the evidence that its runs' processes are gone.

    Its running and uncertain runs go back to the queue; its late writes are refused.
    """
    from wakeful import producers

    with invocation.connection() as conn:
        statement = producers.declare_host_dead(host_id, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, host=host_id)
    invocation.say(f"host {host_id}: {made.state}{rendering.as_before(made)}")
