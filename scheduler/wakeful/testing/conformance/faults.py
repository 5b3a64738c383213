"""Rules about what may go wrong: rivals, newer generations, locks that others hold, SIGKILL, failures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from uuid import UUID

from wakeful import config, producers, store
from wakeful.admission import Admission
from wakeful.crash_points import CrashPoint
from wakeful.scheduler import Tuning
from wakeful.testing.clock import VirtualClock, WatchedClock
from wakeful.testing.conformance.stage import COMPANY, OTHER, Stage, hooks_of, standing
from wakeful.testing.conformance.timing import others
from wakeful.testing.instant import InstantExecutor
from wakeful.testing.statements import Statements

RIVALS = 4
RECOVERY = 61.0  # seconds after which claims and failures of an intent, and any back-off, are over
# Where an owner's receipt is on its way; what comes later is the run's.
KILLS = tuple(point for point in CrashPoint if point.value.split("_")[0] not in ("run", "spawn", "stop", "exit"))


def settles_once(stage: Stage) -> None:
    """However many judge a receipt at once, one run comes of it."""
    wakes = [stage.save() for _ in range(5)]
    flags = {"dsn": stage.database.dsn, "data": str(stage.directory), "host": "rival"}
    settings = config.load(flags, {}, stage.directory)
    begin = threading.Barrier(RIVALS)
    errors: list[BaseException] = []

    def rival() -> None:
        try:
            hooks = hooks_of(settings, stage.case.plugins, InstantExecutor())
            admission = Admission(hooks.owners(), hooks.gates())
            conn = stage.database.connect(purpose="conformance rival")
            begin.wait(stage.patience)
            admission.admit(conn, COMPANY, dict.fromkeys(wakes, False))
        except BaseException as error:
            errors.append(error)

    rivals = [threading.Thread(target=rival) for _ in range(RIVALS)]
    for thread in rivals:
        thread.start()
    for thread in rivals:
        thread.join()
    if errors:
        raise stage.broken(f"a pass among rivals raised {errors[0]!r}", "who comes second changes nothing")
    with stage.scheduler():
        stage.until_run_once(*wakes)


def honours_generation(stage: Stage) -> None:
    """A certified receipt never runs beside its source, whatever generation that has reached, and is not lost."""
    saved = stage.save_beside_source()
    if saved is None:
        return
    wake, source = saved
    with stage.scheduler():
        for _ in range(2):
            stage.until(
                lambda: stage.runs_of(wake) or stage.look(wake).wait_gate or stage.look(wake).state != "deferred",
                lambda: f"beside its living source the receipt is {standing(stage.look(wake))}",
                "it waits for the end of its source",
            )
            if stage.runs_of(wake) or stage.look(wake).state != "deferred":
                row = standing(stage.look(wake))
                raise stage.broken(f"beside its living source the receipt went to {row}", "it waits for that run's end")
            stage.overtake(source)
            producers.run(stage.conn, producers.signal_gate(COMPANY, "issue", stage.wakes[wake].issue))
        producers.run(stage.conn, producers.stop_run(COMPANY, source))
        stage.until_run_once(wake)
        if stage.runs_of(wake)[0].retry_of != source:
            raise stage.broken("the run does not say which run it repeats", "Proceed(retry_of=the certified run)")


def idles(stage: Stage) -> None:
    """Disabled by a setting, or without the owners' lock, an owner touches nothing."""
    wake = stage.save()
    before = stage.look(wake)
    producers.run(stage.conn, producers.set_setting("owners_enabled", False))
    clock = WatchedClock(stage.database.connect(purpose="conformance clock"))
    with stage.scheduler(Tuning(clock=clock)):
        clock.settle()
        with Statements(stage.database) as statements:
            ran = others(statements, clock, timedelta(minutes=2))
        _untouched(stage, wake, before, "owners are disabled by a setting")
        if ran:
            raise stage.broken(f"owners are disabled, and this ran: {next(iter(ran))[:200]}", "no statement")
    producers.run(stage.conn, producers.set_setting("owners_enabled", True))
    holder = stage.database.connect(purpose="conformance holder")
    store.run(holder, "conformance.take_owners_lock")
    with stage.scheduler(Tuning(clock=clock), name="standby"):
        clock.step(120)
        _untouched(stage, wake, before, "another scheduler holds the owners' lock")
    holder.close()
    with stage.scheduler():
        stage.until_run_once(wake)


def _untouched(stage: Stage, wake: UUID, before: object, why: str) -> None:
    after = stage.look(wake)
    if after != before:
        raise stage.broken(f"{why}, and yet the receipt went from {standing(before)} to {standing(after)}", "no change")


def survives_sigkill(stage: Stage) -> None:
    """Killed before or after any commit, the receipt still leads to exactly one run."""
    clock = VirtualClock(stage.database.connect(purpose="conformance clock"))
    for point in KILLS:
        wake = stage.save()
        orders = {
            "dsn": stage.database.dsn,
            "data": str(stage.directory / "killed"),
            "plugins": list(stage.case.plugins),
            "point": point.value,
            "wakes": [str(wake)],
            "patience": stage.patience,
        }
        victim = subprocess.run(
            [sys.executable, "-m", "wakeful.testing.conformance.victim"],
            input=json.dumps(orders),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=6 * stage.patience,
            check=False,
        )
        if victim.returncode not in (0, -signal.SIGKILL):
            raise stage.broken(f"a scheduler that was to die at {point} failed: {victim.stderr[-500:]}", "its death")
        clock.advance(RECOVERY)
        with stage.scheduler(Tuning(clock=clock), name="killed"):
            try:
                stage.until_run_once(wake)
            except AssertionError as error:
                raise stage.broken(f"killed at {point}: {error}", "nothing is lost and nothing runs twice") from error


def keeps_exits_apart(stage: Stage) -> None:
    """The clock, the gate and the failure are three exits, and none poses as another."""
    clock = WatchedClock(stage.database.connect(purpose="conformance clock"))
    later = stage.save(by=OTHER)
    stage.move(86400, later)
    untouched = stage.look(later)
    with stage.scheduler(Tuning(clock=clock)):
        stage.block()
        closed = stage.save()
        stage.until(
            lambda: stage.look(closed).wait_gate or stage.look(closed).error or stage.look(closed).state == "coalesced",
            lambda: f"behind its closed gate the receipt is {standing(stage.look(closed))}",
            "it waits, and its row says for what",
        )
        row = stage.look(closed)
        if row.error or row.failures:
            raise stage.broken(
                f"a closed gate became a failure ({row.error})", "a refusal is a value; nothing is raised"
            )
        stage.reopen()
        stage.until_run_once(closed)
        with stage.conn.transaction():
            failed = stage.save()
            waited_on = stage.look(failed).wait_gate
            stage.run_by_hand("break_writes")
        stage.until(
            lambda: stage.look(failed).error or stage.look(failed).state not in ("deferred", "queued", "claimed"),
            lambda: f"a receipt whose write fails is {standing(stage.look(failed))}",
            "its row keeps the error and the next try",
        )
        row = stage.look(failed)
        if row.wait_gate not in (None, waited_on) or not row.due_at:
            raise stage.broken(f"a failure became a wait ({standing(row)})", "an error, and a next try by the clock")
        stage.run_by_hand("mend_writes")
        clock.advance(RECOVERY)
        stage.until_run_once(failed)
    if untouched.wait_gate is None and stage.look(later) != untouched:
        raise stage.broken(f"a receipt that was not due went to {standing(stage.look(later))}", "an untouched row")


CHECKS = (settles_once, honours_generation, idles, survives_sigkill, keeps_exits_apart)
