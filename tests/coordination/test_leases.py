"""Invariants 1 to 6, 22 and 23: who holds an instance, seen by real processes and threads."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wakeful_coordination import Coordination, Mutation, claim
from wakeful_coordination.errors import InDoubt, LeaseBusy, LeaseMisused, LeaseOrder, NotFound
from wakeful_coordination.filesystem import Filesystem
from wakeful_coordination.layout import instance_path
from wakeful_coordination.posix import PosixFilesystem
from wakeful_coordination.root import Root
from wakeful_coordination.session import Alive, Dead, Liveness, liveness
from wakeful_coordination.testing.children import Child, until
from wakeful_coordination.waiter import Waiter

HOLDER = """
with Coordination.open(sys.argv[1]) as c:
    with c.lease(*sys.argv[2:]):
        say("held", c.root.sid)
        hear()
    say("released")
    hear()
"""


def opened(coord: Coordination, *instances: str) -> None:
    for instance in instances:
        coord.generations.open(instance)


def busy(coord: Coordination, instance: str) -> bool:
    try:
        with coord.lease(instance, timeout=0):
            return False
    except LeaseBusy:
        return True


def test_invariant_01_one_process_at_a_time_holds_an_instance(coord: Coordination, path: str) -> None:
    opened(coord, "a")
    with Child(HOLDER, path, "a") as child:
        assert child.hear().startswith("held")
        assert busy(coord, "a")
        child.tell("go on")
        assert child.hear() == "released"
        assert not busy(coord, "a")


def test_invariant_01_one_thread_at_a_time_holds_an_instance(coord: Coordination) -> None:
    opened(coord, "a")
    inside, most, guard = 0, 0, threading.Lock()
    failures: list[BaseException] = []

    def work() -> None:
        nonlocal inside, most
        try:
            for _ in range(300):
                with coord.lease("a"):
                    with guard:
                        inside += 1
                        most = max(most, inside)
                    os.sched_yield()
                    with guard:
                        inside -= 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert most == 1


def test_invariant_01_processes_counting_in_one_file_lose_no_count(coord: Coordination, path: str) -> None:
    opened(coord, "a", "b")
    counter = Path(path).parent / "counter"
    counter.write_text("0")
    script = """
with Coordination.open(sys.argv[1]) as c:
    say("ready"); hear()
    for _ in range(200):
        with c.lease("b", "a"):
            with open(sys.argv[2]) as f: n = int(f.read())
            with open(sys.argv[2], "w") as f: f.write(str(n + 1))
    say("done")
"""
    children = [Child(script, path, str(counter)) for _ in range(4)]
    try:
        for child in children:
            child.hear()
        for child in children:
            child.tell("go")
        assert [child.hear() for child in children] == ["done"] * 4
    finally:
        for child in children:
            child.__exit__(None, None, None)
    assert counter.read_text() == "800"


def test_invariant_02_a_stopped_owner_keeps_its_lease_and_its_death_frees_it(coord: Coordination, path: str) -> None:
    opened(coord, "a")
    with Child(HOLDER, path, "a") as child:
        sid = child.hear().split()[1]
        child.kill(signal.SIGSTOP)
        assert busy(coord, "a")
        assert isinstance(liveness(coord.root, sid), Alive)
        child.kill()
        with coord.lease("a", timeout=30):
            assert isinstance(liveness(coord.root, sid), Dead)


def test_invariant_02_a_zombie_owner_is_dead_although_its_pid_answers(coord: Coordination, path: str) -> None:
    opened(coord, "a")
    with Child(HOLDER, path, "a") as child:
        sid = child.hear().split()[1]
        os.kill(child.pid, signal.SIGKILL)
        until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        os.kill(child.pid, 0)  # the process table still answers for it
        assert isinstance(liveness(coord.root, sid), Dead)
        assert not busy(coord, "a")


def session_file(path: str, sid: str) -> Path:
    return Path(path, "sessions", sid)


def rewrite(file: Path, **changes: object) -> None:
    # In place: the inode bears the lock.
    with file.open("r+") as opened_file:
        known = json.load(opened_file) | changes
        opened_file.seek(0)
        opened_file.truncate()
        json.dump(known, opened_file)


def test_invariant_02_a_reused_pid_does_not_keep_a_dead_session_alive(coord: Coordination, path: str) -> None:
    with Child(HOLDER, path) as child:
        sid = child.hear().split()[1]
        child.kill()
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    rewrite(session_file(path, sid), pid=os.getpid(), start_ticks=ticks)
    assert isinstance(liveness(coord.root, sid), Dead)


def test_invariant_02_a_living_session_whose_pid_names_nobody_is_alive(coord: Coordination, path: str) -> None:
    with Child("raise SystemExit") as gone:
        gone.end()
    with Child(HOLDER, path) as child:
        sid = child.hear().split()[1]
        rewrite(session_file(path, sid), pid=gone.pid, start_ticks=1, host="elsewhere")
        assert isinstance(liveness(coord.root, sid), Alive)


UNFINISHED = """
import fcntl
from wakeful_coordination import claim
c = Coordination.open(sys.argv[1])
g = c.generations.capture("a")
t = c.transaction(g, "comment", {}, mutations=[Mutation("a", "state.json", "new")])
c.publish(t)
c.leases.acquire(("a",), None, False)
c.authority._mark(t)
if "unlock" in sys.argv: fcntl.flock(c.leases.file("a")[0], fcntl.LOCK_UN)
say(t.txid)
hear()
"""


def test_invariant_02_an_unfinished_transaction_of_a_live_session_is_not_overtaken(
    coord: Coordination, path: str
) -> None:
    generation = coord.generations.open("a")
    # The kernel's lock is lost by a fault of its owner; only the claim says that it is still at work.
    with Child(UNFINISHED, path, "unlock") as child:
        txid = child.hear()
        for _ in range(2):
            with pytest.raises(InDoubt, match="not proven dead: pid"), coord.lease("a"):
                pass
        assert coord.outbox.bytes_of(txid) is not None
        child.kill()
        with coord.lease("a"):
            assert coord.state(generation) == "new"
    assert coord.authority.receipt(txid) is not None


def test_invariant_02_an_owner_that_is_still_dying_is_waited_for(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    with Child(UNFINISHED, path, "unlock") as child, Coordination.open(path, exit_grace=30) as patient:
        child.hear()
        asked = threading.Event()
        claimant = claim.claimant

        def asking(root: Root, fd: int) -> Liveness | None:
            found = claimant(root, fd)
            asked.set()
            return found

        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
            patch.setattr(claim, "claimant", asking)
            taken = pool.submit(lambda: patient.lease("a").__enter__().__exit__(None, None, None))
            # It lives at the first look, and is dead at a later one.
            assert asked.wait(30)
            child.kill()
            taken.result(30)
        assert patient.state(generation) == "new"


def test_invariant_02_resolving_a_dead_sessions_transaction_overtakes_no_live_one_beside_it(
    coord: Coordination, path: str
) -> None:
    generations = [coord.generations.open(name) for name in "ab"]
    script = UNFINISHED.replace("t = c", "h = c.generations.capture('b')\nt = c").replace(
        '[Mutation("a", "state.json", "new")]',
        '[Mutation("a", "state.json", "new"), Mutation("b", "state.json", "new")], others=[h]',
    )
    script = script.replace('(("a",), None', '(("a", "b"), None')
    with Child(script, path) as dead, Child(HOLDER, path) as alive:
        dead.hear()
        sid = alive.hear().split()[1]
        dead.kill()
        lease = Path(path, instance_path("b"), "lease")
        lease.write_text(json.dumps([sid, coord.root.machine.boot_id]) + "\n")
        with pytest.raises(InDoubt, match="b has an unfinished transaction"), coord.lease("a"):
            pass
        assert [coord.state(one) for one in generations] == [None, None]
        alive.kill()
    with coord.lease("a"):
        assert [coord.state(one) for one in generations] == ["new", "new"]


def test_an_instance_whose_directory_is_taken_away_while_it_is_held_is_in_doubt(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    with coord.lease("a"):
        home = Path(path, instance_path("a"))
        home.rename(Path(path).parent / "elsewhere")
        with pytest.raises(InDoubt, match="deleted or replaced"):
            coord.terminals.record(generation, "succeeded")
    assert coord.state(generation) is None
    assert coord.caches.read(generation) is None
    with pytest.raises(NotFound):
        coord.generations.capture("a")


def test_invariant_02_a_transaction_of_an_earlier_boot_is_brought_to_its_end(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    with Child(UNFINISHED, path) as child:
        child.hear()
        child.kill()
    lease = Path(path, instance_path("a"), "lease")
    sid, _ = json.loads(lease.read_text())
    session_file(path, sid).unlink()
    with pytest.raises(InDoubt, match="is gone"), coord.lease("a"):
        pass
    lease.write_text(json.dumps([sid, "00000000-0000-0000-0000-000000000000"]) + "\n")
    with coord.lease("a"):
        assert coord.state(generation) == "new"


def test_invariant_02_another_hosts_session_in_a_root_that_was_moved_here_is_dead(
    coord: Coordination, path: str
) -> None:
    generation = coord.generations.open("a")
    with Child(UNFINISHED, path) as child:
        child.hear()
        child.kill()
    lease = Path(path, instance_path("a"), "lease")
    sid, _ = json.loads(lease.read_text())
    # A local disk serves one kernel at a time: whoever wrote this under another one is gone, whatever its pid says.
    elsewhere = "11111111-1111-1111-1111-111111111111"
    rewrite(session_file(path, sid), host="elsewhere", boot_id=elsewhere, pid=os.getpid())
    lease.write_text(json.dumps([sid, elsewhere]) + "\n")
    with coord.lease("a"):
        assert coord.state(generation) == "new"


def test_invariant_03_a_root_that_another_host_may_be_using_is_refused_and_left_as_it_is(path: str) -> None:
    with Coordination.open(path) as coord:
        coord.publish(coord.transaction(coord.generations.open("a"), "comment", {}))
    before = {one: one.stat().st_mtime_ns for one in Path(path).rglob("*")}
    device = os.stat(path).st_dev
    shared = f"36 35 {os.major(device)}:{os.minor(device)} / / rw - nfs4 host:/export rw"
    # Its sessions may be those of another host, whose locks are not seen here: nobody's death can be proven.
    with pytest.raises(InDoubt, match="nfs4"):
        Coordination.open(path, mountinfo=shared)
    assert {one: one.stat().st_mtime_ns for one in Path(path).rglob("*")} == before


def test_invariant_03_in_doubt_nothing_is_acquired_changed_or_deleted(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    coord.caches.write(generation, b"payload")
    with Child(UNFINISHED, path) as child:
        child.hear()
        child.kill()
    lease = Path(path, instance_path("a"), "lease")
    sid, _ = json.loads(lease.read_text())
    session_file(path, sid).unlink()
    before = {name.name: name.read_bytes() for name in lease.parent.iterdir()}
    for attempt in (
        lambda: coord.terminals.record(generation, "succeeded"),
        lambda: coord.generations.replace(generation),
        lambda: coord.caches.write(generation, b"other"),
        lambda: coord.publish(coord.transaction(generation, "comment", {})),
    ):
        with pytest.raises(InDoubt):
            attempt()
    assert {name.name: name.read_bytes() for name in lease.parent.iterdir()} == before
    with Coordination.open(path, dead_sessions=[sid]) as told, told.lease("a"):
        assert told.state(generation) == "new"


def test_invariant_03_a_claim_that_nobody_can_read_is_in_doubt_and_a_torn_one_is_not(
    coord: Coordination, path: str
) -> None:
    opened(coord, "a")
    lease = Path(path, instance_path("a"), "lease")
    lease.write_text("what is this?\n")
    with pytest.raises(InDoubt, match="cannot be read"), coord.lease("a"):
        pass
    lease.write_text('["0123')
    with coord.lease("a"):
        assert lease.read_bytes() == b""


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_invariant_03_a_lease_that_was_deleted_or_replaced_while_held_is_refused_to_others(
    coord: Coordination, path: str, how: str
) -> None:
    generation = coord.generations.open("a")
    lease = Path(path, instance_path("a"), "lease")
    with Child(HOLDER, path, "a") as child:
        child.hear()
        lease.unlink()
        if how == "replaced":
            lease.touch()
        with Coordination.open(path) as other:
            for _ in range(2):
                with pytest.raises(InDoubt), other.lease("a"):
                    pass
        child.tell("go on")
        child.hear()
    # The old file is still open here: its lock is free, but it is no longer the instance's lease.
    with coord.lease("a"), pytest.raises(InDoubt, match="deleted or replaced"):
        coord.terminals.record(generation, "succeeded")
    assert coord.repair.instance("a").lease
    assert not coord.repair.instance("a").lease
    with Coordination.open(path) as other:
        assert other.terminals.record(generation, "succeeded").outcome == "succeeded"


class Recording(PosixFilesystem):
    """The real filesystem, with a list of what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.locked: list[int] = []
        grant = self.try_lock
        self.try_lock = lambda fd: self._noted("try_lock", self.locked.append(fd) or grant(fd))
        give_back = self.unlock
        self.unlock = lambda fd: self._noted("unlock", give_back(fd))

    def _noted(self, what: str, answer: object) -> object:
        self.asked.append(what)
        return answer


@pytest.mark.parametrize("known", [True, False], ids=["open", "to be opened"])
def test_invariant_04_leases_are_taken_in_ascending_order(path: str, known: bool) -> None:
    files = Recording()
    with Coordination.open(path, files=files, keep=512 if known else 1) as coord:
        opened(coord, "a", "b", "c", "d")
        files.locked.clear()
        with coord.lease("c", "a", "b", "a"):
            taken = [one for fd in files.locked for one, lease in coord.leases.open.items() if lease.fd == fd]
        assert taken == ["a", "b", "c"]
        with coord.lease("b"):
            with pytest.raises(LeaseOrder), coord.lease("a"):
                pass
            with pytest.raises(LeaseOrder), coord.lease("c", "a"):
                pass
            with coord.lease("c", "b"):
                pass
        assert not busy(coord, "a")


def test_invariant_04_opposite_requests_never_wait_for_each_other(coord: Coordination, path: str) -> None:
    names = [f"i{number}" for number in range(6)]
    opened(coord, *names)
    script = """
import random
order = random.Random(int(sys.argv[2]))
with Coordination.open(sys.argv[1]) as c:
    names = [f"i{n}" for n in range(6)]
    for _ in range(150):
        with c.lease(*order.sample(names, 3)): os.sched_yield()
    say("done")
"""
    children = [Child(script, path, str(seed)) for seed in range(4)]
    try:
        assert [child.hear() for child in children] == ["done"] * 4
    finally:
        for child in children:
            child.__exit__(None, None, None)


def test_invariant_05_a_nested_lease_asks_the_kernel_for_nothing_and_its_release_frees_nothing(path: str) -> None:
    files = Recording()
    with Coordination.open(path, files=files) as coord, Child(HOLDER.replace("hear()", "", 1), path) as child:
        child.hear()
        opened(coord, "a", "b")
        with coord.lease("a", "b"):
            files.asked.clear()
            with coord.lease("b", "a"), coord.lease("a"):
                pass
            assert files.asked == []
            with Coordination.open(path) as other:
                assert busy(other, "a")
                assert busy(other, "b")
        assert files.asked == ["unlock", "unlock"]
        assert not busy(coord, "a")


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_invariant_05_a_nested_lease_makes_no_system_call(coord: Coordination, path: str, tmp_path: Path) -> None:
    opened(coord, "a")
    script = """
with Coordination.open(sys.argv[1]) as c:
    with c.lease("a"):
        with c.lease("a"): pass
        os.access("/begin-nested", 0)
        for _ in range(100):
            with c.lease("a"): pass
        os.access("/end-nested", 0)
"""
    trace = tmp_path / "trace"
    with Child(script, path, wrapper=["strace", "-o", str(trace)]) as child:
        assert child.end() == 0
    lines = trace.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if "/begin-nested" in line)
    last = next(number for number, line in enumerate(lines) if "/end-nested" in line)
    assert last == first + 1


FORKER = """
c = Coordination.open(sys.argv[1])
with c.lease("a"):
    pid = os.fork()
    if pid == 0:
        for attempt in (lambda: c.leases.acquire(("a",), None, False), lambda: c.generations.capture("a")):
            try: attempt()
            except CoordinationError as error: say(type(error).__name__)
        c.leases.release(("a",))
        say("child"); hear(); os._exit(0)
    os.waitpid(pid, 0)
    say("parent"); hear()
say("released"); hear()
"""


def test_invariant_06_a_forked_child_holds_nothing_and_the_parents_lease_stands(coord: Coordination, path: str) -> None:
    opened(coord, "a")
    with Child(FORKER, path) as child:
        assert [child.hear() for _ in range(3)] == ["LeaseMisused", "LeaseMisused", "child"]
        assert busy(coord, "a")
        child.tell("die")
        assert child.hear() == "parent"
        assert busy(coord, "a")
        child.tell("release")
        assert child.hear() == "released"
        assert not busy(coord, "a")


def test_invariant_06_a_surviving_forked_child_does_not_keep_a_dead_parents_lease(
    coord: Coordination, path: str
) -> None:
    opened(coord, "a")
    with Child(FORKER, path) as child:
        assert [child.hear() for _ in range(3)][-1] == "child"
        assert busy(coord, "a")
        child.kill()
        with coord.lease("a", timeout=30):
            pass


def test_a_lease_is_refused_in_a_running_event_loop(coord: Coordination) -> None:
    opened(coord, "a")

    async def take() -> None:
        with pytest.raises(LeaseMisused, match="event loop"), coord.lease("a"):
            pass
        await asyncio.to_thread(lambda: coord.lease("a").__enter__().__exit__(None, None, None))

    asyncio.run(take())


def test_a_lease_is_given_back_only_by_the_thread_that_took_it(coord: Coordination) -> None:
    opened(coord, "a")
    custody = coord.lease("a")
    custody.__enter__()
    refused: list[BaseException] = []

    def give_back() -> None:
        try:
            custody.__exit__(None, None, None)
        except LeaseMisused as error:
            refused.append(error)

    thread = threading.Thread(target=give_back)
    thread.start()
    thread.join()
    assert len(refused) == 1
    custody.__exit__(None, None, None)


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


def test_leases_may_be_given_back_in_any_order(coord: Coordination, path: str) -> None:
    opened(coord, "a", "b", "c", "d")
    a, b, c = (coord.lease(name).__enter__() for name in "abc")
    b.__exit__(None, None, None)
    with pytest.raises(LeaseOrder), coord.lease("b"):
        pass
    with Coordination.open(path) as other:
        assert [busy(other, name) for name in "abc"] == [True, False, True]
        a.__exit__(None, None, None)
        with coord.lease("d"):
            assert [busy(other, name) for name in "abcd"] == [False, False, True, True]
        c.__exit__(None, None, None)
        assert not any(busy(other, name) for name in "abcd")
    with coord.lease("a"):
        pass


def test_a_lease_asked_for_before_its_file_was_closed_to_make_room_is_taken_all_the_same(path: str) -> None:
    with Coordination.open(path, keep=1) as coord, Coordination.open(path) as other:
        opened(coord, "a", "b")
        with coord.lease("a"):
            pass
        known = coord.lease("a")
        with coord.lease("b"):
            pass
        with known:
            assert busy(other, "a")
            with coord.lease("a"):
                pass
            assert busy(other, "a")
        assert not busy(other, "a")


def test_leases_work_when_more_are_used_than_are_kept_open(path: str) -> None:
    with Coordination.open(path, keep=2) as coord:
        names = [f"i{number}" for number in range(8)]
        opened(coord, *names)
        with coord.lease(*names), Coordination.open(path) as other:
            assert all(busy(other, name) for name in names)
        order = random.Random(7)  # noqa: S311 - a test repeats itself, it keeps no secret
        for _ in range(50):
            with coord.lease(*order.sample(names, 3)):
                pass
        assert not any(busy(coord, name) for name in names)


def test_an_unknown_instance_is_not_found(coord: Coordination) -> None:
    with pytest.raises(NotFound), coord.lease("nobody"):
        pass


COUNTED = """
with Coordination.open(sys.argv[1], keep=1) as c:
    a, b = (c.generations.capture(name) for name in ("a", "b"))
    def work():
        with c.lease("a"): pass
        with c.lease("b"): pass
        c.transact(c.transaction(a, "comment", {}, mutations=[Mutation("a", "state.json", "x")], kind="local"))
    work()
    os.access("/begin-counting", 0)
    work()
    os.access("/end-counting", 0)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_invariant_22_the_same_system_calls_whatever_the_number_of_instances_and_no_directory_read(
    coord: Coordination, path: str, tmp_path: Path
) -> None:
    opened(coord, "a", "b")
    counted = []
    for round_ in range(2):
        trace = tmp_path / f"trace{round_}"
        with Child(COUNTED, path, wrapper=["strace", "-f", "-o", str(trace)]) as child:
            assert child.end() == 0
        lines = trace.read_text().splitlines()
        first = next(number for number, line in enumerate(lines) if "/begin-counting" in line)
        last = next(number for number, line in enumerate(lines) if "/end-counting" in line)
        calls = [re.split(r"[ (]+", line)[1] for line in lines[first + 1 : last]]
        assert "getdents64" not in calls
        counted.append([call for call in calls if call not in ("futex", "brk", "mmap", "munmap", "madvise")])
        for number in range(300 * (1 - round_)):
            directory = Path(path, instance_path(f"other-{number}"))
            directory.mkdir(mode=0o700)
            (directory / "lease.keep").touch()
            os.link(directory / "lease.keep", directory / "lease")
    assert counted[0] == counted[1]
    assert counted[0].count("fsync") == 5


def test_invariant_23_disjoint_instances_never_wait_for_each_other(coord: Coordination, path: str) -> None:
    opened(coord, "a", "b")
    with Child(HOLDER, path, "a") as child:
        child.hear()
        child.kill(signal.SIGSTOP)
        with coord.lease("b", timeout=0):
            generation = coord.generations.capture("b")
            coord.transact(coord.transaction(generation, "comment", {}, mutations=[Mutation("b", "state.json", "x")]))
            coord.conclude(generation, "succeeded")


def test_invariant_23_a_thread_waiting_for_one_instance_hinders_no_other(coord: Coordination, path: str) -> None:
    opened(coord, "a", "b")
    with Child(HOLDER, path, "a") as child:
        child.hear()
        waiting = threading.Thread(target=lambda: coord.lease("a").__enter__().__exit__(None, None, None))
        waiting.start()
        for _ in range(100):
            with coord.lease("b"):
                pass
        assert waiting.is_alive()
        child.tell("go on")
        waiting.join()


def test_the_seam_is_what_the_real_filesystem_offers() -> None:
    files: Filesystem = PosixFilesystem()
    assert files is not None
    # Importing the package costs nothing: locks and watchers come with the root that needs them.
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, wakeful_coordination; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ).stdout.split()
    assert not {"filelock", "watchdog", "asyncio", "wakeful", "psycopg"} & set(loaded)
