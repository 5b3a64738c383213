"""The execution wait: times every receipt that has a wait reason.

One grace after a first or changed reason, one revalidation, then silence until the gate's own producer or the
gate's own clock. The kind's plugin judges such a receipt; this owner only says when it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wakeful import hookimpl

if TYPE_CHECKING:
    from wakeful.outcomes import Verdict
    from wakeful.owners import Owner
    from wakeful.receipts import Fact


class Waits:
    """Times parked receipts of every kind; lets their kinds' plugins judge them."""

    name = "execution_wait"
    kinds: frozenset[str] = frozenset()

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        """Let each receipt go on to the plugin of its kind."""
        from wakeful.outcomes import Proceed

        return [Proceed() for _ in facts]


@hookimpl
def register_owners() -> Iterable[Owner]:
    """Add the owner that times waits."""
    return [Waits()]
