"""``wakeful hold``, ``release`` and ``restore``."""

from __future__ import annotations

import click

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation


@command()
@click.argument("issue", metavar="ISSUE")
@click.option("--cancel", is_flag=True, help="Cancel the members too, and remember what they were.")
@click.option("--reason", help="For whoever asks why.")
@pass_invocation
def hold(invocation: Invocation, issue: str, cancel: bool, reason: str | None) -> None:
    """Hold an issue and everything below it. Runs in progress go on; what is saved waits."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        mode = "cancel" if cancel else "pause"
        statement = producers.hold_issue(company, issue, mode=mode, reason=reason, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, issue=issue)
    invocation.say(f"{invocation.noun('issue')} {issue}: held ({made.state}){rendering.as_before(made)}")


@command()
@click.argument("issue", metavar="ISSUE")
@pass_invocation
def release(invocation: Invocation, issue: str) -> None:
    """End the hold on an issue. What a cancel hold cancelled stays cancelled, for good now."""
    _end(invocation, issue, restore=False)


@command()
@click.argument("issue", metavar="ISSUE")
@pass_invocation
def restore(invocation: Invocation, issue: str) -> None:
    """End the hold on an issue, and put back the statuses that a cancel hold changed."""
    _end(invocation, issue, restore=True)


def _end(invocation: Invocation, issue: str, *, restore: bool) -> None:
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        end = producers.restore_hold if restore else producers.release_hold
        made = invocation.produce(
            conn, end(company, issue, actor=invocation.config.actor), company=company, issue=issue
        )
    invocation.say(f"{invocation.noun('issue')} {issue}: " + (made.state or "was not held"))
