"""The reality check: a real ext4 loses power at every change of a transaction and of a terminal with its cleanup.

The filesystem is on a loop image and is shut down without flushing its journal; what was only in memory is gone.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wakeful_coordination import Coordination, Generation
from wakeful_coordination.layout import instance_path
from wakeful_coordination.machine import Machine
from wakeful_coordination.testing.children import Child


def possible() -> bool:
    if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in ("mkfs.ext4", "mount", "losetup")):
        return False
    return subprocess.run(["losetup", "-f"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.power_loss,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not possible(), reason="needs root, loop devices and mkfs.ext4"),
]

#: EXT4_IOC_SHUTDOWN, and its flag that forbids flushing the journal.
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2

STOPPING = """
from wakeful_coordination.posix import PosixFilesystem

class Stopping(PosixFilesystem):
    left = -1
    def stop(self):
        self.left -= 1
        if self.left == 0: say("stopped"); hear()

for name in ("create", "write", "truncate", "sync", "rename", "rename_new", "link", "unlink"):
    def changed(self, *words, _call=getattr(PosixFilesystem, name)):
        answer = _call(self, *words)
        self.stop()
        return answer
    setattr(Stopping, name, changed)

files = Stopping()
c = Coordination.open(sys.argv[1], files=files)
a, b = c.generations.capture("a"), c.generations.capture("b")
files.left = int(sys.argv[2])
"""
TRANSACTION = (
    STOPPING
    + """
t = c.transaction(a, "comment", {}, txid="t" * 32, others=[b],
                  mutations=[Mutation("a", "state.json", "A"), Mutation("b", "state.json", "B")])
c.publish(t); say("prepared")
c.authority.settle(t.txid); say("committed")
say("ended"); hear()
"""
)
TERMINAL = (
    STOPPING
    + """
c.conclude(a, "succeeded"); say("concluded")
say("ended"); hear()
"""
)


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """A loop image with a prepared root on it, and where copies of it are mounted."""

    image: Path
    copy: Path
    mount: Path
    generations: tuple[Generation, Generation]

    def begin(self) -> str:
        shutil.copyfile(self.image, self.copy)
        subprocess.run(["mount", "-o", "loop", self.copy, self.mount], check=True)
        return str(self.mount / "root")

    def cut(self) -> None:
        at = os.open(self.mount, os.O_RDONLY)
        fcntl.ioctl(at, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        os.close(at)

    def boot(self) -> None:
        self.end()
        subprocess.run(["mount", "-o", "loop", self.copy, self.mount], check=True)

    def end(self) -> None:
        subprocess.run(["umount", self.mount], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(24 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-N", "2048", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        with Coordination.open(str(mount / "root")) as coord:
            generations = coord.generations.open("a"), coord.generations.open("b")
            coord.caches.write(generations[0], b"payload")
    finally:
        subprocess.run(["umount", mount], check=True)
    yield Disk(image, tmp_path / "copy", mount, generations)
    if os.path.ismount(mount):
        subprocess.run(["umount", "-l", mount], check=True)


def every_cut(disk: Disk, script: str, check: Callable[[Coordination, Disk, list[str]], None]) -> int:
    """Cut the power after each change of the work; returns how many changes there were."""
    for moment in range(1, 200):
        acknowledged: list[str] = []
        with Child(script, disk.begin(), str(moment)) as child:
            while (said := child.hear()) not in ("stopped", "ended"):
                acknowledged.append(said)
            disk.cut()
            child.kill()
        disk.boot()
        machine = dataclasses.replace(Machine.here(), boot_id=f"after cut {moment}")
        with Coordination.open(str(disk.mount / "root"), machine=machine) as coord:
            check(coord, disk, acknowledged)
        disk.end()
        if said == "ended":
            return moment
    raise AssertionError("the work does not end")


def check_transaction(coord: Coordination, disk: Disk, acknowledged: list[str]) -> None:
    a, b = disk.generations
    receipt = coord.authority.receipt("t" * 32)
    assert receipt is not None or "prepared" not in acknowledged
    assert (coord.state(a), coord.state(b)) == (("A", "B") if receipt is not None else (None, None))
    relayed = coord.relay(lambda outcome: None)
    assert relayed.quarantined == ()
    assert relayed.left == ()
    assert not coord.quarantine.holds("t" * 32)
    with coord.lease("a", "b"):
        pass


def check_terminal(coord: Coordination, disk: Disk, acknowledged: list[str]) -> None:
    a, _ = disk.generations
    home = disk.mount / "root" / instance_path("a")
    if "concluded" in acknowledged:
        assert coord.terminals.read(a) is not None
        assert not [name for name in os.listdir(home) if name.startswith(("cache", "held-"))]
    ended = coord.conclude(a, "succeeded")
    assert ended.cleaned.how in ("deleted", "absent")
    left = [name for name in os.listdir(home) if name.startswith(("cache", "held-", "retained-", "terminal-"))]
    assert left == [f"terminal-{a.id}.json"]


def test_invariants_09_to_12_hold_when_the_power_fails_at_any_change_of_a_transaction(disk: Disk) -> None:
    assert every_cut(disk, TRANSACTION, check_transaction) > 20


def test_invariants_13_to_18_hold_when_the_power_fails_at_any_change_of_an_end(disk: Disk) -> None:
    assert every_cut(disk, TERMINAL, check_terminal) > 7


def test_the_cut_is_real_without_fsync_acknowledged_work_is_lost(disk: Disk) -> None:
    deaf = TRANSACTION.replace("files.left =", "files.sync = lambda fd: None; files.left =")
    with pytest.raises(AssertionError):
        every_cut(disk, deaf, check_transaction)
