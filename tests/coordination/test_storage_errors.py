"""Invariant 20, and full or read-only disks: no acknowledgement, one clear line, no harm."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from wakeful_coordination import Coordination, Mutation
from wakeful_coordination.errors import CoordinationError, InDoubt, RootPoisoned, StorageFailed
from wakeful_coordination.posix import PosixFilesystem
from wakeful_coordination.testing.children import Child


class Failing(PosixFilesystem):
    """The real filesystem, whose n-th call of one kind from now on fails (and with ``lasting``, all later ones).

    The kind ``any`` is every call that changes something.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self._what = ""
        self._when = 0
        self._number = 0
        self._lasting = False

    def arm(self, what: str, when: int, number: int, *, lasting: bool = False) -> None:
        self.calls, self._what, self._when, self._number, self._lasting = 0, what, when, number, lasting

    def _may_fail(self, what: str) -> None:
        if what != self._what and (self._what != "any" or what == "sync"):
            return
        self.calls += 1
        if self.calls == self._when or (self._lasting and self.calls > self._when):
            raise OSError(self._number, os.strerror(self._number))

    def sync(self, fd: int) -> None:
        self._may_fail("sync")
        super().sync(fd)

    def write(self, fd: int, data: bytes) -> None:
        self._may_fail("write")
        super().write(fd, data)

    def make_directory(self, name: str, at: int) -> bool:
        self._may_fail("make_directory")
        return super().make_directory(name, at)

    def truncate(self, fd: int) -> None:
        self._may_fail("truncate")
        super().truncate(fd)

    def unlink(self, name: str, at: int) -> None:
        self._may_fail("unlink")
        super().unlink(name, at)

    def create(self, name: str, at: int) -> int:
        self._may_fail("create")
        return super().create(name, at)

    def rename(self, source: str, target: str, at: int) -> None:
        self._may_fail("rename")
        super().rename(source, target, at)

    def rename_new(self, source: str, target: str, at: int) -> None:
        self._may_fail("rename")
        super().rename_new(source, target, at)

    def link(self, source: str, source_at: int, target: str, target_at: int) -> None:
        self._may_fail("link")
        super().link(source, source_at, target, target_at)


def works(coord: Coordination) -> dict[str, Callable[[], object]]:
    generation = coord.generations.open("a")
    coord.caches.write(generation, b"payload")
    change = coord.transaction(generation, "comment", {}, mutations=[Mutation("a", "state.json", "x")])
    return {
        "transaction": lambda: coord.transact(change),
        "terminal": lambda: coord.conclude(generation, "succeeded"),
        "replacement": lambda: coord.generations.replace(generation),
        "new instance": lambda: coord.generations.open("fresh"),
    }


WORKS = ["transaction", "terminal", "replacement", "new instance"]


@pytest.mark.parametrize("work", WORKS)
def test_invariant_20_any_failed_fsync_means_no_acknowledgement_and_a_poisoned_root(path: str, work: str) -> None:
    files = Failing()
    with Coordination.open(path, files=files) as coord:
        attempt = works(coord)[work]
        files.arm("sync", 0, 0)
        attempt()
    assert files.calls >= 2
    for when in range(1, files.calls + 1):
        poison(f"{path}{when}", work, when)


def poison(path: str, work: str, when: int) -> None:
    files = Failing()
    coord = Coordination.open(path, files=files)
    attempt = works(coord)[work]
    files.arm("sync", when, errno.EIO)
    with pytest.raises(RootPoisoned, match="fsync"):
        attempt()
    for again in (attempt, lambda: coord.generations.capture("a"), coord.recover):
        with pytest.raises(RootPoisoned):
            again()
    assert files.calls == when, "an fsync was tried again"
    coord.close()
    with Coordination.open(path) as reopened:
        reopened.recover()
        if work == "terminal":
            ended = reopened.conclude(reopened.generations.capture("a"), "succeeded")
            assert ended.terminal.outcome == "succeeded"
        with reopened.lease("a"):
            pass


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_invariant_20_a_real_eio_of_fsync_is_not_acknowledged(coord: Coordination, path: str, tmp_path: Path) -> None:
    coord.generations.open("a")
    script = """
with Coordination.open(sys.argv[1]) as c:
    try: c.terminals.record(c.generations.capture("a"), "succeeded"); say("acknowledged")
    except CoordinationError as error: say(type(error).__name__, error.message)
    try: c.generations.capture("a")
    except CoordinationError as error: say(type(error).__name__)
"""
    wrapper = ["strace", "-f", "-o", str(tmp_path / "trace"), "-e", "inject=fsync:error=EIO:when=2"]
    with Child(script, path, wrapper=wrapper) as child:
        first = child.hear()
        assert first.startswith("RootPoisoned")
        assert "Input/output error" in first
        assert child.hear() == "RootPoisoned"
    assert coord.terminals.record(coord.generations.capture("a"), "succeeded").outcome == "succeeded"


def test_a_relay_ends_when_its_root_is_poisoned_and_the_next_process_goes_on(path: str) -> None:
    files = Failing()
    with Coordination.open(path, files=files) as coord:
        generation = coord.generations.open("a")
        for number in range(3):
            coord.publish(coord.transaction(generation, "comment", {"n": number}))
        files.arm("sync", 2, errno.EIO)
        with pytest.raises(RootPoisoned):
            coord.relay(lambda outcome: None)
    with Coordination.open(path) as coord:
        relayed = coord.relay(lambda outcome: None)
        assert (len(relayed.committed), relayed.left) == (2, ())


def told_by(attempt: Callable[[], object]) -> StorageFailed | None:
    try:
        attempt()
    except StorageFailed as error:
        return error
    return None


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("what", ["write", "create", "rename", "link"])
def test_a_disk_that_fills_at_any_call_is_told_and_nothing_is_acknowledged_or_lost(
    path: str, work: str, what: str
) -> None:
    failed = 0
    for when in range(1, 12):
        place = f"{path}{when}"
        files = Failing()
        with Coordination.open(place, files=files) as coord:
            attempt = works(coord)[work]
            files.arm(what, when, errno.ENOSPC, lasting=True)
            told = told_by(attempt)
            if told is None:
                break
            failed += 1
            assert "disk is full" in told.message
            assert "\n" not in told.message
            assert told.hint
            # Space again: the same process goes on, and the same work succeeds.
            files.arm("", 0, 0)
            attempt()
            assert coord.recover().left == ()
    assert failed or what == "link"


def test_what_a_full_disk_interrupted_is_finished_by_others_when_its_owner_has_left(path: str) -> None:
    files = Failing()
    with Coordination.open(path, files=files) as coord, Coordination.open(path, exit_grace=0) as other:
        generation = coord.generations.open("a")
        files.arm("rename", 2, errno.ENOSPC, lasting=True)
        change = coord.transaction(generation, "comment", {}, mutations=[Mutation("a", "state.json", "x")])
        with pytest.raises(StorageFailed):
            coord.transact(change)
        # The owner lives and may go on; nobody overtakes it.
        with pytest.raises(InDoubt), other.lease("a"):
            pass
        coord.close()
        with other.lease("a"):
            assert other.state(generation) == "x"


needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0
    or shutil.which("unshare") is None
    or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs root and mount namespaces",
)


@needs_mounts
def test_a_really_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    script = """
import subprocess
place = sys.argv[1]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "none", place], check=True)
c = Coordination.open(place + "/root")
g = c.generations.open("a")
with open(place + "/ballast", "wb") as ballast:
    try:
        while True: ballast.write(bytes(65536)); ballast.flush()
    except OSError: pass
try:
    for n in range(2000): c.publish(c.transaction(g, "comment", {"text": "x" * 30000}))
except CoordinationError as error: say(type(error).__name__, error.message)
os.unlink(place + "/ballast")
say(len(c.relay(lambda outcome: None).left), c.terminals.record(g, "succeeded").outcome)
"""
    with Child(script, str(tmp_path), wrapper=["unshare", "-m"]) as child:
        told = child.hear()
        assert told.startswith("StorageFailed")
        assert "disk is full" in told
        assert child.hear() == "0 succeeded"


@needs_mounts
def test_a_read_only_root_is_told_in_one_line(path: str) -> None:
    with Coordination.open(path) as coord:
        coord.generations.open("a")
    script = """
import subprocess
place = sys.argv[1]
subprocess.run(["mount", "--bind", place, place], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
try: Coordination.open(place)
except CoordinationError as error: say(type(error).__name__, error.message)
"""
    with Child(script, path, wrapper=["unshare", "-m"]) as child:
        told = child.hear()
        assert told.startswith("StorageFailed")
        assert "read-only" in told


@pytest.mark.parametrize("work", WORKS)
def test_a_root_that_becomes_read_only_acknowledges_nothing_and_goes_on_when_it_may(path: str, work: str) -> None:
    files = Failing()
    with Coordination.open(path, files=files) as coord:
        attempt = works(coord)[work]
        # As a disk does that its kernel has remounted after an error: whatever changes a name or a byte is refused.
        files.arm("any", 1, errno.EROFS, lasting=True)
        for _ in range(2):
            told = told_by(attempt)
            assert told is not None
            assert "read-only" in told.message
            assert "\n" not in told.message
            assert told.hint
        assert coord.outbox.pending() == []
        assert coord.terminals.read(coord.generations.capture("a")) is None
        files.arm("", 0, 0)
        attempt()
        assert coord.recover().left == ()


def test_every_error_says_what_it_is_as_json() -> None:
    error = StorageFailed("the disk is full", hint="free space")
    assert isinstance(error, CoordinationError)
    assert error.as_json() == {"error": "storage", "code": 1, "message": "the disk is full", "hint": "free space"}
