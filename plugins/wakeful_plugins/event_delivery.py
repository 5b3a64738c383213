"""One event into the database: it becomes what a producer makes of it, exactly once, under the fence.

The transaction's id is the producer's key, so an event that is told twice is recorded once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from wakeful import fence, producers, store
from wakeful.errors import Conflict, InvalidInput, NotFound, RunSuperseded
from wakeful_coordination import CoordinationError
from wakeful_plugins import emission
from wakeful_plugins.run_instance import execution

if TYPE_CHECKING:
    from psycopg import Connection

    from wakeful.executions import RunKey
    from wakeful.producers import Statement
    from wakeful_coordination import Event

ACTOR = "system:coordination"


class EventRefused(CoordinationError):
    """The database did not take an event, and will not by itself: it stays pending, and hinders no other."""

    slug = "undelivered"


def deliver(conn: Connection[Any], company: str, txid: str, event: Event, *, late: bool) -> None:
    """Record one event; on return it is committed.

    Arguments:
        conn: an autocommit connection, outside a transaction.
        late: also record what was spent under a generation that is over. Its run's end has settled that run's money
            by the run's own result and reservation, so this may count the same money twice: a person's decision.

    Raises:
        EventRefused: refused; why.
        DatabaseUnavailable: no answer; it may or may not have been recorded, and may be delivered again.
    """
    make = _MAKERS.get(event.type)
    if make is None:
        raise EventRefused(f"nothing in the database takes events of type {event.type}", hint="a later release may")
    key = execution(company, event.instance)
    try:
        emission.check_body(event.type, event.body)
        if key is None:  # an instance of somebody else's: no run, no fence
            producers.run(conn, make(company, txid, event, {"actor": ACTOR}))
            return
        try:
            with fence.commit_under_claim(conn, fence.Claim(key.company, key.run, key.generation)):
                producers.run(conn, make(company, txid, event, _writer(conn, key)))
        except RunSuperseded:
            _deliver_late(conn, key, txid, event, late=late)
    except (InvalidInput, NotFound, Conflict) as refusal:
        raise EventRefused(refusal.message, hint=refusal.hint) from refusal


def _writer(conn: Connection[Any], key: RunKey) -> dict[str, Any]:
    """Return whose run it is, inside its fence."""
    (row,) = store.run(conn, "relay.runs", {"company": key.company, "runs": [key.run]}).fetchall()
    return {"run": key.run, "agent": row.agent, "issue": row.issue, "actor": f"agent:{row.agent}"}


def _deliver_late(conn: Connection[Any], key: RunKey, txid: str, event: Event, *, late: bool) -> None:
    """Refuse what a generation said that is over; record its spend if that is wanted, never for the newer attempt."""
    if store.run(conn, "relay.recorded", {"company": key.company, "key": txid}).fetchall()[0].recorded:
        return  # before the end, by a pass that was killed before it could forget the event
    rows = store.run(conn, "relay.runs", {"company": key.company, "runs": [key.run]}).fetchall()
    if not rows:
        raise NotFound(f"run {str(key.run)!r} does not exist")
    (row,) = rows
    newer = row.generation != key.generation
    over = f"run {key.run} " + (f"is at generation {row.generation}" if newer else f"has ended ({row.state})")
    if event.type != "spend":
        raise EventRefused(f"{over}: what its generation {key.generation} said later is refused")
    if not late:
        raise EventRefused(
            f"{over}: its end settles its money without this",
            hint="if its result did not count this, record it: wakeful coord relay --late",
        )
    whose = {name: getattr(row, name) for name in ("agent", "issue", "project")} if newer else {"run": key.run}
    producers.run(conn, _spend(key.company, txid, event, {**whose, "actor": ACTOR}))


# ── what becomes of each type; `who` names the run, its agent and issue where the instance belongs to a run ───


def _spend(company: str, txid: str, event: Event, who: dict[str, Any]) -> Statement:
    whose: dict[str, Any] = {name: who[name] for name in ("agent", "issue", "project") if name in who}
    if "run" in who:
        whose = {"run": who["run"]}
    amount, provenance = emission.amount(event.body), emission.provenance(event.body)
    at = datetime.fromisoformat(event.at)
    return producers.add_spend(company, amount, key=txid, provenance=provenance, at=at, actor=ACTOR, **whose)


def _comment(company: str, txid: str, event: Event, who: dict[str, Any]) -> Statement:
    issue, text = _issue(event, who), str(event.body["text"])
    return producers.save_comment(company, issue, text, who["actor"], run=who.get("run"), key=txid)


def _status(company: str, txid: str, event: Event, who: dict[str, Any]) -> Statement:
    body = event.body
    version = body.get("expected_version")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise InvalidInput("expected_version is a whole number")
    reason = body.get("reason")
    return producers.commit_status(
        company,
        _issue(event, who),
        emission.status(body),
        key=txid,
        expected_version=version,
        review=emission.named(body, "review"),
        agent=emission.named(body, "agent"),
        reason=None if reason is None else str(reason),
        actor=who["actor"],
    )


def _issue(event: Event, who: dict[str, Any]) -> str:
    issue = emission.named(event.body, "issue") or who.get("issue")
    if issue is None:
        raise InvalidInput(f"a {event.type} needs an issue", hint="its run has none: name one in the event's body")
    return str(issue)


_MAKERS: dict[str, Callable[[str, str, Event, dict[str, Any]], Statement]] = {
    "spend": _spend,
    "comment": _comment,
    "status": _status,
}
