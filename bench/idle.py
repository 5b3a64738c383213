"""What the scheduler sends while nothing is due."""

from __future__ import annotations

import time

import stage
from row import Row
from stage import Stage

from wakeful.testing import Server, Statements


def rows(server: Server, *, quick: bool) -> list[Row]:
    """Count statements beside 1 000 parked and 1 000 sleeping wakes."""
    many, window = (100, 0.5) if quick else (1000, 15.0)
    with stage.stage(server) as here:
        here.run("pause", agent="agent2")
        here.run("parked", many=many)
        here.run("sleeping", many=many)
        with here.acting("schedule"):
            return [_silence(here, window)]


def _silence(here: Stage, window: float) -> Row:
    with Statements(here.database) as statements:
        time.sleep(0.5)  # what belongs to the start is over
        statements.reset()
        time.sleep(window)
        count = statements.count()
    return Row("idle_statements_per_min", count * 60 / window, "1/min", n=1, target="0", met=count == 0)
