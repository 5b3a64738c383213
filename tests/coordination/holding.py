"""Holding instances: in a child, and as asked from here."""

from __future__ import annotations

from wakeful_coordination import Coordination
from wakeful_coordination.errors import LeaseBusy

HOLDER = """
with Coordination.open(sys.argv[1]) as c:
    with c.lease(*sys.argv[2:]):
        say("held", c.root.sid)
        hear()
    say("released")
    hear()
"""


def opened(coord: Coordination, *instances: str) -> None:
    for instance in instances:
        coord.generations.open(instance)


def busy(coord: Coordination, instance: str) -> bool:
    try:
        with coord.lease(instance, timeout=0):
            return False
    except LeaseBusy:
        return True
