"""What executions of one company had to say, sorted by what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from wakeful import post_mortem
from wakeful.executions import Ended, NeverStarted, RunKey, Running, Status, Vanished
from wakeful.terminals import Death, Ending


@dataclass(slots=True)
class Batch:
    """The news of one company; ``said`` is what readers found in outputs."""

    said: Mapping[RunKey, Mapping[str, Any]]
    started: list[tuple[UUID, int, datetime]] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    doubts: list[tuple[RunKey, str]] = field(default_factory=list)

    def sort(self, key: RunKey, status: Status, *, cause: str | None, stop_message: str | None) -> None:
        """Sort in what is proven; what is not is the caller's.

        Arguments:
            cause: why its executor refused to start it, if it did.
            stop_message: why it was stopped, if nobody but the scheduler asked for that.
        """
        match status:
            case Running(started_at=at):
                self.started.append((key.run, key.generation, at))
            case Ended(report=report):
                self.endings.append(post_mortem.ending(key, report, self.said.get(key), stop_message))
            case NeverStarted() if cause is not None:
                self.endings.append(post_mortem.not_started(key, cause))
            case NeverStarted() | Vanished():
                self.deaths.append(post_mortem.death(key, status))

    def part(self) -> Batch:
        """Return an empty batch that knows what readers found."""
        return Batch(self.said)

    def add(self, endings: Sequence[Ending], deaths: Sequence[Death]) -> None:
        """Take over what is ready to be written."""
        self.endings += endings
        self.deaths += deaths

    def join(self, part: Batch) -> None:
        """Take over all that a part holds."""
        self.started += part.started
        self.doubts += part.doubts
        self.add(part.endings, part.deaths)
