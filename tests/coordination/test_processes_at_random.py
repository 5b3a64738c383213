"""Several real processes at once: stopped at random they exclude each other, killed at random nothing is half done."""

from __future__ import annotations

import contextlib
import random
import signal
from itertools import combinations

import pytest

from wakeful_coordination import Coordination
from wakeful_coordination.errors import LeaseBusy
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


HOLDERS = """
import fcntl, random
order = random.Random(int(sys.argv[2]))
c = Coordination.open(sys.argv[1])
witness = {name: os.open(f"{sys.argv[1]}-{name}", os.O_RDWR | os.O_CREAT, 0o600) for name in "abcd"}
def alone(names):
    for name in names:
        # A lock of its own, free while its owner holds the lease: whoever finds it taken is not alone.
        try: fcntl.flock(witness[name], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError: say("not alone in", name); raise SystemExit
for turn in range(int(sys.argv[3])):
    names = order.sample("abcd", order.randrange(1, 5))
    with c.lease(*names):
        alone(names)
        with c.lease(*order.sample(names, order.randrange(1, len(names) + 1))): pass
        if order.random() < 0.1:
            pid = os.fork()
            if pid == 0: os._exit(0)
            os.waitpid(pid, 0)
        os.sched_yield()
        alone(names)
        for name in names: fcntl.flock(witness[name], fcntl.LOCK_UN)
say("done")
hear()
"""


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_invariants_01_04_05_and_06_hold_for_processes_stopped_at_random(
    coord: Coordination, path: str, seed: int
) -> None:
    order = random.Random(seed)  # noqa: S311 - a test repeats itself, it keeps no secret
    for name in "abcd":
        coord.generations.open(name)
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(Child(HOLDERS, path, str(seed * 10 + one), "60")) for one in range(4)]
        for _ in range(40):
            stopped = order.choice(crowd)
            stopped.kill(signal.SIGSTOP)
            with contextlib.suppress(LeaseBusy), coord.lease(*order.sample("abcd", 2), timeout=0.002):
                pass
            stopped.kill(signal.SIGCONT)
        assert [one.hear() for one in crowd] == ["done"] * 4
    with coord.lease(*"abcd", timeout=0):
        pass
