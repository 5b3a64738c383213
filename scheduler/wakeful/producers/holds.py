"""Holds on an issue and everything below it."""

from __future__ import annotations

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def hold_issue(
    company: str, issue: str, *, mode: str | None = None, reason: str | None = None, actor: str | None = None
) -> Statement:
    """Hold an issue and all its descendants. Runs in progress go on.

    Arguments:
        mode: pause (left out), or cancel, which cancels the members too and remembers what they were.
    """
    return call(
        "hold_issue",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.one_of("mode", mode, "pause", "cancel"),
        check.text("reason", reason),
        check.actor(actor),
    )


def release_hold(company: str, issue: str, *, actor: str | None = None) -> Statement:
    """End the hold on an issue. What a cancel hold cancelled stays cancelled, and is terminal from now on."""
    return call(
        "release_hold", check.identifier("company", company), check.identifier("issue", issue), check.actor(actor)
    )


def restore_hold(company: str, issue: str, *, actor: str | None = None) -> Statement:
    """End the hold on an issue and put back the statuses that it cancelled, where nobody changed them since."""
    return call(
        "restore_hold", check.identifier("company", company), check.identifier("issue", issue), check.actor(actor)
    )
