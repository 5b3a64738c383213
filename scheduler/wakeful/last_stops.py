"""The end of every child, where a scheduler that ends is to leave none."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from wakeful.endings import Endings
from wakeful.executions import RunKey
from wakeful.starts import Starts
from wakeful.watch import Watch


def stop_all(
    watch: Watch, endings: Endings, starts: Starts, condition: threading.Condition, deadline: float, message: str
) -> bool:
    """Ask every child to end, and wait for that until ``deadline``.

    Their ends are written as any other; what does not end in time is adopted by the next scheduler.

    Arguments:
        condition: notified whenever an execution has left the watch.
        deadline: the machine's monotonic seconds.
        message: what the runs' rows say about it.

    Returns:
        whether all have ended and are written.
    """
    asked: set[RunKey] = set()
    while True:
        for key in watch.all():
            if key in asked:
                continue
            asked.add(key)
            endings.stop_message(key, message)
            watch.stop(key, timedelta(seconds=max(0.0, deadline - time.monotonic()) / 2))
        with condition:
            if not len(watch) and not len(starts):
                return True
            if time.monotonic() >= deadline:
                return False
            if asked.issuperset(watch.all()):
                condition.wait(deadline - time.monotonic())
