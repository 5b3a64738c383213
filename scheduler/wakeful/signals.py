"""Signals: hints to look again, carried by NOTIFY on the channel ``wakeful`` as small JSON objects.

Topics: *eligibility* reaches owners, *dispatch* reaches dispatchers, *settlement* reaches one receipt's
settlement pass. Beside them the instance's own: *settings*, and *renewal* (claims whose claimer may die).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

TOPICS = frozenset({"eligibility", "dispatch", "settlement", "settings", "renewal"})
LONGEST = 300  # a budget's key is its longest id and a word


@dataclass(frozen=True, slots=True)
class Signal:
    """One hint, with normalised identity and at most a due hint."""

    topic: str
    company: str | None = None
    wake: UUID | None = None
    owner: str | None = None
    gate: str | None = None
    key: str | None = None
    run: UUID | None = None
    host: str | None = None
    due: datetime | None = None
    setting: str | None = None


def parse(payload: str) -> Signal | None:
    """Return the signal in a notification, or None for one that is not ours.

    Anybody may NOTIFY the channel, so nothing in a payload is trusted beyond "look again": it names one identity,
    in words the database can hold. One that names none would ask for everything, which only a setting may.
    """
    signal = _read(payload)
    return signal if signal is not None and _names_something(signal) else None


def asks_for_everything(payload: str) -> bool:
    """Whether a notification is a signal of ours but for the identity: only an instance setting may do without."""
    signal = _read(payload)
    return signal is not None and not _names_something(signal)


def _read(payload: str) -> Signal | None:
    try:
        raw = json.loads(payload)
        if raw["t"] not in TOPICS:
            return None
        wake, run, at = raw.get("w"), raw.get("r"), raw.get("at")
        return Signal(
            topic=raw["t"],
            company=_text(raw.get("c")),
            wake=UUID(wake) if wake else None,
            owner=_text(raw.get("o")),
            gate=_text(raw.get("g")),
            key=_text(raw.get("k")),
            run=UUID(run) if run else None,
            host=_text(raw.get("h")),
            due=datetime.fromtimestamp(at, UTC) if at is not None else None,
            setting=_text(raw.get("s")),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError, RecursionError):
        return None


def _names_something(signal: Signal) -> bool:
    gate = signal.gate is not None and signal.key is not None
    match signal.topic:
        case "settings":
            return True
        case "renewal":
            return signal.host is not None and signal.due is not None
        case "dispatch":
            return signal.company is not None
        case "settlement":
            return signal.company is not None and signal.wake is not None
        case _:
            return signal.company is not None and (signal.wake is not None or gate)


def _text(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST or "\0" in value:
        raise ValueError("no text that the database can hold")
    value.encode("utf-8")  # lone surrogates raise
    return value
