"""Agents' events that were not recorded, and are let go."""

from __future__ import annotations

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def drop_event(
    company: str,
    event: str,
    reason: str,
    *,
    kind: str | None = None,
    instance: str | None = None,
    actor: str | None = None,
) -> Statement:
    """Say in the audit that an agent's event is dropped; whoever keeps the event forgets it after the commit.

    Arguments:
        reason: why, for people; 1 byte to 64 KiB.
        kind, instance: the event's type, and whose it was.
    """
    return call(
        "drop_event",
        check.identifier("company", company),
        check.identifier("event", event),
        check.text("reason", reason),
        check.text("kind", kind),
        check.text("instance", instance),
        check.actor(actor),
    )
