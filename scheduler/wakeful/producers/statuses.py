"""Decisions on an issue's status: who reviews it, and the committer that says whom a change wakes."""

from __future__ import annotations

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call
from wakeful.receipts import ISSUE_STATUSES


def assign_review(company: str, issue: str, reviewer: str | None, *, actor: str | None = None) -> Statement:
    """Say who reviews an issue. Nobody is woken; the status ``in_review`` does that.

    Arguments:
        reviewer: ``agent:ID`` or ``user:ID``; None for nobody.
    """
    return call(
        "assign_review",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.reviewer(reviewer),
        check.actor(actor),
    )


def commit_status(
    company: str,
    issue: str,
    status: str,
    *,
    expected_version: int | None = None,
    key: str | None = None,
    review: str | None = None,
    agent: str | None = None,
    reason: str | None = None,
    actor: str | None = None,
) -> Statement:
    """Decide an issue's status: the change, the decision and whom it wakes are saved at once, or not at all.

    It wakes the reviewer of an issue in review; the assignee of one that becomes todo or in_progress, unless that agent
    is the actor; of an issue that ends, the parent's agent, and the agents whose last blocker it was. The answer names
    the first of these wakes. The same key, or the same status, answers existing.

    Arguments:
        status: one of ``wakeful.receipts.ISSUE_STATUSES``.
        expected_version: the issue's status_version that the decision was made on; another one is a conflict.
        key: makes the decision idempotent, for good.
        review: the review's id, so that two reviews of one issue are two; left out, the issue's id.
        agent: whom to wake in place of the assignee; with in_review, of the reviewer, which it becomes.
        reason: why, for people; at most 64 KiB.
    """
    return call(
        "commit_status",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.one_of("status", status, *ISSUE_STATUSES),
        check.whole("expected_version", expected_version, 1),
        check.optional_identifier("key", key),
        check.optional_identifier("review", review),
        check.optional_identifier("agent", agent),
        check.text("reason", reason),
        check.actor(actor),
    )
