"""``wakeful dispatch``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from wakeful.admission import PassResult


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one status intent, or how a dispatch receipt waits."""

    company: str
    wake: UUID
    state: str
    run: UUID | None = None
    into: UUID | None = None
    reason: str | None = None
    message: str | None = None
    due_at: datetime | None = None


@command()
@pass_invocation
def dispatch(invocation: Invocation) -> None:
    """Do one pass over the status intents that are due, at most 100, as a scheduler does.

    It may run beside schedulers, or without any. Without --company it is fair to all companies this login sees.
    """
    from wakeful import intents
    from wakeful.admission import PASS, Admission
    from wakeful.errors import PluginError

    hooks = invocation.hooks()
    owners = list(hooks.owners())
    if not any("native_status" in owner.kinds for owner in owners):
        raise PluginError("no loaded plugin judges status intents", hint="see: wakeful plugins")
    admission = Admission(owners, hooks.gates(), name="wakeful dispatch")
    dispatcher = admission.dispatcher(tell=True)
    lines: list[Row] = []
    with invocation.connection() as conn:
        found = intents.due(conn, invocation.optional_company(conn), PASS)
        for company, ids in found.items():
            lines += _lines(company, admission.dispatch(conn, company, ids, dispatcher))
    if invocation.json:
        rendering.emit_json({"wakes": lines})
    elif lines:
        rows = [(one.wake, one.company, one.state, one.run or one.into, one.message, one.due_at) for one in lines]
        words = [invocation.noun(word) for word in ("wake", "company", "state")]
        rendering.table([*words, "carried by", "why", "next look"], rows)
    else:
        invocation.say("no status intent is due")


def _lines(company: str, result: PassResult) -> list[Row]:
    from wakeful.outcomes import Admit, End, Moved, Park

    lines = []
    for wake, outcome in result.outcomes.items():
        match outcome:
            case Admit():
                lines.append(Row(company, wake, "linked", run=result.runs[wake]))
            case End():
                lines.append(Row(company, wake, outcome.state, None, outcome.into, outcome.reason, outcome.message))
            case Park(refusal=why):
                lines.append(Row(company, wake, "deferred", None, None, why.reason, why.message, outcome.due_at))
            case Moved():
                lines.append(Row(company, wake, "claimed", message="somebody else has it", due_at=outcome.due_at))
    lines += [Row(company, wake, "busy", message="somebody else holds it") for wake in result.busy]
    for wake, due_at in result.set_aside.items():
        lines.append(Row(company, wake, "error", message="it could not be dispatched: wakeful why", due_at=due_at))
    return lines
