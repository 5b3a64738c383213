"""Rules about when an owner works: after a restart, in pages, at a deadline, not at all, at its gate's opening."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from wakeful import producers
from wakeful.scheduler import Tuning
from wakeful.testing.clock import WatchedClock
from wakeful.testing.conformance.stage import COMPANY, Stage, standing
from wakeful.testing.statements import Statements

MANY = 230  # receipts: more than two pages
LONG = timedelta(minutes=25)


def reconstructs(stage: Stage) -> None:
    """What was saved, or opened, while nobody listened is found by the next start: the row is the only truth."""
    early = [stage.save() for _ in range(3)]
    with stage.scheduler():
        stage.until_run_once(*early)
        stage.block()
        late = stage.save()
        stage.until(
            lambda: stage.look(late).wait_gate or stage.look(late).state not in ("deferred", "queued", "claimed"),
            lambda: f"behind its closed gate the receipt is {standing(stage.look(late))}",
            "it waits, and its row says for what",
        )
    stage.reopen()
    with stage.scheduler():
        stage.until_run_once(late)


def pages(stage: Stage) -> None:
    """Ties, inserts and deletes on the way lose and repeat nothing."""
    stage.block()
    wakes = stage.save_many(MANY)
    stage.tie(wakes)
    with stage.scheduler():
        stage.until(
            lambda: all(row.wait_gate for row in stage.pending()),
            lambda: f"{sum(not row.wait_gate for row in stage.pending())} of {MANY} receipts are not parked",
            "each waits behind the closed gate",
        )
        gone = wakes[MANY // 2 :: 40]
        stage.reopen()
        for wake in gone:
            if stage.look(wake).state == "deferred":
                producers.run(stage.conn, producers.retire_wake(COMPANY, wake))
        late = [stage.save() for _ in range(3)]
        left = [wake for wake in wakes if stage.look(wake).state != "cancelled"]
        stage.until_run_once(*left, *late)


def rereads(stage: Stage) -> None:
    """At the deadline the row is read again, and what it says then counts."""
    clock = _clock(stage)
    moved = stage.save()
    # What waits on a gate is looked at when that opens, whatever its deadline says.
    waits = stage.look(moved).wait_gate is not None
    stage.move(60, moved)
    with stage.scheduler(Tuning(clock=clock)):
        clock.settle()
        stage.move(3600, moved)
        clock.step(61)
        if stage.runs_of(moved) and not waits:
            raise stage.broken(
                "a receipt whose deadline had moved to an hour later ran at the old one", "it is left alone"
            )
        clock.advance(3600)
        stage.until_run_once(moved)
        if stage.case.spoil is None:
            return
        stage.block()
        spoiled = stage.save()
        stage.until(
            lambda: stage.look(spoiled).wait_gate or stage.look(spoiled).state == "coalesced",
            lambda: f"behind its closed gate the receipt is {standing(stage.look(spoiled))}",
            "it waits, and its row says for what",
        )
        with stage.conn.transaction():
            stage.case.spoil(stage.conn, stage.wakes[spoiled])
        stage.reopen()
        stage.until(
            lambda: not stage.pending([stage.wakes[spoiled].issue]),
            lambda: f"a receipt that lost its authority is {standing(stage.look(spoiled))}",
            "it ends without a run",
        )
        if stage.runs_of(spoiled):
            raise stage.broken("a receipt ran after it had lost its authority", "facts are judged anew at each look")


def silent(stage: Stage) -> None:
    """Behind a closed gate, once its grace is over, a receipt costs no statement."""
    clock = _clock(stage)
    stage.block()
    wake = stage.save()
    with stage.scheduler(Tuning(clock=clock)), Statements(stage.database) as statements:
        clock.settle()
        for _ in range(3):
            clock.step(31)
        before = stage.look(wake)
        ran = others(statements, clock, LONG)
        if ran:
            raise stage.broken(
                f"{sum(ran.values())} statements in {LONG} behind a closed gate, as: {next(iter(ran))[:200]}",
                "none: no deadline and no changing reason, while nothing has changed",
            )
        after = stage.look(wake)
        if (before.version, before.due_at, before.state) != (after.version, after.due_at, after.state):
            raise stage.broken("the receipt changed while its gate stayed closed", "an untouched row")
        if stage.runs_of(wake):
            raise stage.broken("the receipt ran behind a closed gate", "no run")


def wakes(stage: Stage) -> None:
    """The commit that opens the gate wakes what waits behind it: no restart, no polling, no clock."""
    clock = _clock(stage)  # runs as the real one does; it tells when the pass that parked has had its second look
    stage.block()
    wake = stage.save()
    with stage.scheduler(Tuning(clock=clock)):
        stage.until(
            lambda: stage.pending() and all(row.wait_gate for row in stage.pending()),
            lambda: f"behind its closed gate the receipt is {standing(stage.look(wake))}",
            "it waits, and its row says for what",
        )
        clock.settle()
        stage.reopen()
        issue = [stage.wakes[wake].issue]
        stage.until(
            lambda: not stage.pending(issue),
            lambda: f"its gate is open, and yet the receipt {', '.join(standing(row) for row in stage.pending(issue))}",
            "a refusal names the gate and the key that the producer signals",
        )
        stage.until_run_once(wake)


def others(statements: Statements, clock: WatchedClock, by: timedelta, steps: int = 5) -> Counter[str]:
    """Advance in steps, and return what ran meanwhile beside the clock's own statements."""
    statements.reset()
    clock.advance(0)
    own = Counter({one.text: one.calls * steps for one in statements.executed()})
    clock.settle()
    statements.reset()
    for _ in range(steps):
        clock.step(by / steps)
    return Counter({one.text: one.calls for one in statements.executed()}) - own


def _clock(stage: Stage) -> WatchedClock:
    return WatchedClock(stage.database.connect(purpose="conformance clock"))


CHECKS = (reconstructs, pages, rereads, silent, wakes)
