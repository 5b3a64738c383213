"""A scheduler in a process of its own, which tests kill: at a crash point, by a signal, or not at all.

One argument, a JSON object: dsn, data, host, crash (name of the crash point at which it kills itself, or ""), arrival
(which arrival there), lease (seconds of length, renewal, margin), grace (seconds), stop_children, environment
(variables to set), disk (a step of the coordination root before which, or "after" which, it kills itself, or ""),
fork (whether it forks once it is ready; the child ends its copy of the scheduler, and lives on).
Prints ``ready`` when it has looked around, and ends as a scheduler ends.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.disks import killing

import wakeful
from wakeful import config, plugins
from wakeful.control import Pace
from wakeful.reaper import Lease
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing import KillAt
from wakeful_plugins.local_executor import LocalExecutor
from wakeful_plugins.run_ends import RunEnds

TICK = timedelta(seconds=0.1)


class QuickExecutor:
    """The local executor with short waits, and a crash point."""

    def __init__(self, crash: KillAt) -> None:
        self._crash = crash

    @wakeful.hookimpl
    def register_executors(self, config: config.Config) -> list[LocalExecutor]:
        patience = timedelta(seconds=5)
        return [LocalExecutor(config.data, poll=TICK, drain=patience, patience=patience, crash=self._crash)]


class KilledEnds:
    """The ends of runs on a disk on which the process kills itself at one step."""

    def __init__(self, step: str) -> None:
        self._step = step.removeprefix("after ")
        self._after = step.startswith("after ")

    @wakeful.hookimpl
    def register_attendants(self, config: config.Config) -> list[RunEnds]:
        return [RunEnds(config.data, files=lambda: killing(self._step, after=self._after))]


class AnnouncedScheduler(Scheduler):
    """Says when it is ready."""

    forks = False

    def start(self) -> None:
        super().start()
        threading.Thread(target=self._announce, daemon=True).start()

    def _announce(self) -> None:
        if self.wait_ready(30):
            if self.forks and os.fork() == 0:
                self.stop()
                while True:
                    signal.pause()
            sys.stdout.write("ready\n")
            sys.stdout.flush()


def main(orders: dict[str, Any]) -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(relativeCreated)d %(name)s %(message)s")
    os.environ.update(orders["environment"])
    crash = KillAt(orders["crash"], orders["arrival"])
    flags = {
        "dsn": orders["dsn"],
        "data": orders["data"],
        "host": orders["host"],
        "shutdown_grace": f"{orders['grace']}s",
        "stop_children": orders["stop_children"],
        "plugins_disabled": "local_executor",
    }
    ends = []
    if orders["disk"]:
        flags["plugins_disabled"] += ",coordination"
        ends = [KilledEnds(orders["disk"])]
    settings = config.load(flags, {}, Path("/"))
    hooks = plugins.load(settings, plugins=[QuickExecutor(crash), *ends])
    length, renewal, margin = (timedelta(seconds=seconds) for seconds in orders["lease"])
    pace = Pace(keep_alive=timedelta(seconds=0.5), frozen=timedelta(seconds=5), contend=timedelta(seconds=0.5))
    tuning = Tuning(pace=pace, lease=Lease(length, renewal, margin), crash=crash)
    scheduler = AnnouncedScheduler(settings, hooks, tuning=tuning)
    scheduler.forks = orders["fork"]
    return scheduler.run_until_signalled()


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
