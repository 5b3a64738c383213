"""A generation's whole life, as a piece of work whose crashes are explored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from wakeful_coordination import Coordination
from wakeful_coordination.errors import Superseded
from wakeful_coordination.layout import instance_path
from wakeful_coordination.testing.disk import Disk
from wakeful_coordination.testing.explorer import Acks, Explorer
from wakeful_coordination.testing.scenarios import visible


class GenerationChanges:
    """A new instance whose generation is opened, replaced and retired."""

    def explorer(self, **options: Any) -> Explorer:
        """Return an explorer of this work."""
        return Explorer(self.prepare, self.work, self.recover, look=self.look, check=self.check, **options)

    def prepare(self, coord: Coordination, acks: Acks) -> None:
        """Leave the root empty."""

    def work(self, coord: Coordination, acks: Acks) -> None:
        """Acknowledge each change with the id it leaves current."""
        first = coord.generations.open("a")
        acks.append(f"1 open {first.id}")
        second = coord.generations.replace(first)
        acks.append(f"2 open {second.id}")
        coord.generations.retire(second)
        acks.append(f"2 retired {second.id}")

    def recover(self, coord: Coordination, acks: Acks) -> None:
        """Try to open again: what a creator killed half way left behind must not stand in the way."""
        try:
            found = coord.generations.open("a")
        except Superseded:
            return
        acks.append(f"{found.seq} open {found.id}")

    def look(self, disk: Disk, acks: Sequence[str]) -> Sequence[str]:
        """The last acknowledged generation, or a later one, stands; no number comes back."""
        if not acks:
            return []
        files = visible(disk, instance_path("a"))
        if "lease" not in files or "lease.keep" not in files or "generation.json" not in files:
            return ["invariant 21: an acknowledged generation is lost"]
        found = json.loads(files["generation.json"])
        seq, state, own = acks[-1].split()
        if found["seq"] < int(seq) or (found["seq"] == int(seq) and found["id"] != own):
            return [f"invariant 21: {found['seq']} {found['id']} after {acks[-1]} was acknowledged"]
        if state == "retired" and found["seq"] == int(seq) and found["state"] != "retired":
            return ["invariant 21: an acknowledged retirement is lost"]
        return []

    def check(self, coord: Coordination, disk: Disk, acks: Sequence[str]) -> Sequence[str]:
        """The instance works, whatever happened."""
        with coord.lease("a"):
            return self.look(disk, acks)
