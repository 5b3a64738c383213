"""Explore every crash of a piece of work, and every crash of what recovers from it.

Each run of the real code on the model yields, after each of its changes, the disk that a SIGKILL leaves and
every disk that a power cut may leave. Each of those is recovered by the real code, whose own crashes are
explored in turn, ``depth`` times; disks that cannot be told apart are explored once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from wakeful_coordination.coordination import Coordination
from wakeful_coordination.machine import Machine
from wakeful_coordination.testing.disk import Disk, Key
from wakeful_coordination.testing.flush import ROOT, Flush
from wakeful_coordination.testing.weakest_posix import MOUNTINFO, WeakestPosix

#: A power cut ends every session and loses every ring: what is left of them is never asked.
_LOST = frozenset({f"{ROOT}/sessions", f"{ROOT}/doorbell"})

#: What was acknowledged so far, in order.
Acks = list[str]
Work = Callable[[Coordination, Acks], object]
#: Looks at a disk as a crash left it; returns what is wrong with it.
Look = Callable[[Disk, Sequence[str]], Sequence[str]]
#: Looks at a recovered root; returns what is wrong with it.
Check = Callable[[Coordination, Disk, Sequence[str]], Sequence[str]]


@dataclass(slots=True)
class Explored:
    """What an exploration found."""

    states: int = 0
    violations: list[str] = field(default_factory=list)
    flushes: set[Flush] = field(default_factory=set)


@dataclass(slots=True)
class _State:
    disk: Disk
    acks: tuple[str, ...]
    boot: int
    depth: int


class Explorer:
    """Explores work done on the disk that ``prepare`` leaves.

    ``recover`` is done after each crash, in a new process; ``look`` judges each crashed disk and ``check``
    each recovered one. ``before`` is called with the disk and a step number ahead of each change of the first
    run: the doings of other processes.
    """

    def __init__(
        self,
        prepare: Work,
        work: Work,
        recover: Work,
        *,
        look: Look = lambda disk, acks: (),
        check: Check,
        before: Callable[[Disk, int, Acks], None] = lambda disk, step, acks: None,
        deaf: Callable[[Flush], bool] = lambda flush: False,
        noreplace: bool = True,
        depth: int = 2,
        thorough: bool = False,
        enough: int | None = None,
    ) -> None:
        self._prepare = prepare
        self._work = work
        self._recover = recover
        self._look = look
        self._check = check
        self._before = before
        self._deaf = deaf
        self._noreplace = noreplace
        self._depth = depth
        self._thorough = thorough
        self._enough = enough
        self._seen: set[Key] = set()
        self._queue: list[_State] = []
        self.found = Explored()

    def run(self) -> Explored:
        """Explore; ends early when ``enough`` violations have been found."""
        disk = Disk()
        files = WeakestPosix(disk)
        with _process(files, boot=0, number=0) as first:
            self._prepare(first, [])
        for path in list(disk.pending):
            disk.sync_directory(path)
        self._explore(_State(disk, (), 0, 0), self._work)
        while self._queue and not self._satisfied():
            self._explore(self._queue.pop(), self._recover)
        return self.found

    def _satisfied(self) -> bool:
        return self._enough is not None and len(self.found.violations) >= self._enough

    def _explore(self, state: _State, work: Work) -> None:
        self.found.states += 1
        disk = state.disk.copy()
        acks = list(state.acks)
        crashed = state.depth < self._depth

        def after() -> None:
            if crashed and not self._satisfied():
                self._crashes(disk, state, acks)

        def before(step: int) -> None:
            if state.depth == 0:
                self._before(disk, step, acks)

        files = WeakestPosix(disk, after=after, before=before, deaf=self._deaf, noreplace=self._noreplace)
        after()
        try:
            coordination = _process(files, boot=state.boot, number=state.depth + 1)
            work(coordination, acks)
            after()
            # What is judged must not depend on what the judge itself repairs.
            self._report(state, self._check(coordination, disk, acks))
        except Exception as error:
            self._report(state, [f"{type(error).__name__}: {error}"])
        self.found.flushes.update(files.flushes)

    def _crashes(self, disk: Disk, state: _State, acks: Acks) -> None:
        self._arrive(_State(disk, tuple(acks), state.boot, state.depth + 1), copy=True)
        for left in disk.power_cuts(_LOST, thorough=self._thorough):
            self._arrive(_State(left, tuple(acks), state.boot + 1, state.depth + 1), copy=False)

    def _arrive(self, state: _State, *, copy: bool) -> None:
        key = (state.disk.key(visible=state.depth == self._depth), state.acks, state.boot, state.depth)
        if key in self._seen:
            return
        self._seen.add(key)
        self._report(state, self._look(state.disk, state.acks))
        if copy:
            state.disk = state.disk.copy()
        self._queue.append(state)

    def _report(self, state: _State, wrong: Sequence[str]) -> None:
        for one in wrong:
            self.found.violations.append(f"after {state.depth} crashes, {list(state.acks)}: {one}")


def _process(files: WeakestPosix, *, boot: int, number: int) -> Coordination:
    """Open the model's root as a process of its own would."""
    given = iter(range(1, 1 << 20))

    def new_id() -> str:
        return f"{number:02d}{next(given):030d}"

    return Coordination.open(
        ROOT,
        files=files,
        machine=Machine(f"boot-{boot}", "model", 100 + number, 1, "pid:[1]"),
        mountinfo=MOUNTINFO,
        now=lambda: datetime(2026, 11, 30, tzinfo=UTC),
        new_id=new_id,
    )
