"""The interrupt: stopping the turn that runs on an issue, so that what is saved there is delivered next."""

from __future__ import annotations

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def interrupt_issue(
    company: str, issue: str, *, agent: str | None = None, reason: str | None = None, actor: str | None = None
) -> Statement:
    """Ask the run that lives on an issue to stop, so that the messages saved for an agent there are delivered next.

    It returns at once, whoever listens. Only the person in whose name the messages would be delivered may interrupt for
    them. Where nothing is saved it is a Conflict: use ``stop_run``. Answers merged, with the wake and the run that was
    asked; existing where nothing was left to ask.

    Arguments:
        agent: whose messages; left out, those of the issue's assignee.
        reason: why, for whoever asks later.
        actor: the person, as ``user:ID``.
    """
    return call(
        "interrupt_issue",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.optional_identifier("agent", agent),
        check.text("reason", reason),
        check.actor(actor),
    )
