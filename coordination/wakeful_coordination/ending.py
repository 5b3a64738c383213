"""The end of an agent: durable terminal, then finished cleanup, and only then the word that it has ended.

``agent.end`` is what a resume trusts, so the value that permits it cannot be had any other way.
"""

from __future__ import annotations

from dataclasses import dataclass

from wakeful_coordination import layout, publish, record
from wakeful_coordination.generation import Generation
from wakeful_coordination.held_cache import Cleaned, HeldCaches
from wakeful_coordination.leases import Leases
from wakeful_coordination.root import Root
from wakeful_coordination.terminal import Terminal, Terminals

_LIMIT = 4096
_WHAT = "agent.end"


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
    error from the cleanup only delays the end: call again. Raises what :meth:`Terminals.record` and
    :meth:`HeldCaches.clean` raise.
    """
    terminal = terminals.record(captured, outcome, reason, cache_sha256=cache_sha256)
    return AgentEnd(terminal, caches.clean(terminal))


@dataclass(frozen=True, slots=True)
class Ended:
    """An agent.end as recorded: how the generation ended, and when that was recorded (ISO 8601)."""

    generation: Generation
    outcome: str
    at: str


class Ends:
    """Records and reads agent.end: a resume does not run again what has one."""

    def __init__(self, root: Root, leases: Leases) -> None:
        self._root = root
        self._leases = leases

    def record(self, permission: AgentEnd) -> Ended:
        """Record agent.end; on return it survives power loss. Idempotent: the first record stands.

        Works for retired and replaced generations too: what permits it is theirs. Raises what leases raise.
        """
        generation = permission.terminal.generation
        place = layout.instance_path(generation.instance)
        ended = Ended(generation, permission.terminal.outcome, self._root.now().isoformat(timespec="microseconds"))
        data = record.encode(
            {
                "v": layout.VERSION,
                "instance": generation.instance,
                "generation_id": generation.id,
                "outcome": ended.outcome,
                "at": ended.at,
            }
        )
        with self._leases.hold(generation.instance), self._leases.directory(generation.instance) as at:
            try:
                publish.new_file(self._root, at, _name(generation), data, place=place)
            except FileExistsError:
                known = self._bytes(at, generation)
                if known is None:
                    raise
                # Under a new inode: its first writer may have died before the flush.
                publish.replace_file(self._root, at, _name(generation), known, place=place)
                return _parsed(known, generation)
        return ended

    def read(self, generation: Generation) -> Ended | None:
        """Return a generation's agent.end as seen now; None where it has none.

        Raises InvalidRecord, UnsafePath, StorageFailed.
        """
        try:
            with self._root.directory(layout.instance_path(layout.instance_id(generation.instance))) as at:
                data = self._bytes(at, generation)
        except FileNotFoundError:
            return None
        return None if data is None else _parsed(data, generation)

    def _bytes(self, at: int, generation: Generation) -> bytes | None:
        place = layout.instance_path(generation.instance)
        return publish.read_file(self._root, at, _name(generation), place=place, limit=_LIMIT)


def _parsed(data: bytes, generation: Generation) -> Ended:
    found = record.decode(data, what=_WHAT, version=layout.VERSION)
    return Ended(generation, record.text(found, "outcome", what=_WHAT), record.text(found, "at", what=_WHAT))


def _name(generation: Generation) -> str:
    return f"end-{layout.record_id(generation.id, 'generation id')}.json"
