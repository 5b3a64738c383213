"""Terminals: how a generation of an instance ended, said once.

The terminal is one named file, which is record and commit in one: two flushes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from wakeful_coordination import layout, publish, record
from wakeful_coordination.errors import ContradictoryTerminal, InvalidRecord, Superseded
from wakeful_coordination.generation import Generation, require_current
from wakeful_coordination.leases import Leases
from wakeful_coordination.root import Root

_LIMIT = 16 * 1024
_WHAT = "terminal"
_OUTCOME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal that survives power loss: only :class:`Terminals` hands one out, after its flushes.

    ``nonce`` names the file under which this generation's cache is set aside; ``repeated`` says that an
    earlier call recorded it.
    """

    generation: Generation
    outcome: str
    reason: str
    cache_sha256: str | None
    nonce: str
    repeated: bool


class Terminals:
    """Record and read the terminals of a root."""

    def __init__(self, root: Root, leases: Leases) -> None:
        self._root = root
        self._leases = leases

    def record(
        self, captured: Generation, outcome: str, reason: str = "", *, cache_sha256: str | None = None
    ) -> Terminal:
        """Record how the captured generation ended; on return it survives power loss.

        ``outcome`` is a lower-case word; ``cache_sha256`` the digest of the cache it leaves, where known.
        The same outcome again returns the first record. Raises ContradictoryTerminal for another,
        NotCaptured, Superseded, and what leases raise.
        """
        if not isinstance(outcome, str) or not _OUTCOME.match(outcome):
            raise InvalidRecord(f"{str(outcome)[:40]!r} is no outcome", hint="a lower-case word such as succeeded")
        if cache_sha256 is not None and not _DIGEST.match(cache_sha256):
            raise InvalidRecord("cache_sha256 must be 64 hexadecimal digits")
        if not isinstance(captured, Generation):
            require_current(self._root, -1, None, new_work=False)
        instance = captured.instance
        name = _name(captured)
        with self._leases.hold(instance), (home := self._leases.directory(instance)) as at:
            try:
                require_current(self._root, at, captured, new_work=False, place=home.place)
            except Superseded:
                # What it said while it was current may still be repeated.
                before = self._again(at, captured, outcome)
                if before is None:
                    raise
                return before
            nonce = self._root.new_id()
            data = _encoded(captured, outcome, reason, cache_sha256, nonce)
            if len(data) > _LIMIT:
                raise InvalidRecord(f"a terminal of more than {_LIMIT} bytes", hint="shorten the reason")
            try:
                publish.new_file(self._root, at, name, data, place=home.place)
            except FileExistsError:
                before = self._again(at, captured, outcome)
                if before is not None:
                    return before
                raise
        return Terminal(captured, outcome, reason, cache_sha256, nonce, False)

    def _again(self, at: int, captured: Generation, outcome: str) -> Terminal | None:
        """Answer a repeated call, under a new inode: its first writer may have died before the flush."""
        place = layout.instance_path(captured.instance)
        data = publish.read_file(self._root, at, _name(captured), place=place, limit=_LIMIT)
        if data is None:
            return None
        before = _parsed(data, captured)
        if before.outcome != outcome:
            raise ContradictoryTerminal(
                f"generation {captured.seq} of {captured.instance} ended {before.outcome}, not {outcome}",
                hint="the first terminal stands",
            )
        publish.replace_file(self._root, at, _name(captured), data, place=place)
        return before

    def read(self, generation: Generation) -> Terminal | None:
        """Return a generation's terminal as seen now (not yet proven durable); None where it has none.

        Raises InvalidRecord, UnsafePath, StorageFailed.
        """
        place = layout.instance_path(layout.instance_id(generation.instance))
        try:
            with self._root.directory(place) as at:
                data = publish.read_file(self._root, at, _name(generation), place=place, limit=_LIMIT)
        except FileNotFoundError:
            return None
        return None if data is None else _parsed(data, generation)


def _name(generation: Generation) -> str:
    return f"terminal-{layout.record_id(generation.id, 'generation id')}.json"


def _encoded(generation: Generation, outcome: str, reason: str, cache_sha256: str | None, nonce: str) -> bytes:
    """Return what record.encode returns for these fields, written out: all but the reason need no escape."""
    digest = "null" if cache_sha256 is None else f'"{cache_sha256}"'
    return record.utf8(
        f'{{"cache_sha256":{digest},"generation_id":"{generation.id}","instance":"{generation.instance}",'
        f'"nonce":"{nonce}","outcome":"{outcome}","reason":{record.quoted(reason)},"v":{layout.VERSION}}}\n'
    )


def _parsed(data: bytes, generation: Generation) -> Terminal:
    found = record.decode(data, what=_WHAT, version=layout.VERSION)
    digest = found.get("cache_sha256")
    if found.get("generation_id") != generation.id or found.get("instance") != generation.instance:
        raise InvalidRecord(f"the terminal of {generation.instance} does not describe generation {generation.seq}")
    return Terminal(
        generation=generation,
        outcome=record.text(found, "outcome", what=_WHAT),
        reason=record.text(found, "reason", what=_WHAT),
        cache_sha256=digest if isinstance(digest, str) else None,
        nonce=layout.record_id(found.get("nonce"), "nonce"),
        repeated=True,
    )
