"""``wakeful audit``."""

from __future__ import annotations

from wakeful.cli import pages
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.pages import column


@command()
@pages.paged
@pass_invocation
def audit(invocation: Invocation, limit: int, after: str | None) -> None:
    """List who changed what, newest first. With --json: how they were known, before and after."""
    columns = [column("at"), column("actor"), column("verb"), column("target")]
    with invocation.connection() as conn:
        pages.show(invocation, conn, "audit", columns, company=invocation.company(conn), limit=limit, after=after)
