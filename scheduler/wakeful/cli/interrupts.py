"""``wakeful interrupt``."""

from __future__ import annotations

import click

from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation


@command()
@click.argument("issue", metavar="ISSUE")
@click.option("--agent", metavar="ID", help="Whose messages to deliver; else those of the issue's assignee.")
@click.option("--reason", help="Why, for whoever asks later.")
@pass_invocation
def interrupt(invocation: Invocation, issue: str, agent: str | None, reason: str | None) -> None:
    """Stop the run on an issue, so that the messages saved for its agent are delivered next.

    Only the person in whose name they are delivered may do so: say who you are with --as. The run's host ends its
    processes; the messages wait until they are gone. Given again while the run is stopping, it asks the host once
    more, up to three times in all.
    """
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        statement = producers.interrupt_issue(company, issue, agent=agent, reason=reason, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, issue=issue)
    wake = f"{invocation.noun('wake')} {made.wake}"
    if made.run is None:
        invocation.say(f"{wake}: nothing runs on {issue}, it is due now")
    elif made.outcome == "existing":
        run = f"{invocation.noun('run')} {made.run}"
        invocation.say(f"{wake}: {run} was asked three times; what it waits for: wakeful why {made.run}")
    else:
        invocation.say(f"{wake}: delivered when {invocation.noun('run')} {made.run} has ended")
