"""Wakes and the runs they become: requesting, retrying, re-arming, taking back, stopping."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call

SOURCES = ("assignment", "on_demand", "automation", "timer")


def request_wake(
    company: str,
    agent: str,
    issue: str | None = None,
    at: datetime | None = None,
    *,
    key: str | None = None,
    payload: Any = ...,
    priority: int | None = None,
    actor: str | None = None,
    source: str | None = None,
    estimate: Decimal | int | None = None,
    kind: str | None = None,
) -> Statement:
    """Ask for one run of an agent, now or later. A closed gate never refuses it: the wake is saved and waits.

    Arguments:
        issue: what to work on, created if nobody has mentioned it.
        at: not before this time, with a zone.
        key: makes the request idempotent for seven days: the same key answers existing.
        payload: any JSON value, at most 64 KiB; the agent finds it in its input.
        priority: -1000 to 1000, lower first; left out, 0.
        source: one of ``SOURCES``; left out, on_demand.
        estimate: money the run is expected to cost; left out, the agent's or the budget's own.
        kind: the name of a third-party plugin that judges the wake; left out, request.
    """
    return call(
        "request_wake",
        check.identifier("company", company),
        check.identifier("agent", agent),
        check.optional_identifier("issue", issue),
        check.moment("at", at),
        check.optional_identifier("key", key),
        check.payload(payload),
        check.whole("priority", priority, -1000, 1000),
        check.actor(actor),
        check.one_of("source", source, *SOURCES),
        check.money("estimate", estimate),
        check.optional_identifier("kind", kind),
    )


def request_retry(
    company: str, run: UUID | str, *, payload: Any = ..., key: str | None = None, actor: str | None = None
) -> Statement:
    """Save a retry of a run that did not succeed. A second retry of one run answers existing.

    Arguments:
        payload: replaces the input of the first wake, if given.
    """
    return call(
        "request_retry",
        check.identifier("company", company),
        check.uuid("run", run),
        check.payload(payload),
        check.optional_identifier("key", key),
        check.actor(actor),
    )


def rearm_wake(company: str, wake: UUID | str, *, at: datetime | None = None, actor: str | None = None) -> Statement:
    """Save a new wake with the input and the effect keys of one that has ended."""
    return call(
        "rearm_wake",
        check.identifier("company", company),
        check.uuid("wake", wake),
        check.moment("at", at),
        check.actor(actor),
    )


def retire_wake(company: str, wake: UUID | str, *, reason: str | None = None, actor: str | None = None) -> Statement:
    """Take a pending wake back."""
    return call(
        "retire_wake",
        check.identifier("company", company),
        check.uuid("wake", wake),
        check.text("reason", reason),
        check.actor(actor),
    )


def stop_run(company: str, run: UUID | str, *, reason: str | None = None, actor: str | None = None) -> Statement:
    """Ask a run to stop; a queued one ends at once."""
    return call(
        "stop_run",
        check.identifier("company", company),
        check.uuid("run", run),
        check.text("reason", reason),
        check.actor(actor),
    )
