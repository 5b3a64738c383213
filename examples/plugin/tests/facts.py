"""Facts of cron wakes, as a scheduler would read them."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from wakeful_cron.catch_up import Plan

from wakeful.receipts import Fact


def fact(plan: Plan | None, now: datetime, **changes: Any) -> Fact:
    """Return the fact of one due wake whose agent, company and issue are in order."""
    columns: dict[str, Any] = {field.name: None for field in fields(Fact) if field.default is MISSING}
    columns |= {
        "company": "acme",
        "id": UUID(int=1),
        "kind": "cron",
        "owner": "cron",
        "state": "deferred",
        "agent": "coder",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "company_state": "active",
        "agent_state": "active",
        "only_held": False,
        "project_archived": False,
        "payload": None if plan is None else json.dumps(plan.as_payload()),
        "due_at": None if plan is None else plan.tick,
        "now": now,
    }
    return Fact(**columns | changes)
