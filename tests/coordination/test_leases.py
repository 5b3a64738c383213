"""Invariants 1, 4 to 6, 22 and 23: who holds an instance, seen by real processes and threads."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.coordination.holding import HOLDER, busy, opened

from wakeful_coordination import Coordination, Mutation
from wakeful_coordination.errors import LeaseMisused, LeaseOrder, NotFound
from wakeful_coordination.filesystem import Filesystem
from wakeful_coordination.layout import instance_path
from wakeful_coordination.posix import PosixFilesystem
from wakeful_coordination.testing.children import Child


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
