"""The interrupt: times receipts that a person wants delivered now, and those that a cancelled run names.

Only the person's command writes the marker, and only it asks a run to stop. From then on such a receipt is an ordinary
one: it waits for the run's end, the proof that its processes are gone, and its cleanup, as the gates say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from wakeful import hookimpl

if TYPE_CHECKING:
    from psycopg import Connection

    from wakeful.outcomes import Verdict
    from wakeful.owners import Owner
    from wakeful.receipts import Fact

FIRST = ("", UUID(int=0))


class Interrupts:
    """Times marked receipts of every kind; lets their kinds' plugins judge them."""

    name = "interrupt"
    kinds: frozenset[str] = frozenset()

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        """Let each receipt go on to the plugin of its kind, which reads the messages again and says in whose name.

        A marker whose person is no longer the authority gives no right, and takes none away: the receipt goes on as
        if it had never been marked.
        """
        from wakeful.outcomes import Proceed

        return [Proceed() for _ in facts]

    def named(self, conn: Connection[Any], after: Any, limit: int) -> Sequence[tuple[str, UUID, Any]]:
        """Return saved receipts that cancelled runs name and that nothing else would have looked at.

        Arguments:
            after: the last one's (company, run).
        """
        from wakeful import store

        company, run = after or FIRST
        key = {"company": company, "run": run, "limit": limit}
        return [(row.company, row.wake, (row.company, row.run)) for row in store.run(conn, "interrupts.named", key)]


@hookimpl
def register_owners() -> Iterable[Owner]:
    """Add the owner of interrupted receipts."""
    return [Interrupts()]
