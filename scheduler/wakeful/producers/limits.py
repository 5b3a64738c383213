"""Providers' limits, circuits, and how much may run at once."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def close_account(
    company: str,
    account: str,
    *,
    until: datetime | None = None,
    reason: str | None = None,
    actor: str | None = None,
) -> Statement:
    """Close a provider's account for all who use it.

    Arguments:
        account: ``PROVIDER/ACCOUNT``.
        until: when it reopens by itself; left out, when somebody clears it.
    """
    return call(
        "close_account",
        check.identifier("company", company),
        check.identifier("account", account),
        check.moment("until", until),
        check.text("reason", reason),
        check.actor(actor),
    )


def clear_account(company: str, account: str, *, actor: str | None = None) -> Statement:
    """Open a provider's account now; its sleepers start one after another."""
    return call(
        "clear_account", check.identifier("company", company), check.identifier("account", account), check.actor(actor)
    )


def set_account(
    company: str,
    account: str,
    *,
    resuming: str | None = None,
    starts_per_second: Decimal | int | None = None,
    actor: str | None = None,
) -> Statement:
    """Say how a provider's account resumes after a limit, and how fast its runs may start.

    Arguments:
        resuming: auto (left out), by the clock; or ask, when somebody clears it.
        starts_per_second: a steady rate; left out, any.
    """
    return call(
        "set_account",
        check.identifier("company", company),
        check.identifier("account", account),
        check.one_of("resuming", resuming, "auto", "ask"),
        check.money("starts_per_second", starts_per_second),
        check.actor(actor),
    )


def reset_circuit(company: str, agent: str, *, actor: str | None = None) -> Statement:
    """Let an agent run again whose last runs all ended alike."""
    return call(
        "reset_circuit", check.identifier("company", company), check.identifier("agent", agent), check.actor(actor)
    )


def limit_company(company: str, max_concurrent_runs: int | None, *, actor: str | None = None) -> Statement:
    """Say how many runs of a company may live at once; None: any number."""
    name, limit = check.whole("max_concurrent_runs", max_concurrent_runs, 1, 1_000_000)
    return call(
        "limit_company",
        check.identifier("company", company),
        (name, None if limit is ... else limit),
        check.actor(actor),
    )
