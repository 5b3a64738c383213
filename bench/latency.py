"""From the call that makes a wake eligible to its run's row, and what a due wake is late."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import stage
from psycopg import Connection
from row import Row, paired, percentile, spread
from stage import Stage

from wakeful.testing import Server


class Side:
    """One of the two programs on its stage, with somebody who listens."""

    def __init__(self, here: Stage, backend: int) -> None:
        self.here = here
        self.backend = backend
        self.ear = here.ear()
        self.offset = here.offset()
        self._serial = 0

    def open_gate(self) -> float:
        """Return the milliseconds from the call that opens a gate to the row of the run that waited for it."""
        issue = self._issue()
        self.here.run("pause", agent="agent1")
        self.here.run("park_one", agent="agent1", issue=issue)
        return self._timed(lambda: self.here.run("resume", agent="agent1"))

    def request(self) -> float:
        """Return the milliseconds from the call that requests a wake to its run's row."""
        issue = self._issue()
        return self._timed(lambda: self.here.run("request", agent="agent1", issue=issue, at=None))

    def late(self, after: float) -> float:
        """Return the milliseconds by which one wake, requested ``after`` seconds ahead, was late."""
        due: float = self.here.run("request_later", agent="agent4", after=after)[0][1].timestamp()
        return (stage.admitted(self.ear, self.backend) + self.offset - due) * 1000

    def _issue(self) -> str:
        self._serial += 1
        return f"issue{self._serial}"

    def _timed(self, call: Callable[[], Any]) -> float:
        start = time.time()
        call()
        return (stage.admitted(self.ear, self.backend) - start) * 1000


def rows(server: Server, *, quick: bool) -> list[Row]:
    """Measure releases, requests and deadlines of the scheduler, in turns with the bare loop."""
    pairs, isolated, sleeping, stream = (5, 3, 100, 20) if quick else (200, 30, 100_000, 1000)
    with contextlib.ExitStack() as stack:
        sides = []
        for program in ("schedule", "replay"):
            here = stack.enter_context(stage.stage(server))
            here.issues(2 * pairs + 50, agents=1)
            if program == "schedule":
                here.run("sleeping", many=sleeping)
            here.run("vacuum")
            sides.append(Side(here, stack.enter_context(here.acting(program)).backend))
        ours, limit = sides
        for side in sides:
            for _ in range(2 if quick else 10):  # plans and caches are made
                side.open_gate()
                side.request()
        found = []
        for name, most, once in (
            ("wake_latency_p50", 1.5, Side.open_gate),
            ("request_latency_p50", None, Side.request),
        ):
            samples = [(once(ours), once(limit)) for _ in range(pairs)]
            found.append(paired(name, "ms", [s[0] for s in samples], [s[1] for s in samples], most=most))
        found.append(_isolated(ours, limit, isolated))
        found.append(_stream(ours, stream, 0.01 * stream, after=0.5 if quick else 2.0))
        return found


def _isolated(ours: Side, limit: Side, many: int) -> Row:
    samples = [(ours.late(0.15), limit.late(0.15)) for _ in range(many)]
    mine, theirs = [s[0] for s in samples], [s[1] for s in samples]
    worst, bare = percentile(mine, 99), percentile(theirs, 99)
    assert min(mine) >= -0.5, "a run came early"
    return Row("deadline_lateness_p99", worst, "ms", bare, worst / bare, many, spread(mine), "≤ 10 ms", met=worst <= 10)


def _stream(ours: Side, many: int, seconds: float, *, after: float) -> Row:
    """Many deadlines, evenly spread: each run's commit is the first one heard of after its row was written."""
    here = ours.here
    here.run("request_stream", many=many, after=after, step=seconds / many)
    due = dict(here.run("deadlines"))
    heard = _commits(ours.ear, ours.backend, until=time.time() + after + seconds + 1.0)
    late = []
    for wake, written in here.run("runs"):
        if wake in due:
            commit = next(moment for moment in heard if moment + ours.offset >= written)
            late.append((commit + ours.offset - due[wake]) * 1000)
    assert len(late) == many, f"{len(late)} of {many} ran"
    worst = percentile(late, 99)
    return Row(
        "deadline_lateness_p99_stream", worst, "ms", n=many, spread=spread(late), target="≤ 10 ms", met=worst <= 10
    )


def _commits(ear: Connection[Any], backend: int, until: float) -> list[float]:
    heard = []
    for notification in ear.notifies(timeout=until - time.time()):
        if notification.pid == backend and json.loads(notification.payload)["t"] == "dispatch":
            heard.append(time.time())
    return heard
