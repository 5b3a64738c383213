"""Comments: saved for the agent that works on their issue, and changed or taken back while they wait."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def save_comment(
    company: str,
    issue: str,
    body: str,
    author: str,
    *,
    id: str | None = None,
    agent: str | None = None,
    run: UUID | str | None = None,
    key: str | None = None,
    actor: str | None = None,
) -> Statement:
    """Save a comment on an issue; the agent that has the issue is woken for it. A known id or key changes nothing.

    Merged: it joined a receipt that already waits. Without an agent it is saved, and whoever is assigned the issue is
    woken for it. An agent's own words do not wake it.

    Arguments:
        issue: created if nobody has mentioned it.
        body: 1 byte to 64 KiB.
        author: ``user:ID``, ``agent:ID`` or ``system:ID``.
        id: the host's own; left out, one is made.
        agent: who is woken; left out, the issue's assignee.
        run: the run that wrote it, if one did.
        key: makes saving idempotent where there is no id.
        actor: who saves it; left out, the author.
    """
    return call(
        "save_comment",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.body(body),
        check.author(author),
        check.optional_identifier("id", id),
        check.optional_identifier("agent", agent),
        check.optional_uuid("run", run),
        check.optional_identifier("key", key),
        check.actor(actor),
    )


def edit_comment(
    company: str, comment: str, body: str, revision: int, *, force: bool | None = None, actor: str | None = None
) -> Statement:
    """Edit a comment. While it waits in a queue the run will be given the new words, and the receipt waits anew.

    Raises on execution: Conflict, if it is already dispatching, of somebody else, or at another revision.

    Arguments:
        revision: the comment's revision that was seen.
        force: as an operator; actors of kind system are.
    """
    return call(
        "edit_comment",
        check.identifier("company", company),
        check.identifier("comment", comment),
        check.body(body),
        check.whole("revision", revision, 1),
        check.switch("force", force),
        check.actor(actor),
    )


def reorder_comments(
    company: str,
    queue: UUID | str,
    comments: Sequence[str],
    revision: str,
    *,
    force: bool | None = None,
    actor: str | None = None,
) -> Statement:
    """Put the comments of a queue into another order.

    Raises on execution: Conflict, if they are already dispatching, or are others by now.

    Arguments:
        queue: the receipt that holds them.
        comments: all of them, each once.
        revision: the queue's revision that was seen.
        force: as an operator; actors of kind system are.
    """
    return call(
        "reorder_comments",
        check.identifier("company", company),
        check.uuid("queue", queue),
        check.words("comments", comments),
        check.text("revision", revision),
        check.switch("force", force),
        check.actor(actor),
    )


def discard_comment(
    company: str, comment: str, revision: int, *, force: bool | None = None, actor: str | None = None
) -> Statement:
    """Take a comment out of its queue; it stays on the issue. With the last one the receipt, or its queued run, ends.

    Raises on execution: Conflict, if it is already dispatching, of somebody else, or at another revision.

    Arguments:
        revision: the comment's revision that was seen.
        force: as an operator; actors of kind system are.
    """
    return _of_comment("discard_comment", company, comment, revision, force, actor)


def delete_comment(
    company: str, comment: str, revision: int, *, force: bool | None = None, actor: str | None = None
) -> Statement:
    """Delete a comment: it leaves its queue, and no run is given it any more.

    Raises on execution: Conflict, if it is already dispatching, of somebody else, or at another revision.

    Arguments:
        revision: the comment's revision that was seen.
        force: as an operator; actors of kind system are.
    """
    return _of_comment("delete_comment", company, comment, revision, force, actor)


def _of_comment(
    verb: str, company: str, comment: str, revision: int, force: bool | None, actor: str | None
) -> Statement:
    return call(
        verb,
        check.identifier("company", company),
        check.identifier("comment", comment),
        check.whole("revision", revision, 1),
        check.switch("force", force),
        check.actor(actor),
    )


def take_issue(company: str, run: UUID | str, generation: int, issue: str, *, actor: str | None = None) -> Statement:
    """Let a live run work on another issue besides its own, until it ends or goes back to its queue.

    Raises on execution: Conflict, if the run is overtaken, or somebody else works on the issue.

    Arguments:
        generation: the run's own; an older one may take nothing.
    """
    return call(
        "take_issue",
        check.identifier("company", company),
        check.uuid("run", run),
        check.whole("generation", generation, 1),
        check.identifier("issue", issue),
        check.actor(actor),
    )
