"""The end of an agent: durable terminal, then finished cleanup, and only then the word that it has ended.

``agent.end`` is what a resume trusts, so the value that permits it cannot be had any other way.
"""

from __future__ import annotations

from dataclasses import dataclass

from wakeful_coordination.generation import Generation
from wakeful_coordination.held_cache import Cleaned, HeldCaches
from wakeful_coordination.terminal import Terminal, Terminals


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """Permission to record ``agent.end``: the terminal survives power loss and the cleanup is finished."""

    terminal: Terminal
    cleaned: Cleaned


def conclude(
    terminals: Terminals,
    caches: HeldCaches,
    captured: Generation,
    outcome: str,
    reason: str = "",
    *,
    cache_sha256: str | None = None,
) -> AgentEnd:
    """Record the terminal, clean the cache up, and return the permission to record agent.end.

    A retry after any crash repeats nothing. An error from the terminal means that the agent has failed; an
    error from the cleanup only delays the end: call again.
    """
    terminal = terminals.record(captured, outcome, reason, cache_sha256=cache_sha256)
    return AgentEnd(terminal, caches.clean(terminal))
