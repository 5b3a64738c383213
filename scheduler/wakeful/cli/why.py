"""``wakeful why``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from wakeful.explain import Explanation

_VERBS = {
    "waiting": "waits",
    "sleeping": "sleeps",
    "due": "is due",
    "queued": "is queued",
    "running": "runs",
    "stopping": "is being stopped",
    "uncertain": "is uncertain",
}


@command()
@click.argument("id", metavar="WAKE|RUN")
@pass_invocation
def why(invocation: Invocation, id: str) -> None:
    """Say which gate a wake or a run waits behind, since when and what opens it; or which deadline; or how it ended.

    The last six digits of an id do, or the first, where they are clear.
    """
    from wakeful import explain

    with invocation.connection() as conn:
        told = explain.why(conn, invocation.optional_company(conn), id)
    if invocation.json:
        rendering.emit_json(told)
        return
    verb = _VERBS.get(told.standing, told.standing.value)
    click.echo(rendering.printable(f"{invocation.noun(told.kind)} {told.id} {verb}: {told.because}"))
    rendering.record([(invocation.noun(name), value) for name, value in facts(told)])
    for line in told.notes:
        click.echo(f"  ! {rendering.printable(line)}")


def facts(told: Explanation) -> list[tuple[str, object]]:
    """Return what a person may want to know beside the first line."""
    pending = told.ended_at is None
    silent = told.gate is not None and told.next_look is None
    return [
        ("company", told.company),
        ("agent", told.agent),
        ("issue", told.issue),
        ("project", told.project),
        ("gate", f"{told.gate} ({told.key}), {told.reason}" if told.gate and pending else None),
        ("reason", told.reason if not pending else None),
        ("since", told.since),
        ("opens on", told.opens_on if pending else None),
        ("reopens at", told.reopens_at if pending else None),
        ("next look", ("none: silent until then" if silent else told.next_look) if pending else None),
        ("comments", told.comments),
        ("answer of card", told.card),
        ("in the name of", told.authority),
        ("wake", told.wake),
        ("run", f"{told.run} ({told.run_state})" if told.run and told.run_state else told.run),
        ("carried by", told.into),
        ("retry of", told.retry_of),
        ("host", told.host),
        ("attempt", f"{told.attempt} of {told.max_attempts}" if told.attempt else None),
        ("linked" if told.kind == "wake" and told.run else "ended", told.ended_at),
        ("how", told.end),
        ("evidence", told.evidence),
        ("goes on as", told.successor),
        ("interrupted by", told.interrupt_by),
        ("stopped run", told.interrupted_run),
    ]
