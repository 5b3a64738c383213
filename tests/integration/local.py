"""Schedulers in this process whose runs are real child processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wakeful import config, plugins
from wakeful.clock import Clock, SystemClock
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing import Database


def scheduler(
    database: Database, data: Path, *, host: str = "here", clock: Clock | None = None, **flags: Any
) -> Scheduler:
    """Return a scheduler that is not started yet."""
    settings = config.load({"dsn": database.dsn, "data": str(data), "host": host, **flags}, {}, Path("/"))
    return Scheduler(settings, plugins.load(settings), tuning=Tuning(clock=clock or SystemClock()))
