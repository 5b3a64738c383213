"""Several real processes change pairs of instances at once and are killed at random; nothing is ever half done."""

from __future__ import annotations

import contextlib
import random
from itertools import combinations

import pytest

from wakeful_coordination import Coordination
from wakeful_coordination.testing.children import Child

WORKER = """
import random
order = random.Random(int(sys.argv[2]))
c = Coordination.open(sys.argv[1])
carried = {name: c.generations.capture(name) for name in "abcd"}
while True:
    x, y = sorted(order.sample("abcd", 2))
    name = f"state-{x}{y}.json"
    with c.lease(x, y):
        if c.state(carried[x], name) != c.state(carried[y], name):
            say("torn", x, y)
    token = str(order.random())
    changes = [Mutation(x, name, token), Mutation(y, name, token)]
    t = c.transaction(carried[x], "note", {}, mutations=changes, others=[carried[y]])
    c.transact(t)
    say("done", t.txid)
"""


def run(coord: Coordination, path: str, kills: int, seed: int) -> None:
    order = random.Random(seed)  # noqa: S311 - a test repeats itself, it keeps no secret
    carried = {name: coord.generations.open(name) for name in "abcd"}
    acknowledged: set[str] = set()
    started = 0
    with contextlib.ExitStack() as stack:
        crowd: list[Child] = []
        for _ in range(kills):
            while len(crowd) < 3:
                started += 1
                crowd.append(stack.enter_context(Child(WORKER, path, str(seed * 1000 + started))))
            victim = order.choice(crowd)
            for _ in range(order.randrange(1, 6)):
                what, txid = victim.hear().split(maxsplit=1)
                assert what == "done", txid
                acknowledged.add(txid)
            # Its next transaction is under way by now, and ends wherever this finds it.
            victim.kill()
            crowd.remove(victim)
        for one in crowd:
            one.kill()
    assert coord.recover().left == ()
    heard: set[str] = set()
    while (relayed := coord.relay(lambda outcome: None)).committed:
        heard |= set(relayed.committed)
    assert relayed.quarantined == ()
    assert acknowledged <= heard
    for txid in heard:
        assert coord.authority.receipt(txid) is not None
    with coord.lease(*"abcd"):
        for x, y in combinations("abcd", 2):
            name = f"state-{x}{y}.json"
            assert coord.state(carried[x], name) == coord.state(carried[y], name)
    assert [sid for sid, _ in coord.survey.overview().sessions] == [coord.root.sid]


def test_invariants_01_09_10_and_12_hold_for_processes_killed_at_random(coord: Coordination, path: str) -> None:
    run(coord, path, kills=12, seed=1)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 8))
def test_invariants_01_09_10_and_12_hold_for_many_killed_at_random(coord: Coordination, path: str, seed: int) -> None:
    run(coord, path, kills=60, seed=seed)
