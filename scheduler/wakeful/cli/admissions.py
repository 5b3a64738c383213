"""``wakeful admit``."""

from __future__ import annotations

import click

from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation


@command()
@click.argument("wake_id", metavar="WAKE")
@pass_invocation
def admit(invocation: Invocation, wake_id: str) -> None:
    """Have one pending wake judged now, whatever its deadline.

    It opens no gate: one that is closed refuses, with exit code 4, its name, and what opens it. The wake then waits
    behind that gate.
    """
    from wakeful import explain, release
    from wakeful.admission import Admission

    hooks = invocation.hooks()
    with invocation.connection() as conn:
        company = invocation.company(conn)
        found = explain.find(conn, company, wake_id, "wake").id
        release.note(conn, company, found, invocation.config.actor)
        run = release.release(Admission(hooks.owners(), hooks.gates()), conn, company, found)
    invocation.answer(
        {"company": company, "wake": found, "run": run},
        f"{invocation.noun('wake')} {found}: {invocation.noun('run')} {run}",
    )
