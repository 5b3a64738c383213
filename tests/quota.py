"""A host's own gate over the host's own table, as the table of gates closes and opens it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from wakeful import hookimpl
from wakeful.outcomes import Refusal
from wakeful.receipts import Fact


def open_quota(conn: Connection[Any]) -> None:
    """Make the host's table; nobody's quota is used."""
    conn.execute("CREATE TABLE public.closed_quota (company text)")
    conn.execute("GRANT SELECT ON public.closed_quota TO PUBLIC")


class Quota:
    """A host's own gate over the host's own table."""

    kind = "quota"
    opens_on = "the next day"

    def judge(self, conn: Connection[Any], facts: Sequence[Fact]) -> Sequence[Refusal | None]:
        closed = {row[0] for row in conn.execute("SELECT company FROM public.closed_quota").fetchall()}
        refusal = Refusal("quota", "daily", "quota.used", "today's quota is used", self.opens_on)
        return [refusal if fact.company in closed else None for fact in facts]


class HostPlugin:
    @hookimpl
    def register_gates(self) -> list[Quota]:
        return [Quota()]
