"""Invariants 13, 14, 16, 17 and 18 on real files: how a generation ends and where its cache goes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from wakeful_coordination import Cleaned, Coordination, Generation, record
from wakeful_coordination.errors import ContradictoryTerminal, InvalidRecord, LeaseBusy, StorageFailed
from wakeful_coordination.held_cache import cache_header
from wakeful_coordination.layout import instance_path
from wakeful_coordination.posix import PosixFilesystem
from wakeful_coordination.testing.children import Child

NEWER = cache_header(Generation("a", 2, "n" * 32)) + b"newer"
NEWEST = cache_header(Generation("a", 3, "m" * 32)) + b"newest"


def home(path: str) -> Path:
    return Path(path, instance_path("a"))


def arrive(path: str, data: bytes) -> None:
    """Write a live cache as an agent of another generation does: without the lease, by rename."""
    spare = home(path) / "spare"
    spare.write_bytes(data)
    os.replace(spare, home(path) / "cache")


def names(path: str, prefix: str) -> list[Path]:
    return sorted(one for one in home(path).iterdir() if one.name.startswith(prefix))


class Arriving(PosixFilesystem):
    """The real filesystem, in which caches arrive right before and right after the live one is moved aside."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        super().__init__()
        self._before = before
        self._after = after

    def rename(self, source: str, target: str, at: int) -> None:
        if target.startswith("held-"):
            self._before()
        super().rename(source, target, at)
        if target.startswith("held-"):
            self._after()


def nothing() -> None:
    pass


def test_invariant_13_the_same_outcome_again_is_the_same_terminal(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    first = coord.terminals.record(generation, "succeeded", "all done")
    again = coord.terminals.record(generation, "succeeded", "told twice")
    assert (first.repeated, again.repeated) == (False, True)
    assert (again.reason, again.nonce) == ("all done", first.nonce)
    assert len(names(path, "terminal-")) == 1


def test_invariant_13_another_outcome_is_a_contradiction(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    coord.terminals.record(generation, "cancelled", "cost 3")
    before = names(path, "terminal-")[0].read_bytes()
    with pytest.raises(ContradictoryTerminal, match="ended cancelled, not succeeded"):
        coord.terminals.record(generation, "succeeded")
    assert names(path, "terminal-")[0].read_bytes() == before
    with pytest.raises(ContradictoryTerminal):
        coord.conclude(generation, "failed")


def test_invariant_13_each_generation_has_its_own(coord: Coordination) -> None:
    first = coord.generations.open("a")
    coord.terminals.record(first, "failed")
    second = coord.generations.replace(first)
    coord.terminals.record(second, "succeeded")
    found = [coord.terminals.read(one) for one in (first, second)]
    assert [one.outcome for one in found if one] == ["failed", "succeeded"]
    # Repeating an ended generation's terminal is answered even after its replacement.
    assert coord.terminals.record(first, "failed").repeated


def test_a_terminal_takes_two_flushes_and_refuses_what_is_no_outcome(coord: Coordination) -> None:
    generation = coord.generations.open("a")
    flush, flushed = coord.root.files.sync, []
    coord.root.files.sync = lambda fd: (flushed.append(fd), flush(fd))[1]  # type: ignore[func-returns-value]
    coord.terminals.record(generation, "succeeded")
    assert len(flushed) == 2
    for wrong in ("", "Not A Word", "x" * 50):
        with pytest.raises(InvalidRecord):
            coord.terminals.record(generation, wrong)
    with pytest.raises(InvalidRecord):
        coord.terminals.record(generation, "succeeded", cache_sha256="00")


@pytest.mark.parametrize("digest", [None, "0" * 64])
def test_a_terminal_is_written_as_every_record_is(coord: Coordination, path: str, digest: str | None) -> None:
    generation = coord.generations.open("a")
    reason = 'sie sagte: "nein" \\ \x00\x1f\x7f\u2028 — 終 \U0001f600\n'
    said = coord.terminals.record(generation, "succeeded", reason, cache_sha256=digest)
    data = (home(path) / f"terminal-{generation.id}.json").read_bytes()
    fields = {"instance": "a", "generation_id": generation.id, "outcome": "succeeded", "reason": reason}
    assert data == record.encode({"v": 1, "cache_sha256": digest, "nonce": said.nonce} | fields)
    assert coord.terminals.read(generation) == replace(said, repeated=True)


@pytest.mark.parametrize("reason", [7, None, {"a": 1}, b"bytes", "half a pair \ud800"])
def test_a_reason_that_is_no_text_is_refused_and_nothing_is_written(
    coord: Coordination, path: str, reason: object
) -> None:
    generation = coord.generations.open("a")
    with pytest.raises(InvalidRecord, match="not a JSON record"):
        coord.terminals.record(generation, "succeeded", reason)  # type: ignore[arg-type]
    assert not [name for name in os.listdir(home(path)) if "terminal" in name]


def test_invariant_14_there_is_no_end_while_the_cleanup_is_unfinished(path: str) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    files = Arriving(nothing, fail)
    with Coordination.open(path, files=files) as coord:
        generation = coord.generations.open("a")
        coord.caches.write(generation, b"payload")
        with pytest.raises(StorageFailed, match="disk is full"):
            coord.conclude(generation, "succeeded")
        assert len(names(path, "terminal-")) == 1
        assert len(names(path, "held-")) == 1
        files._after = nothing
        ended = coord.conclude(generation, "succeeded")
        assert ended.cleaned == Cleaned("deleted")
        assert ended.terminal.repeated


def test_invariant_14_there_is_no_end_without_a_terminal(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    coord.caches.write(generation, b"payload")
    script = """
with Coordination.open(sys.argv[1]) as c, c.lease("a"):
    say("held"); hear()
"""
    with Child(script, path) as child:
        child.hear()
        with pytest.raises(LeaseBusy), coord.lease("a", timeout=0):
            coord.conclude(generation, "succeeded")
    assert names(path, "terminal-") == []
    assert coord.caches.read(generation) == b"payload"


def test_invariant_16_a_cache_is_set_aside_only_under_a_terminal(path: str) -> None:
    seen: list[list[Path]] = []
    files = Arriving(lambda: seen.append(names(path, "terminal-")), nothing)
    with Coordination.open(path, files=files) as coord:
        generation = coord.generations.open("a")
        coord.caches.write(generation, b"payload")
        coord.conclude(generation, "succeeded")
    assert [len(one) for one in seen] == [1]


def test_invariant_17_the_cache_of_a_replacement_is_left_alone(coord: Coordination) -> None:
    old = coord.generations.open("a")
    terminal = coord.terminals.record(old, "succeeded")
    new = coord.generations.replace(old)
    coord.caches.write(new, b"new payload")
    assert coord.caches.clean(terminal) == Cleaned("kept")
    assert coord.caches.read(new) == b"new payload"
    assert coord.caches.read(old) is None


def test_invariant_17_the_old_generations_cache_is_deleted_although_it_is_no_longer_current(
    coord: Coordination, path: str
) -> None:
    old = coord.generations.open("a")
    coord.caches.write(old, b"old payload")
    terminal = coord.terminals.record(old, "succeeded")
    coord.generations.replace(old)
    assert coord.caches.clean(terminal) == Cleaned("deleted")
    assert names(path, "cache") == []


def test_invariant_17_a_cache_that_arrived_before_the_move_is_put_back(path: str) -> None:
    with Coordination.open(path, files=Arriving(lambda: arrive(path, NEWER), nothing)) as coord:
        generation = coord.generations.open("a")
        coord.caches.write(generation, b"payload")
        assert coord.conclude(generation, "succeeded").cleaned == Cleaned("restored")
        assert (home(path) / "cache").read_bytes() == NEWER
        assert names(path, "held-") == []


def test_invariant_17_what_was_moved_by_mistake_is_kept_when_a_newer_cache_stands_live(path: str) -> None:
    files = Arriving(lambda: arrive(path, NEWER), lambda: arrive(path, NEWEST))
    with Coordination.open(path, files=files) as coord:
        generation = coord.generations.open("a")
        coord.caches.write(generation, b"payload")
        cleaned = coord.conclude(generation, "succeeded").cleaned
        assert cleaned.how == "retained"
        assert (home(path) / "cache").read_bytes() == NEWEST
        assert (home(path) / str(cleaned.evidence)).read_bytes() == NEWER
        assert coord.conclude(generation, "succeeded").cleaned == Cleaned("kept")


def test_invariant_18_what_was_set_aside_before_a_kill_is_deleted_and_never_live(
    coord: Coordination, path: str
) -> None:
    generation = coord.generations.open("a")
    coord.caches.write(generation, b"payload")
    script = """
from wakeful_coordination.posix import PosixFilesystem
class Stopping(PosixFilesystem):
    def rename(self, source, target, at):
        super().rename(source, target, at)
        if target.startswith("held-"): say("moved"); hear()
c = Coordination.open(sys.argv[1], files=Stopping())
c.conclude(c.generations.capture("a"), "succeeded")
"""
    with Child(script, path) as child:
        assert child.hear() == "moved"
        child.kill()
    assert len(names(path, "held-")) == 1
    arrive(path, NEWER)
    ended = coord.conclude(generation, "succeeded")
    assert ended.cleaned == Cleaned("deleted")
    assert (home(path) / "cache").read_bytes() == NEWER
    assert names(path, "held-") == []
    assert len(names(path, "terminal-")) == 1
    assert coord.outbox.pending() == []


def test_a_repair_finishes_a_cleanup_that_nobody_repeats(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    coord.caches.write(generation, b"payload")
    terminal = coord.terminals.record(generation, "succeeded")
    (home(path) / "cache").rename(home(path) / f"held-{generation.id}-{terminal.nonce}")
    assert coord.repair.instance("a").cleaned == (Cleaned("deleted"),)


def test_a_cache_known_by_its_digest_is_deleted_and_one_that_names_nobody_is_put_back(
    coord: Coordination, path: str
) -> None:
    from hashlib import sha256

    generation = coord.generations.open("a")
    arrive(path, b"no header here")
    digest = sha256(b"no header here").hexdigest()
    terminal = coord.terminals.record(generation, "succeeded", cache_sha256=digest)
    assert coord.caches.clean(terminal) == Cleaned("deleted")
    arrive(path, b"somebody else's")
    assert coord.caches.clean(terminal) == Cleaned("restored")
    assert (home(path) / "cache").read_bytes() == b"somebody else's"


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_stands_in_the_place_of_a_cache_is_never_followed_read_or_deleted(
    coord: Coordination, path: str, kind: str
) -> None:
    victim = Path(path).parent / "victim"
    victim.write_text("precious")
    generation = coord.generations.open("a")
    cache = home(path) / "cache"
    {"link": lambda: cache.symlink_to(victim), "fifo": lambda: os.mkfifo(cache), "directory": cache.mkdir}[kind]()
    cleaned = coord.conclude(generation, "succeeded").cleaned
    assert cleaned.how == ("retained" if kind == "directory" else "restored")
    assert victim.read_text() == "precious"
    standing = home(path) / (cleaned.evidence or "cache")
    assert {"link": standing.is_symlink, "fifo": standing.is_fifo, "directory": standing.is_dir}[kind]()
