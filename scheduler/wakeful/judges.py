"""Who judges a pass beside the core's gates: kinds' plugins and hosts' own gates, held to their contracts.

A plugin that raises, exits or answers nonsense spoils the pass with an ordinary error, so that the pass is halved
until the receipt at fault is alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from psycopg import Connection

from wakeful.errors import PluginError
from wakeful.outcomes import End, Proceed, Refusal, Verdict, Wait
from wakeful.owners import GateCheck, Owner
from wakeful.receipts import INTENT, Fact

A = TypeVar("A")

# How a deferred receipt may end without a run; linking is the admission's alone.
ENDS = frozenset({"coalesced", "retired", "settled", "cancelled", "failed"})
# How an intent may end without one.
INTENT_ENDS = frozenset({"coalesced", "skipped", "retired", "failed"})
# Seconds that one answer may take. The pass holds locks meanwhile, and the server ends what idles in a transaction.
PATIENCE = 5.0
# Seconds for which a plugin that took longer is not asked: else it alone would fill the owners' time.
REST = 60.0


class Judges:
    """The loaded plugins as judges.

    Arguments:
        owners: each kind is judged by the one that lists it.
        gates: hosts' own gates, in their order.
        monotonic: seconds of a clock that never goes back.
    """

    def __init__(
        self,
        owners: Iterable[Owner],
        gates: Sequence[GateCheck] = (),
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._resting: dict[str, float] = {}
        loaded = tuple(owners)
        self._timing: dict[str, Owner] = {owner.name: owner for owner in loaded}
        self._judges: dict[str, Owner] = {kind: owner for owner in loaded for kind in owner.kinds}
        self._gates = tuple(gates)
        self.payload_kinds = sorted(kind for kind, o in self._judges.items() if getattr(o, "reads_payload", False))

    def verdicts(self, facts: Sequence[Fact]) -> dict[UUID, Verdict]:
        """Return the verdict on each receipt whose kind has a judge.

        Where a receipt is timed by another owner than its kind's plugin, that one is asked first; the kind's plugin
        judges what it lets proceed.

        Raises:
            PluginError: a plugin broke its contract.
        """
        verdicts: dict[UUID, Verdict] = {}
        for owner, batch in self._batches(facts, first=True):
            for fact, verdict in self._asked_of(owner, batch):
                if not isinstance(verdict, Proceed):
                    verdicts[fact.id] = verdict
        for owner, batch in self._batches([fact for fact in facts if fact.id not in verdicts], first=False):
            for fact, verdict in self._asked_of(owner, batch):
                verdicts[fact.id] = verdict
        return verdicts

    def _batches(self, facts: Sequence[Fact], *, first: bool) -> list[tuple[Owner, list[Fact]]]:
        batches: dict[str, tuple[Owner, list[Fact]]] = {}
        for fact in facts:
            judge = self._judges.get(fact.kind)
            owner = self._timing.get(fact.owner) if first else judge
            if owner is not None and not (first and (owner is judge or judge is None)):
                batches.setdefault(owner.name, (owner, []))[1].append(fact)
        return list(batches.values())

    def _asked_of(self, owner: Owner, batch: Sequence[Fact]) -> list[tuple[Fact, Verdict]]:
        name = f"owner {owner.name}"
        answers = self._asked(name, batch, lambda: owner.judge(batch))
        return [(fact, _verdict(name, fact, answer)) for fact, answer in zip(batch, answers, strict=True)]

    def refusals(self, conn: Connection[Any], facts: Sequence[Fact]) -> dict[UUID, Refusal]:
        """Return the first refusal of a host's own gate for each receipt that one refuses.

        Raises:
            PluginError: a gate broke its contract.
        """
        refusals: dict[UUID, Refusal] = {}
        for gate in self._gates:
            asked = [fact for fact in facts if fact.id not in refusals]
            if not asked:
                break
            name = f"gate {gate.kind}"
            answers = self._asked(name, asked, lambda gate=gate, asked=asked: gate.judge(conn, asked))  # type: ignore[misc]  # mypy cannot infer such a lambda
            for fact, answer in zip(asked, answers, strict=True):
                if isinstance(answer, Refusal):
                    refusals[fact.id] = answer
                elif answer is not None:
                    raise PluginError(f"{name} answered {answer!r:.100}, which is no refusal")
        return refusals

    def _asked(self, name: str, facts: Sequence[Fact], ask: Callable[[], Sequence[A]]) -> Sequence[A]:
        began = self._monotonic()
        if began < self._resting.get(name, began):
            raise PluginError(
                f"{name} took more than {PATIENCE:g} s, and is not asked for a while", hint="make it quick"
            )
        try:
            return _asked(name, facts, ask)
        finally:
            if self._monotonic() - began > PATIENCE:
                self._resting[name] = self._monotonic() + REST


def _asked(name: str, facts: Sequence[Fact], ask: Callable[[], Sequence[A]]) -> Sequence[A]:
    try:
        answers = ask()
    except (SystemExit, GeneratorExit) as error:
        raise PluginError(f"{name} raised {type(error).__name__}", hint="a plugin may not end its host") from error
    if not isinstance(answers, Sequence) or len(answers) != len(facts):
        count = len(answers) if isinstance(answers, Sequence) else type(answers).__name__
        raise PluginError(
            f"{name} answered {count} verdicts for {len(facts)} facts",
            hint="judge() returns a sequence with one answer per fact, in order",
        )
    return answers


def _verdict(name: str, fact: Fact, answer: object) -> Verdict:
    ends = INTENT_ENDS if fact.state in INTENT else ENDS
    if isinstance(answer, End) and answer.state not in ends:
        raise PluginError(f"{name} ends a receipt as {answer.state!r:.100}", hint=f"one of {', '.join(sorted(ends))}")
    if not isinstance(answer, (Proceed, Wait, End)):
        raise PluginError(f"{name} answered {answer!r:.100}, which is no verdict")
    return answer
