"""Facts for the pure tests: an ordinary receipt with every gate open, changed by name."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from wakeful.receipts import Fact

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)
WAKE = UUID("01970000-0000-7000-8000-000000000001")
RUN = UUID("01970000-0000-7000-8000-0000000000aa")

_OPEN: dict[str, Any] = {
    "company": "acme",
    "id": WAKE,
    "kind": "request",
    "state": "deferred",
    "version": 1,
    "priority": 0,
    "agent": "coder",
    "issue": "I-1",
    "project": "web",
    "actor_kind": "user",
    "actor": "ann",
    "created_at": NOW,
    "due_at": NOW,
    "failures": 0,
    "company_state": "active",
    "panic": False,
    "agent_state": "active",
    "project_archived": False,
    "issue_status": "todo",
    "now": NOW,
}


def fact(**changes: Any) -> Fact:
    """Return the ordinary fact with the given fields changed; all others are None."""
    unset = dict.fromkeys((field.name for field in fields(Fact)), None)
    return Fact(**{**unset, **_OPEN, **changes})
