"""The pieces of work whose crashes are explored, and what must hold after each."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from wakeful_coordination import Coordination, Generation, Mutation, Transaction
from wakeful_coordination.errors import Superseded
from wakeful_coordination.held_cache import cache_header
from wakeful_coordination.layout import instance_path, receipts_path
from wakeful_coordination.terminal import Terminal
from wakeful_coordination.testing.disk import Disk
from wakeful_coordination.testing.explorer import Acks, Explorer
from wakeful_coordination.testing.flush import ROOT

TXID = "t" * 16
NEWER = "n" * 32


def visible(disk: Disk, place: str) -> dict[str, bytes]:
    """Return the files of one directory and their bytes, as a process sees them."""
    names = disk.visible(f"{ROOT}/{place}")
    return {name: disk.files[inode][1] for name, inode in names.items() if inode in disk.files}


def generation_of(disk: Disk, instance: str) -> Generation:
    """Return the current generation of an instance on a disk."""
    found = json.loads(visible(disk, instance_path(instance))["generation.json"])
    return Generation(instance, found["seq"], found["id"])


class TwoInstanceTransaction:
    """An event over a and b that changes a state file of each, delivered and forgotten.

    With ``replace``, b gets a new generation before anything is recovered.
    """

    def __init__(self, *, replace: bool = False) -> None:
        self.replace = replace
        self.captured: tuple[Generation, ...] = ()

    def explorer(self, **options: Any) -> Explorer:
        """Return an explorer of this work."""
        return Explorer(self.prepare, self.work, self.recover, look=self.look, check=self.check, **options)

    def prepare(self, coord: Coordination, acks: Acks) -> None:
        """Open both generations."""
        self.captured = coord.generations.open("a"), coord.generations.open("b")

    def transaction(self, coord: Coordination) -> Transaction:
        """Return the one transaction, the same whenever it is asked for."""
        a, b = self.captured
        changes = [Mutation("a", "state.json", "new a"), Mutation("b", "state.json", "new b")]
        return coord.transaction(a, "comment", {"text": "hello"}, mutations=changes, others=[b], txid=TXID)

    def work(self, coord: Coordination, acks: Acks) -> None:
        """Prepare, settle, deliver."""
        coord.publish(self.transaction(coord))
        acks.append("prepared")
        acks.append(type(coord.authority.settle(TXID)).__name__)
        self.deliver(coord, acks)

    def recover(self, coord: Coordination, acks: Acks) -> None:
        """Replace if so planned, recover, deliver what is left."""
        if self.replace and coord.generations.capture("b") == self.captured[1]:
            coord.generations.replace(self.captured[1])
            acks.append("replaced")
        coord.recover()
        self.deliver(coord, acks)

    def deliver(self, coord: Coordination, acks: Acks) -> None:
        """Relay once, acknowledging each kind of outcome."""

        def told(outcome: object) -> None:
            kind = type(outcome).__name__
            if kind not in acks:
                acks.append(kind)

        for txid, reason in coord.relay(told).left:
            raise RuntimeError(f"{txid} was left: {reason}")

    def look(self, disk: Disk, acks: Sequence[str]) -> Sequence[str]:
        """Nothing can be judged before recovery."""
        return []

    def check(self, coord: Coordination, disk: Disk, acks: Sequence[str]) -> Sequence[str]:
        """Judge a recovered root."""
        name = f"{TXID}.json"
        with coord.lease("a", "b"):
            pass  # a claim that outlived its transaction is cleared by whoever comes next
        receipt = visible(disk, receipts_path(TXID)).get(name)
        aside = visible(disk, "outbox/quarantine").get(name)
        pending = visible(disk, "outbox/pending").get(name)
        wrong = []
        if "prepared" in acks and receipt is None and aside is None and pending is None:
            wrong.append("invariant 9: an acknowledged preparation is lost")
        if pending is not None:
            wrong.append("invariant 12: recovery left it pending")
        if receipt is not None and aside is not None:
            wrong.append("invariant 11: receipt and quarantine")
        if "Committed" in acks and receipt is None:
            wrong.append("invariant 10: the receipt of a committed transaction is lost")
        if "Quarantined" in acks and aside is None:
            wrong.append("invariant 9: the quarantined transaction is lost")
        for captured in self.captured:
            state = visible(disk, instance_path(captured.instance)).get("state.json")
            if receipt is not None and (state is None or json.loads(state)["body"] != f"new {captured.instance}"):
                wrong.append(f"invariant 10: the mutation of {captured.instance} is not there whole")
            if state is not None and json.loads(state)["generation_id"] != captured.id:
                wrong.append("invariant 8: a mutation bears another generation")
            if visible(disk, instance_path(captured.instance))["lease"]:
                wrong.append(f"invariant 12: {captured.instance} is still claimed")
        if self.replace and "replaced" in acks:
            current = generation_of(disk, "b")
            if current.seq != 2:
                wrong.append("invariant 21: an acknowledged replacement is lost")
            if coord.state(current) is not None:
                wrong.append("invariant 8: the replacement reads state of the old generation")
        with contextlib.suppress(Superseded):
            coord.publish(self.transaction(coord))
        if receipt is not None and visible(disk, "outbox/pending").get(name) is not None:
            wrong.append("invariant 19: a retry appended the event again")
        coord.relay(lambda outcome: None)
        return wrong


class TerminalAndCleanup:
    """The end of one generation whose cache lies live; another process's newer caches arrive at given steps."""

    def __init__(self, arrivals: Sequence[int] = ()) -> None:
        self.arrivals = list(arrivals)
        self.captured = Generation("a", 1, "")
        self.own = b""
        self.steps = 0

    def explorer(self, **options: Any) -> Explorer:
        """Return an explorer of this work."""
        return Explorer(
            self.prepare, self.work, self.work, look=self.look, check=self.check, before=self.before, **options
        )

    def prepare(self, coord: Coordination, acks: Acks) -> None:
        """Write the cache that is to be cleaned up."""
        self.captured = coord.generations.open("a")
        coord.caches.write(self.captured, b"payload")
        self.own = cache_header(self.captured) + b"payload"

    def newer(self, number: int) -> bytes:
        """Return the bytes of another generation's cache."""
        return cache_header(Generation("a", 2, NEWER)) + b"newer %d" % number

    def before(self, disk: Disk, step: int, acks: Acks) -> None:
        """Let the newer caches of this step arrive, durably: another process wrote them."""
        self.steps = max(self.steps, step + 1)
        for number, arrival in enumerate(self.arrivals):
            if arrival == step:
                disk.next_inode += 1
                disk.files[disk.next_inode] = (self.newer(number), self.newer(number))
                disk.settle(f"{ROOT}/{instance_path('a')}", "cache", disk.next_inode)
                acks.append(f"newer {number}")

    def work(self, coord: Coordination, acks: Acks) -> None:
        """Record the terminal and clean up; a retry does the very same."""
        judge = coord.caches.is_own

        def judging(at: int, held: str, place: str, terminal: Terminal) -> bool:
            if "judged" not in acks:
                acks.append("judged")
            return judge(at, held, place, terminal)

        coord.caches.is_own = judging  # type: ignore[method-assign]
        terminal = coord.terminals.record(self.captured, "succeeded")
        if "terminal" not in acks:
            acks.append("terminal")
        coord.caches.clean(terminal)
        if "end" not in acks:
            acks.append("end")

    def look(self, disk: Disk, acks: Sequence[str]) -> Sequence[str]:
        """Judge what a crash left."""
        files = visible(disk, instance_path("a"))
        terminals = [data for name, data in files.items() if name.startswith("terminal-")]
        wrong = []
        if len(terminals) > 1:
            wrong.append("invariant 13: two terminals")
        if "terminal" in acks and not terminals:
            wrong.append("invariant 13: an acknowledged terminal is lost")
        if any(name.startswith("held-") for name in files) and not terminals:
            wrong.append("invariant 16: held without a terminal")
        if "end" in acks and (not terminals or self.own in files.values()):
            wrong.append("invariant 14, 18: agent.end, but no terminal or the deleted bytes came back")
        if "judged" in acks and files.get("cache") == self.own:
            wrong.append("invariant 18: bytes that were set aside and judged are live again")
        arrived = [one for one in range(len(self.arrivals)) if f"newer {one}" in acks]
        # A newer cache may itself be overwritten by its own successor, never by us.
        if arrived and self.newer(arrived[-1]) not in files.values():
            wrong.append("invariant 17: newer bytes are gone")
        return wrong

    def check(self, coord: Coordination, disk: Disk, acks: Sequence[str]) -> Sequence[str]:
        """Judge what a finished retry left."""
        wrong = list(self.look(disk, acks))
        files = visible(disk, instance_path("a"))
        arrived = [one for one in range(len(self.arrivals)) if f"newer {one}" in acks]
        live = files.get("cache")
        if live != (self.newer(arrived[-1]) if arrived else None):
            wrong.append(f"invariant 17, 18: {live!r} is live in the end")
        if any(name.startswith("held-") for name in files):
            wrong.append("invariant 12: something is still held in the end")
        return wrong


class OperatorsOrders:
    """A prepared transaction that an operator sets aside and, if ``retry``, takes up again."""

    def __init__(self, *, retry: bool = False) -> None:
        self.retry = retry
        self.captured = Generation("a", 1, "")

    def explorer(self, **options: Any) -> Explorer:
        """Return an explorer of this work."""
        return Explorer(self.prepare, self.work, self.recover, check=self.check, **options)

    def prepare(self, coord: Coordination, acks: Acks) -> None:
        """Leave the transaction pending."""
        self.captured = coord.generations.open("a")
        coord.publish(coord.transaction(self.captured, "comment", {"text": "hello"}, txid=TXID))

    def work(self, coord: Coordination, acks: Acks) -> None:
        """Give the orders."""
        coord.quarantine.order(TXID, "looks wrong")
        acks.append("aside")
        if self.retry:
            acks.remove("aside")
            coord.quarantine.retry(TXID)
            acks.append("again")

    def recover(self, coord: Coordination, acks: Acks) -> None:
        """Recover, and deliver what was not set aside."""
        coord.recover()
        coord.relay(lambda outcome: None)

    def check(self, coord: Coordination, disk: Disk, acks: Sequence[str]) -> Sequence[str]:
        """Judge a recovered root."""
        coord.relay(lambda outcome: None)
        receipt = visible(disk, receipts_path(TXID)).get(f"{TXID}.json")
        aside = visible(disk, "outbox/quarantine").get(f"{TXID}.json")
        wrong = []
        if (receipt is None) == (aside is None):
            wrong.append(f"invariants 9, 11: receipt {receipt is not None}, quarantine {aside is not None}")
        if "aside" in acks and aside is None:
            wrong.append("invariant 9: what an operator set aside was applied")
        if "again" in acks and receipt is None:
            wrong.append("invariant 9: what an operator took up again was not applied")
        if aside is not None and coord.quarantine.read(TXID).transaction is None:
            wrong.append("invariant 9: what was set aside can no longer be read")
        return wrong
