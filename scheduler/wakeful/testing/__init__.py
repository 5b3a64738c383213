"""The testing kit: real PostgreSQL, one clock for database and driver, crash points, lock waits, statement counts.

``wakeful.testing.conformance`` holds the rules that every owner keeps. Imported by tests, benches and the demo only.
Each name is loaded from its module when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wakeful.testing.blocking import Blocked, expect_blocked
    from wakeful.testing.clock import VirtualClock, WatchedClock
    from wakeful.testing.crash import HoldAt, KillAt
    from wakeful.testing.database import Database, Server
    from wakeful.testing.instant import InstantExecutor
    from wakeful.testing.statements import Statements

_HOMES = {
    "Blocked": "blocking",
    "Database": "database",
    "HoldAt": "crash",
    "InstantExecutor": "instant",
    "KillAt": "crash",
    "Server": "database",
    "Statements": "statements",
    "VirtualClock": "clock",
    "WatchedClock": "clock",
    "expect_blocked": "blocking",
}

__all__ = [
    "Blocked",
    "Database",
    "HoldAt",
    "InstantExecutor",
    "KillAt",
    "Server",
    "Statements",
    "VirtualClock",
    "WatchedClock",
    "expect_blocked",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
