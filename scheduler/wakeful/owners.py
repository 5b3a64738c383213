"""What a plugin hands to the core: owners, gates, migrations; and what observers are told.

An owner decides *when to look* and judges authority; whether something may run is decided by the gates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from uuid import UUID

    from psycopg import Connection

    from wakeful.outcomes import Refusal, Verdict
    from wakeful.receipts import Fact


class Owner(Protocol):
    """Times the wakes whose generated column ``owner`` bears its name, and judges the kinds it lists.

    Where it times a receipt of another plugin's kind, it is asked first, and the kind's plugin judges what it lets
    proceed. An owner that sets ``reads_payload = True`` is given its kinds' payloads, as JSON text.
    """

    name: str
    kinds: frozenset[str]

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        """Judge a batch of locked receipts of this owner's kinds: authority only, one verdict each, in order.

        Called inside the admission transaction, between lock and write; may not write or wait.
        """


@runtime_checkable
class NamesReceipts(Protocol):
    """What an owner may offer besides: receipts that other rows name, which are due at once, without grace.

    They are looked at after a start and a reconnect, in the background; later a signal tells of each.
    """

    def named(self, conn: Connection[Any], after: Any, limit: int) -> Sequence[tuple[str, UUID, Any]]:
        """Return one page of (company, wake, cursor), in the order of a key that never changes.

        Arguments:
            conn: outside a transaction; for reading.
            after: the cursor of the last receipt of the page before; None for the first page.
            limit: how many at most; a shorter page is the last.
        """


class GateCheck(Protocol):
    """A host's own gate: judged after the core's, in the admission transaction."""

    kind: str
    opens_on: str

    def judge(self, conn: Connection[Any], facts: Sequence[Fact]) -> Sequence[Refusal | None]:
        """Return, per fact, None (open) or a refusal. May read the host's tables through ``conn``."""


@dataclass(frozen=True, slots=True)
class PluginMigration:
    """One numbered SQL step of a plugin, in the plugin's own numbering."""

    plugin: str
    version: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Observation:
    """Something that was committed: ``what`` is a dotted name (``wake.parked``, ``run.ended``, …)."""

    what: str
    company: str
    at: datetime
    wake: str | None = None
    run: str | None = None
    generation: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
