"""Comments: saved for the agent that works on their issue, and changed or taken back while they wait."""

from __future__ import annotations

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
