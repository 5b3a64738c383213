"""A generation's whole end as an engine makes it, as a piece of work whose crashes are explored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from wakeful_coordination import Coordination, Generation
from wakeful_coordination.layout import instance_path
from wakeful_coordination.testing.disk import Disk
from wakeful_coordination.testing.explorer import Acks, Explorer
from wakeful_coordination.testing.scenarios import visible


class WholeEnd:
    """Terminal, cleanup, retirement, and then agent.end; a retry does the very same."""

    def __init__(self) -> None:
        self.captured = Generation("a", 1, "")

    def explorer(self, **options: Any) -> Explorer:
        """Return an explorer of this work."""
        return Explorer(self.prepare, self.work, self.work, look=self.look, check=self.check, **options)

    def prepare(self, coord: Coordination, acks: Acks) -> None:
        """Write the cache that is to be cleaned up."""
        self.captured = coord.generations.open("a")
        coord.caches.write(self.captured, b"payload")

    def work(self, coord: Coordination, acks: Acks) -> None:
        """Acknowledge each step."""
        permission = coord.conclude(self.captured, "succeeded")
        coord.generations.retire(self.captured)
        if "retired" not in acks:
            acks.append("retired")
        coord.ends.record(permission)
        if "ended" not in acks:
            acks.append("ended")

    def look(self, disk: Disk, acks: Sequence[str]) -> Sequence[str]:
        """Whenever agent.end stands, all that it promises stands; an acknowledged one stands."""
        files = visible(disk, instance_path("a"))
        ends = [data for name, data in files.items() if name.startswith("end-")]
        wrong = []
        if "ended" in acks and not ends:
            wrong.append("invariant 14: an acknowledged agent.end is lost")
        if len(ends) > 1:
            wrong.append("invariant 14: two of them")
        state = json.loads(files["generation.json"])["state"]
        if "retired" in acks and state != "retired":
            wrong.append("invariant 21: an acknowledged retirement is lost")
        terminals = [name for name in files if name.startswith("terminal-")]
        left = [name for name in files if name == "cache" or name.startswith("held-")]
        if ends and (len(terminals) != 1 or left or state != "retired"):
            wrong.append(f"invariant 14: agent.end beside {terminals} {left} {state}")
        return wrong

    def check(self, coord: Coordination, disk: Disk, acks: Sequence[str]) -> Sequence[str]:
        """Judge what a finished retry left."""
        wrong = list(self.look(disk, acks))
        found = coord.ends.read(self.captured)
        if found is None or found.outcome != "succeeded":
            wrong.append("invariant 14: a finished end has no agent.end")
        return wrong
