"""Issues: creating, assigning, moving on."""

from __future__ import annotations

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call
from wakeful.receipts import ISSUE_STATUSES


def create_issue(
    company: str,
    issue: str,
    *,
    title: str | None = None,
    body: str | None = None,
    project: str | None = None,
    parent: str | None = None,
    actor: str | None = None,
) -> Statement:
    """Create an issue. Existing: it stays as it is.

    Arguments:
        project: an existing project's id.
        parent: the issue above it, created if nobody has mentioned it.
    """
    return call(
        "create_issue",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.text("title", title),
        check.text("body", body),
        check.optional_identifier("project", project),
        check.optional_identifier("parent", parent),
        check.actor(actor),
    )


def assign_issue(company: str, issue: str, assignee: str | None, *, actor: str | None = None) -> Statement:
    """Assign an issue; an agent is woken for it.

    Arguments:
        assignee: ``agent:ID`` or ``user:ID``; None takes the assignment away.
    """
    return call(
        "assign_issue",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.assignee(assignee),
        check.actor(actor),
    )


def set_issue_status(company: str, issue: str, status: str, *, actor: str | None = None) -> Statement:
    """Set an issue's status: one of ``wakeful.receipts.ISSUE_STATUSES``."""
    return call(
        "set_issue_status",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.one_of("status", status, *ISSUE_STATUSES),
        check.actor(actor),
    )
