"""Waiting for a lease: deadlines, interrupts, and turns."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.coordination.holding import HOLDER, busy, opened

from wakeful_coordination import Coordination
from wakeful_coordination.errors import LeaseBusy
from wakeful_coordination.testing.children import Child, until
from wakeful_coordination.waiter import Waiter


def test_a_deadline_ends_the_wait_names_the_holder_and_takes_nothing(coord: Coordination, path: str) -> None:
    opened(coord, "a", "b")
    with Child(HOLDER, path, "b") as child:
        child.hear()
        with pytest.raises(LeaseBusy, match=f"held by pid {child.pid}"), coord.lease("a", "b", timeout=0.05):
            pass
        with Coordination.open(path) as other:
            assert not busy(other, "a")
        child.tell("go on")
        assert child.hear() == "released"
        # The grant that came too late was handed straight back.
        until(lambda: not busy(coord, "b"))
        with coord.lease("b"):
            pass


def test_a_waiter_within_its_deadline_gets_the_lease(coord: Coordination, path: str) -> None:
    opened(coord, "a")
    with Child(HOLDER, path, "a") as child:
        child.hear()
        got = threading.Event()

        def take() -> None:
            with coord.lease("a", timeout=30):
                got.set()
                with Coordination.open(path) as other:
                    assert busy(other, "a")

        thread = threading.Thread(target=take)
        thread.start()
        assert not got.is_set()
        child.tell("go on")
        thread.join()
        assert got.is_set()


def test_an_interrupted_wait_leaves_no_lock_behind(coord: Coordination, path: str) -> None:
    opened(coord, "a")
    fresh = coord.leases.files.fresh("a")
    waiter = Waiter(coord.root, fresh.fd)
    until(waiter._granted.is_set)
    assert busy(coord, "a")
    wait = waiter._granted.wait

    def interrupted(seconds: float) -> bool:
        wait(seconds)
        raise KeyboardInterrupt

    waiter._granted.wait = interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        waiter.grant(30)
    assert not busy(coord, "a")


def test_an_interrupted_acquisition_leaves_no_lock_behind(coord: Coordination, path: str) -> None:
    opened(coord, "a")
    with coord.lease("a"):
        pass
    ledger = coord.leases.open["a"].ledger
    seek = ledger.seek

    def interrupted(fd: int, position: int, whence: int) -> int:
        raise KeyboardInterrupt

    ledger.seek = interrupted
    with pytest.raises(KeyboardInterrupt), coord.lease("a"):
        pass
    ledger.seek = seek
    with Coordination.open(path) as other:
        assert not busy(other, "a")
    assert not busy(coord, "a")


def test_a_process_that_had_to_wait_leaves_the_lease_to_others_after_a_few_turns(
    coord: Coordination, path: str
) -> None:
    opened(coord, "a")
    waits: list[float] = []
    coord.leases.contention.courtesy = 1000
    coord.leases.contention.turns = 2
    coord.leases.contention.pause = waits.append
    with Child(HOLDER, path, "a") as child, ThreadPoolExecutor(1) as pool:
        child.hear()
        taken = pool.submit(lambda: coord.lease("a").__enter__().__exit__(None, None, None))
        until(lambda: coord.leases.open["a"].waited)
        child.tell("go on")
        taken.result(30)
    assert waits == []
    for expected in (0, 0, 1, 1, 1):
        with coord.lease("a"):
            pass
        # After two turns, and once: nobody else was there, so the next time it is taken at once again.
        assert len(waits) == expected
    assert 900 < waits[0] <= 1000
    # A deadline is not passed for the sake of others.
    coord.leases.open["a"].waited = True
    with coord.lease("a", timeout=0):
        pass
    assert len(waits) == 1
