"""File coordination: leases, terminals, transactions and the doorbell, each beside the bare system calls.

Counts are gates and are asserted; times are recorded beside what bounds them, measured in turns with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, lock_descriptor, unlock_descriptor
from row import Row, paired, percentile, spread

from wakeful_coordination import Coordination, Generation, Mutation
from wakeful_coordination.layout import instance_path

BUILD = Path(__file__).resolve().parent.parent / "build"
CONTENDERS = 8


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure; ``quick`` takes few samples of small roots: whether the bench works, not how fast."""
    BUILD.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="coordination-", dir=BUILD))
    try:
        with Coordination.open(str(place / "root")) as coord:
            yield from _warm(coord, quick)
            yield from _terminal(coord, quick)
            yield from _flushes(coord)
            yield from _contended(coord, quick)
            yield from _doorbell(coord, quick)
        yield from _cold(place, quick)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _timed(work: Callable[[], object], times: int) -> float:
    """Return microseconds for one call."""
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times * 1e6


def _in_turns(rounds: int, *works: Callable[[], float]) -> list[list[float]]:
    """Return each work's samples, one of each per round, in an order that changes."""
    samples: list[list[float]] = [[] for _ in works]
    order = random.Random(0)  # noqa: S311 - an order of samples keeps no secret
    for _ in range(rounds):
        for number in order.sample(range(len(works)), len(works)):
            samples[number].append(works[number]())
    return samples


def _at_most(row: Row, most: float, times: float) -> Row:
    """Give a row its target: so many microseconds, or so many times its limit where the machine leaves no room."""
    near = row.ratio is not None and row.ratio <= times
    target = f"≤ {most:g} {row.unit}, or ≤ {times:g} x the limit"
    return replace(row, target=target, met=row.value <= most or near)


class Least:
    """The least that a context in Python can do for a lease: lock a file, look at its length, unlock it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __enter__(self) -> None:
        if not lock_descriptor(self.fd, blocking=False) or os.lseek(self.fd, 0, os.SEEK_END):
            raise BlockingIOError

    def __exit__(self, *error: object) -> None:
        unlock_descriptor(self.fd)


def _warm(coord: Coordination, quick: bool) -> Iterator[Row]:
    names = [f"warm-{number}" for number in range(8)]
    for name in names:
        coord.generations.open(name)
    folder = Path(coord.root.path).parent
    fds = [os.open(folder / f"bare-{number}", os.O_RDWR | os.O_CREAT, 0o600) for number in range(8)]
    contexts = {name: Least(fd) for name, fd in zip(names, fds, strict=True)}
    locks = [FileLock(folder / f"filelock-{number}", fallback_to_soft=False) for number in range(8)]
    times, rounds = (200, 5) if quick else (5000, 15)

    def lease() -> None:
        with coord.lease(names[0]):
            pass

    def flock() -> None:
        fcntl.flock(fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fds[0], fcntl.LOCK_UN)

    def least() -> None:
        with contexts[names[0]]:
            pass

    def file_lock() -> None:
        with locks[0]:
            pass

    def nested() -> float:
        with coord.lease(names[0]):
            return _timed(lease, times)

    def eight() -> None:
        with coord.lease(*names):
            pass

    def least_eight() -> None:
        for name in names:
            contexts[name].__enter__()
        for name in names:
            contexts[name].__exit__(None, None, None)

    def eight_file_locks() -> None:
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)

    few = max(20, times // 20)
    ours, bare, lower, theirs, inner, sorted8, lower8, locks8 = _in_turns(
        rounds,
        lambda: _timed(lease, times),
        lambda: _timed(flock, times),
        lambda: _timed(least, times),
        lambda: _timed(file_lock, few),
        nested,
        lambda: _timed(eight, few),
        lambda: _timed(least_eight, few),
        lambda: _timed(eight_file_locks, few),
    )
    yield _at_most(paired("lease_warm_us", "us", ours, lower), 2, 1.6)
    yield paired("lease_warm_vs_flock", "us", ours, bare)
    yield paired("lease_warm_vs_filelock", "us", ours, theirs)
    yield paired("lease_nested_us", "us", inner, bare)
    yield _at_most(paired("lease_8_sorted_us", "us", sorted8, lower8), 20, 1.7)
    yield paired("lease_8_sorted_vs_filelock", "us", sorted8, locks8)
    for fd in fds:
        os.close(fd)


def _terminal(coord: Coordination, quick: bool) -> Iterator[Row]:
    generations = [coord.generations.open(f"terminal-{number}") for number in range(10 if quick else 150)]
    ours: list[float] = []
    bare: list[float] = []
    same: list[float] = []
    order = random.Random(1)  # noqa: S311 - an order of samples keeps no secret
    for generation in generations:
        home = Path(coord.root.path, instance_path(generation.instance))

        def record(one: Generation = generation) -> None:
            ours.append(_timed(lambda: coord.terminals.record(one, "succeeded"), 1))

        def two_fsyncs(place: Path = home) -> None:
            at = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            bare.append(_timed(lambda: _published(at, "bare.json"), 1))
            os.close(at)

        def same_calls(place: Path = home) -> None:
            same.append(_timed(lambda: _asked_and_published(place), 1))

        for work in order.sample([record, two_fsyncs, same_calls], 3):
            work()
    yield paired("terminal_vs_two_fsyncs", "us", ours, bare, most=1.2)
    yield paired("terminal_vs_same_calls", "us", ours, same)


def _published(at: int, name: str) -> None:
    fd = os.open(".bare", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=at)
    os.write(fd, b"x" * 220)
    os.fsync(fd)
    os.close(fd)
    os.rename(".bare", name, src_dir_fd=at, dst_dir_fd=at)
    os.fsync(at)


def _asked_and_published(home: Path) -> None:
    """Ask the kernel what a terminal must know (whose, which lease, which generation), and publish."""
    at = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    os.fstat(at)
    os.stat("lease", dir_fd=at, follow_symlinks=False)
    fd = os.open("generation.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    os.fstat(fd)
    json.loads(os.pread(fd, 4097, 0))
    os.close(fd)
    _published(at, "same.json")
    os.close(at)


def _flushes(coord: Coordination) -> Iterator[Row]:
    flush = coord.root.files.sync
    count = 0

    def counting(fd: int) -> None:
        nonlocal count
        count += 1
        flush(fd)

    coord.root.files.sync = counting  # type: ignore[method-assign]
    ended = coord.generations.open("flushes")
    count = 0
    coord.terminals.record(ended, "succeeded")
    yield _exactly("terminal_fsyncs", count, 2)
    generation = coord.generations.open("files")
    for files in (1, 2, 8):
        changes = [Mutation("files", f"state-f{number}.json", "{}") for number in range(files)]
        count = 0
        coord.transact(coord.transaction(generation, "note", {}, mutations=changes, kind="local"))
        yield _exactly(f"txn_fsyncs_k{files}", count, 3 + 2 * files)
    coord.root.files.sync = flush  # type: ignore[method-assign]


def _exactly(name: str, found: int, wanted: int) -> Row:
    assert found == wanted, f"{name}: {found}, not {wanted}"
    return Row(name, found, "calls", wanted, found / wanted, 1, 0.0, f"exactly {wanted}", True)


CONTENDER = """
import os, sys, time
from wakeful_coordination import Coordination
with Coordination.open(sys.argv[1]) as c:
    fd = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT, 0o600)
    with c.lease("contended"): pass
    print("ready", flush=True); sys.stdin.readline()
    waits, end = [], time.monotonic() + float(sys.argv[3])
    while time.monotonic() < end:
        start = time.perf_counter()
        with c.lease("contended"):
            waits.append(time.perf_counter() - start)
            os.pwrite(fd, b"x" * 800, 0); os.fdatasync(fd)
    print(" ".join(f"{w * 1e3:.4f}" for w in waits), flush=True)
"""


def _contended(coord: Coordination, quick: bool) -> Iterator[Row]:
    coord.generations.open("contended")
    folder = Path(coord.root.path).parent
    seconds = "0.3" if quick else "3"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", CONTENDER, coord.root.path, str(folder / f"hold-{number}"), seconds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for number in range(CONTENDERS)
    ]
    for one in crowd:
        assert one.stdout
        assert one.stdout.readline() == "ready\n"
    for one in crowd:
        assert one.stdin
        one.stdin.write("go\n")
        one.stdin.flush()
    waits = [[float(word) for word in one.communicate(timeout=120)[0].split()] for one in crowd]
    every = [wait for own in waits for wait in own]
    p99 = percentile(every, 99)
    yield Row("lease_contended_p99_ms", p99, "ms", n=len(every), spread=spread(every), target="≤ 25 ms", met=p99 <= 25)
    fairness = min(map(len, waits)) / max(map(len, waits))
    yield Row("lease_contended_fairness", fairness, "min/max", n=CONTENDERS, target="≥ 0.5", met=fairness >= 0.5)


def _doorbell(coord: Coordination, quick: bool) -> Iterator[Row]:
    heard = threading.Event()
    watcher = coord.watcher(heard.set, announce=lambda line: None, rescan=3600)
    watcher.start()
    heard.wait(10)
    samples = []
    for _ in range(20 if quick else 400):
        # A pause, so that each ring meets an idle watcher and no earlier ring's echo.
        select.select([], [], [], 0.005)
        heard.clear()
        start = time.perf_counter()
        coord.outbox.ring()
        assert heard.wait(10)
        samples.append((time.perf_counter() - start) * 1e3)
    watcher.stop()
    p99 = percentile(samples, 99)
    yield Row("doorbell_p50_ms", statistics.median(samples), "ms", n=len(samples), spread=spread(samples))
    yield Row("doorbell_p99_ms", p99, "ms", n=len(samples), spread=spread(samples), target="≤ 10 ms", met=p99 <= 10)


def _cold(place: Path, quick: bool) -> Iterator[Row]:
    path = str(place / "cold")
    sizes = (1, 100, 1000) if quick else (1, 1000, 100_000)
    costs: dict[int, float] = {}
    calls: dict[int, int | None] = {}
    made = 0
    Coordination.open(path).close()
    for size in sizes:
        for number in range(made, size):
            _populate(path, f"i{number}")
        made = size
        row = _cold_row(path, size, quick)
        costs[size], calls[size] = row.value, _cold_calls(path, size)
        yield _at_most(row, 6, 2)
        if calls[size] is not None:
            yield Row(f"lease_cold_syscalls_{size}", calls[size] or 0, "calls")
    _, middle, most = sizes
    assert calls[middle] == calls[most], f"system calls grow with the number of instances: {calls}"
    flat = costs[most] / costs[middle]
    yield Row("lease_cold_flatness", flat, "ratio", target="0.75 to 1.25", met=0.75 <= flat <= 1.25)


def _populate(path: str, instance: str) -> None:
    """Make an instance's directory and lease as the package does, without the flushes."""
    home = f"{path}/{instance_path(instance)}"
    os.mkdir(home, 0o700)
    os.close(os.open(f"{home}/lease.keep", os.O_CREAT | os.O_WRONLY, 0o600))
    os.link(f"{home}/lease.keep", f"{home}/lease")


def _cold_row(path: str, size: int, quick: bool) -> Row:
    order = random.Random(2)  # noqa: S311 - an order of samples keeps no secret
    times, rounds = (50, 5) if quick else (1000, 15)
    with Coordination.open(path, keep=1) as coord:
        # With one instance there is nothing to make room for, and the lease stays open: that is the warm cost.
        def ours() -> float:
            names = [f"i{order.randrange(size)}" for _ in range(times)]
            start = time.perf_counter()
            for name in names:
                with coord.lease(name):
                    pass
            return (time.perf_counter() - start) / times * 1e6

        def bare() -> float:
            # The same questions of the kernel: which file is this, whose, is it free, is anything unfinished there?
            names = [f"{instance_path(f'i{order.randrange(size)}')}/lease" for _ in range(times)]
            start = time.perf_counter()
            for name in names:
                fd = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=coord.root.fd)
                os.fstat(fd)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.lseek(fd, 0, os.SEEK_END)
                fcntl.flock(fd, fcntl.LOCK_UN)
                os.close(fd)
            return (time.perf_counter() - start) / times * 1e6

        for _ in range(3):
            ours()
        mine, theirs = _in_turns(rounds, ours, bare)
    return paired(f"lease_cold_us_{size}", "us", mine, theirs)


COUNTED = """
import os, sys
from wakeful_coordination import Coordination
size = int(sys.argv[2])
with Coordination.open(sys.argv[1], keep=1) as c:
    for n in range(3):
        with c.lease(f"i{n % size}"): pass
    os.access("/begin", 0)
    for n in range(20):
        with c.lease(f"i{n % size}"): pass
    os.access("/end", 0)
"""


def _cold_calls(path: str, size: int) -> int | None:
    """Return the system calls of twenty leases of different instances; None without strace."""
    if shutil.which("strace") is None:
        return None
    trace = Path(path).parent / "trace"
    command = ["strace", "-o", str(trace), sys.executable, "-c", COUNTED, path, str(size)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    lines: Sequence[str] = trace.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if '"/begin"' in line)
    last = next(number for number, line in enumerate(lines) if '"/end"' in line)
    assert not any(line.startswith("getdents") for line in lines[first:last]), "a directory was read"
    # What the interpreter asks of its memory is not ours.
    return sum(not line.startswith(("brk", "mmap", "munmap", "madvise")) for line in lines[first + 1 : last])


if __name__ == "__main__":
    for each in rows(quick="--quick" in sys.argv):
        print(f"{each.name:28} {each.value:12.4g} {each.unit:8} ratio {each.ratio or 0:6.3g}  {each.target} {each.met}")
