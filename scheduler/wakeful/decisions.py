"""The decision of one pass: verdicts and gates turned into one outcome per receipt. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from wakeful.gates import LATE_ORDER, judge
from wakeful.ledger import Ledger
from wakeful.outcomes import Admit, End, Gone, Moved, Outcome, Refusal, Verdict, Wait, park
from wakeful.receipts import ADMISSIBLE, Fact


def is_due(fact: Fact, signalled: bool) -> bool:
    """Whether a receipt may be acted on now: its stored deadline has come, or the gate it waits on was signalled."""
    return (fact.due_at is not None and fact.due_at <= fact.now) or (signalled and fact.wait_gate is not None)


def waiting(fact: Fact, refusal: Refusal) -> Outcome:
    """Return how a refused receipt goes on: it ends where the gate can never open, else it parks."""
    if refusal.final:
        return End("retired", refusal.reason, refusal.message)
    return park(refusal, waits_on=(fact.wait_gate, fact.wait_key, fact.wait_reason), due_at=fact.due_at, now=fact.now)


def decide(
    facts: Sequence[Fact],
    verdicts: Mapping[UUID, Verdict],
    ledger: Ledger,
    further: Mapping[UUID, Refusal],
    signalled: frozenset[UUID],
    released: frozenset[UUID] = frozenset(),
) -> dict[UUID, Outcome]:
    """Decide a whole pass, in the order of the facts.

    Arguments:
        facts: of locked receipts, already in the order in which they may be admitted.
        verdicts: of the kinds' plugins, for every due receipt.
        ledger: the company's limits; counts what this pass admits.
        further: refusals of hosts' own gates, judged after the core's.
        signalled: receipts whose gate was signalled, so that their deadline need not have come.
        released: receipts that somebody wants released now, whatever their deadline.
    """
    outcomes: dict[UUID, Outcome] = {}
    for fact in facts:
        i = fact.id
        due = i in released or is_due(fact, i in signalled)
        outcomes[i] = _decide_one(fact, verdicts.get(i), ledger, further.get(i), due=due)
    return outcomes


def _decide_one(fact: Fact, verdict: Verdict | None, ledger: Ledger, further: Refusal | None, *, due: bool) -> Outcome:
    if fact.state not in ADMISSIBLE:
        return Gone()
    if not due:
        return Moved(fact.due_at)
    if verdict is None:
        return waiting(fact, no_plugin(fact))
    if isinstance(verdict, End):
        return verdict
    if isinstance(verdict, Wait):
        return waiting(fact, verdict.refusal)
    refusal = judge(fact, ledger) or further or judge(fact, ledger, LATE_ORDER)
    if refusal is not None:
        return waiting(fact, refusal)
    ledger.take(fact)
    return Admit(verdict.retry_of, verdict.comments, verdict.authority, verdict.successor)


def no_plugin(fact: Fact) -> Refusal:
    """(plugin, kind): nobody here judges this kind of wake."""
    message = f"no loaded plugin judges wakes of kind {fact.kind}"
    return Refusal("plugin", fact.kind, "plugin.missing", message, f"a scheduler that loads a plugin for {fact.kind}")
