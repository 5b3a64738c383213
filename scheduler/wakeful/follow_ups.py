"""What a run's result asks for besides its own end: another wake, or a person's answer. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class NextWake:
    """A wake that the result asks for: the same agent and issue, at a time."""

    at: datetime
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A question that the result asks a person: a card on the run's issue, whose answer wakes the agent.

    Arguments:
        question: any JSON but null.
        kind: the agent's own word for how it is shown.
    """

    question: Any
    kind: str
