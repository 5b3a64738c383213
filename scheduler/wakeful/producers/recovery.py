"""What a person, or the host, must settle before an issue runs again."""

from __future__ import annotations

from uuid import UUID

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def open_recovery(company: str, issue: str, cause: str, *, actor: str | None = None) -> Statement:
    """Keep an issue from running until somebody has looked at it. The result names the action as ``wake``."""
    return call(
        "open_recovery",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.text("cause", cause),
        check.actor(actor),
    )


def resolve_recovery(
    company: str, action: UUID | str, *, outcome: str | None = None, actor: str | None = None
) -> Statement:
    """Resolve an open action.

    Arguments:
        outcome: resolved (left out); of an uncertain run: dead, it may run again, or lost, it will not.
    """
    return call(
        "resolve_recovery",
        check.identifier("company", company),
        check.uuid("action", action),
        check.one_of("outcome", outcome, "resolved", "dead", "lost"),
        check.actor(actor),
    )


def open_lease(
    company: str, lease: str, issue: str, *, run: UUID | str | None = None, actor: str | None = None
) -> Statement:
    """Note an environment (sandbox, worktree) that an issue occupies; it must be closed before the next run."""
    return call(
        "open_lease",
        check.identifier("company", company),
        check.identifier("lease", lease),
        check.identifier("issue", issue),
        check.optional_uuid("run", run),
        check.actor(actor),
    )


def close_lease(company: str, lease: str, *, outcome: str | None = None, actor: str | None = None) -> Statement:
    """Close an environment lease.

    Arguments:
        outcome: released (left out) or failed.
    """
    return call(
        "close_lease",
        check.identifier("company", company),
        check.identifier("lease", lease),
        check.one_of("outcome", outcome, "released", "failed"),
        check.actor(actor),
    )
