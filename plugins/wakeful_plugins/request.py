"""The plain wake: now or at a time, with or without an issue. It judges authority only; all else is gates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wakeful import hookimpl

if TYPE_CHECKING:
    from wakeful.outcomes import Verdict
    from wakeful.owners import Owner
    from wakeful.receipts import Fact


class Requests:
    """Owner of wakes of kind ``request``."""

    name = "request"
    kinds = frozenset({"request"})

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        """Let every request proceed: whoever could save it had the authority."""
        from wakeful.outcomes import Proceed

        return [Proceed() for _ in facts]


@hookimpl
def register_owners() -> Iterable[Owner]:
    """Add the owner of plain wakes."""
    return [Requests()]
