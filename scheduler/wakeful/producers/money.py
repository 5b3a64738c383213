"""Budgets and what was spent. Money is exact, in the company's one currency."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from uuid import UUID

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def set_budget(
    company: str,
    policy: str,
    amount: Decimal | int,
    *,
    period: str | None = None,
    warn_percent: int | None = None,
    hard_stop: bool | None = None,
    estimate: Decimal | int | None = None,
    on_overrun: str | None = None,
    actor: str | None = None,
) -> Statement:
    """Set what may be spent. What is left out is set to its default, whatever it was before.

    Arguments:
        policy: ``company``, ``agent:ID`` or ``project:ID``.
        period: month (UTC) or lifetime; left out, month.
        warn_percent: 1 to 100; left out, 80.
        hard_stop: whether nothing is admitted past the limit; left out, yes.
        estimate: what a run reserves when neither its wake nor its agent says.
        on_overrun: finish or stop a run that spends more than it reserved; left out, finish.
    """
    return call(
        "set_budget",
        check.identifier("company", company),
        check.text("policy", policy),
        check.money("amount", amount),
        check.one_of("period", period, "month", "lifetime"),
        check.whole("warn_percent", warn_percent, 1, 100),
        check.switch("hard_stop", hard_stop),
        check.money("estimate", estimate),
        check.one_of("on_overrun", on_overrun, "finish", "stop"),
        check.actor(actor),
    )


def raise_budget(
    company: str,
    policy: str,
    *,
    amount: Decimal | int | None = None,
    by_amount: Decimal | int | None = None,
    actor: str | None = None,
) -> Statement:
    """Raise a budget's limit: to ``amount``, or by ``by_amount``."""
    return call(
        "raise_budget",
        check.identifier("company", company),
        check.text("policy", policy),
        check.money("amount", amount),
        check.money("by_amount", by_amount),
        check.actor(actor),
    )


def add_spend(
    company: str,
    amount: Decimal | int,
    *,
    agent: str | None = None,
    project: str | None = None,
    issue: str | None = None,
    run: UUID | str | None = None,
    key: str | None = None,
    provenance: str | None = None,
    at: datetime | None = None,
    actor: str | None = None,
) -> Statement:
    """Record what was spent; a run says on what, unless agent, project or issue do.

    Arguments:
        key: the same key is recorded once.
        provenance: reported, estimated or unknown; left out, reported.
        at: when; left out, now.
    """
    return call(
        "add_spend",
        check.identifier("company", company),
        check.money("amount", amount),
        check.optional_identifier("agent", agent),
        check.optional_identifier("project", project),
        check.optional_identifier("issue", issue),
        check.optional_uuid("run", run),
        check.optional_identifier("key", key),
        check.one_of("provenance", provenance, "reported", "estimated", "unknown"),
        check.moment("at", at),
        check.actor(actor),
    )
