"""Plugins as judges: one that takes too long is left alone for a while, so that the others get on."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from tests.facts import RUN, fact

from wakeful.errors import PluginError
from wakeful.judges import PATIENCE, REST, Judges
from wakeful.outcomes import End, Proceed, Verdict
from wakeful.receipts import Fact


class Slow:
    name = "slow"
    kinds = frozenset({"slow"})

    def __init__(self) -> None:
        self.now = 0.0
        self.took = 0.0
        self.calls = 0

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        self.calls += 1
        self.now += self.took
        return [Proceed() for _ in facts]


def test_a_slow_owner_is_not_asked_for_a_while() -> None:
    slow = Slow()
    judges = Judges([slow], monotonic=lambda: slow.now)
    batch = [fact(kind="slow")]
    slow.took = PATIENCE
    assert len(judges.verdicts(batch)) == 1
    slow.took = PATIENCE + 0.1
    assert len(judges.verdicts(batch)) == 1
    with pytest.raises(PluginError, match="owner slow took more than 5 s"):
        judges.verdicts(batch)
    assert slow.calls == 2
    slow.now += REST
    slow.took = 0
    assert len(judges.verdicts(batch)) == 1


class Timer:
    """Times receipts of another plugin's kind."""

    name = "timer"
    kinds: frozenset[str] = frozenset()

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        return [Proceed() if one.agent == "coder" else End("cancelled", "timer.stopped") for one in facts]


class Kind:
    name = "kind"
    kinds = frozenset({"kind"})

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        return [Proceed(retry_of=RUN) for _ in facts]


def test_the_timing_owner_is_asked_first_and_the_kinds_plugin_judges_what_it_lets_proceed() -> None:
    judges = Judges([Timer(), Kind()])
    first, second, third = (UUID(int=i) for i in (1, 2, 3))
    verdicts = judges.verdicts(
        [
            fact(id=first, kind="kind", owner="timer"),
            fact(id=second, kind="kind", owner="timer", agent="other"),
            fact(id=third, kind="kind", owner="kind", agent="other"),
        ]
    )
    assert verdicts == {
        first: Proceed(retry_of=RUN),
        second: End("cancelled", "timer.stopped"),
        third: Proceed(retry_of=RUN),
    }
    assert judges.verdicts([fact(kind="nobodys", owner="timer")]) == {}
