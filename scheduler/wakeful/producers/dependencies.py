"""Issues that wait for other issues."""

from __future__ import annotations

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def add_dependency(company: str, issue: str, blocker: str, *, actor: str | None = None) -> Statement:
    """Let an issue wait until another one is done. Unknown issues are created; a cycle is a conflict."""
    return call(
        "add_dependency",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.identifier("blocker", blocker),
        check.actor(actor),
    )


def remove_dependency(company: str, issue: str, blocker: str, *, actor: str | None = None) -> Statement:
    """Let an issue wait for another one no more."""
    return call(
        "remove_dependency",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.identifier("blocker", blocker),
        check.actor(actor),
    )
