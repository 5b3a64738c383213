"""Task chats: a person's retry of a failed run through a chat, and what the chat makes of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def open_chat_action(
    company: str, run: UUID | str, actor: str, *, payload: Any = ..., key: str | None = None
) -> Statement:
    """Save a person's retry of a failed run, asked for in a chat: it waits until the chat's action is settled.

    The result names the action as ``wake``: both bear one id. A second retry of one run answers existing.

    Arguments:
        actor: the person, as ``user:ID``.
        payload: replaces the input of the first wake, if given.
        key: makes it idempotent for seven days.
    """
    return call(
        "open_chat_action",
        check.identifier("company", company),
        check.uuid("run", run),
        check.actor(actor),
        check.payload(payload),
        check.optional_identifier("key", key),
    )


def begin_chat_action(company: str, action: UUID | str, *, actor: str | None = None) -> Statement:
    """Note that the chat has taken an action up."""
    return call(
        "begin_chat_action",
        check.identifier("company", company),
        check.uuid("action", action),
        check.actor(actor),
    )


def settle_chat_action(
    company: str,
    action: UUID | str,
    state: str,
    *,
    run: UUID | str | None = None,
    error: str | None = None,
    actor: str | None = None,
) -> Statement:
    """Say, once, what an action came to. The same again answers existing, anything else is a conflict.

    Arguments:
        state: processed or failed.
        run: the run that the chat itself led to; without one a processed action's retry goes on like any other.
        error: why it failed, for people; at most 64 KiB.
    """
    return call(
        "settle_chat_action",
        check.identifier("company", company),
        check.uuid("action", action),
        check.one_of("state", state, "processed", "failed"),
        check.optional_uuid("run", run),
        check.text("error", error),
        check.actor(actor),
    )
