"""How fast due wakes become ended runs, against a batch that judges nothing."""

from __future__ import annotations

import time

import stage
from row import Row, paired
from stage import PATIENCE, Stage

from wakeful.testing import Server

BATCH = 100
HISTORY = 500


def rows(server: Server, *, quick: bool) -> list[Row]:
    """Drain due wakes with all gates judged, without and with limits that apply."""
    many, rounds = (200, 1) if quick else (10_000, 3)
    plain: list[tuple[float, float]] = []
    limited: list[float] = []
    for _ in range(rounds):
        plain.append((_scheduled(server, many, limits=False), _by_hand(server, many)))
        limited.append(_scheduled(server, many, limits=True))
    ours, bare = [p[0] for p in plain], [p[1] for p in plain]
    return [
        paired("drain_per_s", "1/s", ours, bare, least=0.4, floor=3000),
        paired("drain_limited_per_s", "1/s", limited, bare),
    ]


def _filled(here: Stage, many: int) -> None:
    """Fill a database that has already seen some runs, so that its statistics say what it is about."""
    here.issues(HISTORY, prefix="old")
    here.run("due")
    _drain_by_hand(here)
    here.run("age")
    here.run("paid")
    here.issues(many)
    here.run("due")
    here.run("vacuum")


def _scheduled(server: Server, many: int, *, limits: bool) -> float:
    """From the scheduler's start to the last run's end."""
    with stage.stage(server, at_once=1000 if limits else None) as here:
        if limits:
            here.run("budget")
        _filled(here, many)
        with here.acting("schedule") as acting:
            start = acting.start + here.offset()
            deadline = time.monotonic() + PATIENCE
            while here.run("pending")[0][0]:
                assert time.monotonic() < deadline, "the wakes were not drained in time"
                time.sleep(0.1)
        count, end = here.run("ended")[0]
        assert count == many, f"{count} of {many} runs succeeded"
        return float(many / (end - start))


def _by_hand(server: Server, many: int) -> float:
    with stage.stage(server) as here:
        _filled(here, many)
        start = time.monotonic()
        _drain_by_hand(here)
        seconds = time.monotonic() - start
        assert here.run("ended")[0][0] == many
        return many / seconds


def _drain_by_hand(here: Stage) -> None:
    while runs := [run for (run,) in here.run("batch_admit", limit=BATCH)]:
        for block in ("batch_claim", "batch_finish"):
            here.run(block, runs=runs)
