"""What people and programs read: tables, records, JSON, times.

People: local time with its offset, no control characters from anybody's text. Programs: UTC with microseconds, exact
money as text, and the names that the database uses.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

if TYPE_CHECKING:
    from wakeful.producers import ProducerResult

NOTHING = "-"


def emit_json(value: object) -> None:
    """Print one JSON value on one line."""
    click.echo(json.dumps(plain_data(value), ensure_ascii=False))


def json_text(value: object) -> str:
    """Return a value as JSON, for a person."""
    return printable(json.dumps(plain_data(value), ensure_ascii=False))


def plain_data(value: object) -> Any:
    """Return ``value`` in the terms of JSON."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (Decimal, UUID, Path)):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain_data(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def as_before(made: ProducerResult) -> str:
    """Return what ends a sentence about a command that changed nothing; nothing, if it did change something."""
    return ", as before" if made.outcome == "existing" else ""


def text(value: object) -> str:
    """Return ``value`` for a person, on one line."""
    if value is None or value == "" or value == () or value == []:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, timedelta):
        return length(value)
    if isinstance(value, Decimal):
        from wakeful.gates import money  # as refusals write it

        return money(value)
    if isinstance(value, Mapping):
        return json_text(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(text(item) for item in value)
    return printable(str(value))


def printable(words: str) -> str:
    """Return ``words`` without anything a terminal would obey: line breaks and control characters are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in words)


def moment(at: datetime) -> str:
    """Return a time in this machine's zone, with its offset."""
    return at.astimezone().isoformat(sep=" ", timespec="seconds")


def length(duration: timedelta) -> str:
    """Return a length of time in its largest two units."""
    seconds = round(duration.total_seconds())
    if seconds < 1:
        return f"{duration.total_seconds() * 1000:g} ms"
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows in columns as wide as their content."""
    cells = [list(headings), *([text(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def record(pairs: Sequence[tuple[str, object]]) -> None:
    """Print names and values below each other; what has no value is left out."""
    shown = [(name, text(value)) for name, value in pairs]
    shown = [(name, value) for name, value in shown if value != NOTHING]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"  {name.ljust(width)}  {value}")


def note(words: str) -> None:
    """Tell a person something beside the output."""
    click.echo(printable(words), err=True)


def on_terminal() -> bool:
    """Whether somebody watches standard error."""
    return sys.stderr is not None and sys.stderr.isatty()
