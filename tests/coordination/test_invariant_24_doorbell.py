"""Invariant 24: losing every doorbell costs latency only; each transaction is told once."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from wakeful_coordination import Committed, Coordination
from wakeful_coordination.errors import StorageFailed
from wakeful_coordination.testing.children import Child, until


class Consumer:
    """Counts what it is told."""

    def __init__(self, coord: Coordination) -> None:
        self._coord = coord
        self.told: Counter[str] = Counter()
        self.looks = 0

    def look(self) -> None:
        self._coord.relay(self._deliver)
        self.looks += 1

    def _deliver(self, outcome: object) -> None:
        assert isinstance(outcome, Committed)
        self.told[outcome.transaction.txid] += 1


def test_a_ring_is_heard_long_before_the_next_slow_look(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    consumer = Consumer(coord)
    lines: list[str] = []
    watcher = coord.watcher(consumer.look, announce=lines.append, rescan=3600)
    watcher.start()
    try:
        until(lambda: consumer.looks > 0)
        with Coordination.open(path) as other:
            txid = other.publish(other.transaction(generation, "comment", {})).txid
        until(lambda: consumer.told[txid] == 1)
    finally:
        watcher.stop()
    assert watcher.watching
    assert lines == []


def test_invariant_24_without_any_ring_the_slow_look_finds_everything(coord: Coordination) -> None:
    generation = coord.generations.open("a")
    coord.outbox.ring = lambda: None  # type: ignore[method-assign]
    consumer = Consumer(coord)
    watcher = coord.watcher(consumer.look, announce=lambda line: None, rescan=0.05)
    watcher.start()
    try:
        sent = {coord.publish(coord.transaction(generation, "comment", {"n": number})).txid for number in range(5)}
        until(lambda: set(consumer.told) == sent)
        looked = consumer.looks
        until(lambda: consumer.looks > looked + 2)
    finally:
        watcher.stop()
    assert set(consumer.told.values()) == {1}


def test_invariant_24_a_lost_queue_is_announced_once_and_looked_after(coord: Coordination) -> None:
    consumer = Consumer(coord)
    lines: list[str] = []
    watcher = coord.watcher(consumer.look, announce=lines.append, rescan=3600)
    watcher.start()
    try:
        until(lambda: consumer.looks > 0)
        # What the library says when the kernel's queue has overflowed: nothing else tells.
        for _ in range(3):
            looked = consumer.looks
            logging.getLogger("watchdog.observers.inotify_c").warning("inotify queue overflow")
            until(lambda before=looked: consumer.looks > before)
    finally:
        watcher.stop()
    assert len(lines) == 1
    assert "rings were lost" in lines[0]


needs_namespace = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(
        ["unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_inotify_instances"],
        capture_output=True,
        check=False,
    ).returncode
    != 0,
    reason="needs user namespaces with their own inotify limit",
)


@needs_namespace
@pytest.mark.parametrize("limit", ["max_inotify_instances", "max_inotify_watches"])
def test_invariant_24_with_an_inotify_limit_of_zero_the_slow_look_does_it_and_says_so_once(
    path: str, limit: str
) -> None:
    script = """
with Coordination.open(sys.argv[1]) as c:
    g = c.generations.open("a")
    w = c.watcher(lambda: c.relay(lambda outcome: say("told", outcome.transaction.txid)), announce=say,
                  rescan=3600, blind_rescan=0.02)
    w.start(); say(w.watching)
    say("sent", c.publish(c.transaction(g, "comment", {})).txid)
    hear(); w.stop()
"""
    limited = ["unshare", "-Ur", "sh", "-c", f'echo 0 > /proc/sys/user/{limit}; exec "$@"', "sh"]
    with Child(script, path, wrapper=limited) as child:
        said = [child.hear() for _ in range(4)]
        assert "cannot be watched" in said[0]
        assert said[1] == "False"
        assert {line.split()[0] for line in said[2:]} == {"sent", "told"}
        assert len({line.split()[1] for line in said[2:]}) == 1


def drop(coord: Coordination, path: str, count: int) -> None:
    """Put ``count`` complete transactions into the outbox as fast as files can be linked."""
    generation = coord.generations.open("a")
    made = coord.transaction(generation, "comment", {}, txid="0" * 32).data
    pending = Path(path, "outbox/pending")
    for number in range(count):
        txid = f"{number:032d}"
        (pending / f".tmp-x-{txid}").write_bytes(made.replace(b"0" * 32, txid.encode()))
        os.rename(pending / f".tmp-x-{txid}", pending / f"{txid}.json")


def dropped_at_once(coord: Coordination, path: str, count: int) -> None:
    coord.root.files.sync = lambda fd: None  # this is about finding them, not about the disk
    consumer = Consumer(coord)
    watcher = coord.watcher(consumer.look, announce=lambda line: None, rescan=0.2)
    watcher.start()
    try:
        drop(coord, path, count)
        stray = Path(path).parent / "full"
        stray.mkdir()
        (stray / f"{'7' * 32}.json").write_text("{}")
        stray.rename(Path(path, "outbox/pending/full"))
        Path(path, os.fsdecode(b"outbox/pending/\xff")).touch()
        Path(path, "doorbell/a/b/c").mkdir(parents=True)
        Path(path, "doorbell/a/b/c/file").touch()
        until(lambda: len(consumer.told) == count, timeout=600)
        looked = consumer.looks
        until(lambda: consumer.looks > looked, timeout=600)
    finally:
        watcher.stop()
    assert set(consumer.told.values()) == {1}
    assert coord.survey.overview().strays == ("\\xff", "full")


def test_invariant_24_many_files_and_a_directory_at_once_are_each_told_once(coord: Coordination, path: str) -> None:
    dropped_at_once(coord, path, 300)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_invariant_24_fifty_thousand_files_at_once_are_each_told_once() -> None:
    # On a disk: so many files may be more than the memory that stands in for one elsewhere.
    with tempfile.TemporaryDirectory() as place, Coordination.open(f"{place}/root") as coord:
        dropped_at_once(coord, f"{place}/root", 50_000)


def test_a_look_that_fails_is_announced_and_the_next_one_comes(coord: Coordination) -> None:
    lines: list[str] = []
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        raise StorageFailed("the disk is full")

    watcher = coord.watcher(look, announce=lines.append, rescan=0.02)
    watcher.start()
    until(lambda: looks > 2)
    watcher.stop()
    assert lines == ["the disk is full"]


def test_a_fault_in_a_look_is_raised_when_the_watcher_is_stopped(coord: Coordination) -> None:
    def look() -> None:
        raise ZeroDivisionError

    watcher = coord.watcher(look, announce=lambda line: None)
    watcher.start()
    with pytest.raises(ZeroDivisionError):
        watcher.stop()
