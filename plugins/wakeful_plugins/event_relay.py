"""From the outbox into the database: each event becomes what a producer makes of it, exactly once, under the fence.

The transaction's id is the producer's key, so that an event told twice is recorded once. What the database cannot
take yet stays pending, with the reason.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from wakeful import fence, listings, producers
from wakeful.errors import Conflict, InvalidInput, NotFound, RunSuperseded
from wakeful_coordination import Committed, CoordinationError
from wakeful_plugins import emission
from wakeful_plugins.run_instance import execution

if TYPE_CHECKING:
    from psycopg import Connection

    from wakeful.executions import RunKey
    from wakeful_coordination import Coordination, Event, Quarantined
    from wakeful_coordination.relay import Relayed

ACTOR = "system:coordination"


class Undelivered(CoordinationError):
    """The database did not take an event: it stays pending, and hinders no other."""

    slug = "undelivered"


def relay_once(root: Coordination, conn: Connection[Any], company: str, *, late: bool = False) -> Relayed:
    """Settle everything pending in a company's root and deliver what the database has a producer for: one pass.

    Arguments:
        root: the company's root on this host.
        conn: an autocommit connection whose tenant is ``company``.
        late: also record what was spent under a generation that is over. Its run's end has settled that run's money
            by the run's own result and reservation, so this may count the same money twice: a person's decision.

    Raises:
        DatabaseUnavailable: no answer; what was not delivered is still pending.
        CoordinationError: the root cannot be used any more.
    """

    def deliver(outcome: Committed | Quarantined) -> None:
        if isinstance(outcome, Committed):  # what is in quarantine stays there, for people
            _deliver(conn, company, outcome.transaction.txid, outcome.transaction.event, late=late)

    return root.relay(deliver)


def _deliver(conn: Connection[Any], company: str, txid: str, event: Event, *, late: bool) -> None:
    if event.type != "spend":
        raise Undelivered(f"nothing in the database takes events of type {event.type} yet", hint="a later release may")
    key = execution(company, event.instance)
    try:
        if key is None:  # an instance of somebody else's: no run, no fence
            producers.run(conn, _spend(company, txid, event))
            return
        try:
            with fence.commit_under_claim(conn, fence.Claim(key.company, key.run, key.generation)):
                producers.run(conn, _spend(company, txid, event, run=key.run))
        except RunSuperseded:
            _deliver_late(conn, key, txid, event, late=late)
    except (InvalidInput, NotFound, Conflict) as refusal:
        raise Undelivered(refusal.message, hint=refusal.hint) from refusal


def _deliver_late(conn: Connection[Any], key: RunKey, txid: str, event: Event, *, late: bool) -> None:
    """Record spend of a generation that is over, if that is wanted: never for the run's newer attempt."""
    if listings.spend_is_recorded(conn, key.company, txid):
        return  # before the end, by a pass that was killed before it could forget the event
    run = listings.run(conn, key.company, key.run)
    newer = run["generation"] != key.generation
    if not late:
        over = f"is at generation {run['generation']}" if newer else f"has ended ({run['state']})"
        raise Undelivered(
            f"run {key.run} {over}: its end settles its money without this",
            hint="if its result did not count this, record it: wakeful coord relay --late",
        )
    whose = {name: run[name] for name in ("agent", "issue", "project")} if newer else {"run": key.run}
    producers.run(conn, _spend(key.company, txid, event, **whose))


def _spend(company: str, txid: str, event: Event, **whose: Any) -> producers.Statement:
    amount, provenance = emission.amount(event.body), emission.provenance(event.body)
    at = datetime.fromisoformat(event.at)
    return producers.add_spend(company, amount, key=txid, provenance=provenance, at=at, actor=ACTOR, **whose)
