"""Checks of producers' arguments that cost nothing, so that a bad value is named before anything is sent.

Each function takes an argument's name and value, and returns both, the value as it is to be sent: ``...`` says that
the argument is left out. All raise InvalidInput. The database checks everything again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import EllipsisType
from typing import Any
from uuid import UUID

from wakeful.errors import InvalidInput
from wakeful.producers.statement import Argument, JsonText

PAYLOAD_BYTES = 65_536
BODY_BYTES = 65_536
PAYLOAD_LEVELS = 100  # lists and mappings within each other, a plain value included
_ID_CHARACTERS = 200
_MONEY_LIMIT = Decimal(10) ** 12
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = datetime(2101, 1, 1, tzinfo=UTC)
# An escaped NUL: \u0000 behind an even number of backslashes.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def text(name: str, value: str | None) -> Argument:
    """Text that the database can hold: no NUL, no lone surrogate."""
    return name, ... if value is None else _text(name, value)


def identifier(name: str, value: str) -> Argument:
    """An id: text of 1 to 200 characters."""
    return name, _identifier(name, value)


def optional_identifier(name: str, value: str | None) -> Argument:
    """An id, or nothing."""
    return name, ... if value is None else _identifier(name, value)


def actor(value: str | None) -> Argument:
    """Who does it: ``user:ID``, ``agent:ID`` or ``system:ID``; left out, the database login answers for the change."""
    return "actor", ... if value is None else _who("actor", value, ("user", "agent", "system"))


def author(value: str) -> Argument:
    """Who wrote something: ``user:ID``, ``agent:ID`` or ``system:ID``."""
    return "author", _who("author", value, ("user", "agent", "system"))


def body(value: str) -> Argument:
    """The words of a comment: not empty, at most 64 KiB, counted in bytes."""
    size = len(_text("body", value).encode())
    if not 1 <= size <= BODY_BYTES:
        raise InvalidInput(f"the comment has {size} bytes; 1 to {BODY_BYTES} bytes (64 KiB) are allowed")
    return "body", value


def assignee(value: str | None) -> Argument:
    """``agent:ID`` or ``user:ID``; None for nobody."""
    return "assignee", None if value is None else _who("assignee", value, ("agent", "user"))


def reviewer(value: str | None) -> Argument:
    """``agent:ID`` or ``user:ID``; None for nobody."""
    return "reviewer", None if value is None else _who("reviewer", value, ("agent", "user"))


def one_of(name: str, value: str | None, *allowed: str) -> Argument:
    """One of the words ``allowed``, or nothing."""
    if value is None:
        return name, ...
    if value not in allowed:
        raise InvalidInput(f"{value!r} is no {name}", hint=f"one of: {', '.join(allowed)}")
    return name, value


def switch(name: str, value: bool | None) -> Argument:
    """True or false, or nothing."""
    if value is not None and not isinstance(value, bool):
        raise InvalidInput(f"{name} is True or False, not {value!r}")
    return name, ... if value is None else value


def uuid(name: str, value: UUID | str) -> Argument:
    """A UUID, given as such or as its text."""
    if isinstance(value, UUID):
        return name, value
    try:
        return name, UUID(_text(name, value))
    except ValueError:
        raise InvalidInput(f"{name} {value!r} is not a UUID") from None


def optional_uuid(name: str, value: UUID | str | None) -> Argument:
    """A UUID, or nothing."""
    return (name, ...) if value is None else uuid(name, value)


def moment(name: str, value: datetime | None) -> Argument:
    """A time with a zone, in the years 2000 to 2100, or nothing."""
    if value is None:
        return name, ...
    if not isinstance(value, datetime):
        raise InvalidInput(f"{name} is a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise InvalidInput(f"{name} {value.isoformat()} has no time zone", hint="add one: tzinfo=UTC")
    if not _EARLIEST <= value < _LATEST:
        raise InvalidInput(f"{name} {value.isoformat()} is outside the years 2000 to 2100")
    return name, value


def duration(name: str, value: timedelta | EllipsisType | None, *, least: timedelta) -> Argument:
    """A duration of at least ``least``; None, where it is allowed, means no limit."""
    if isinstance(value, timedelta) and value < least:
        raise InvalidInput(f"{name} is {value.total_seconds():g} s, which is too short")
    if value is not None and value is not ... and not isinstance(value, timedelta):
        raise InvalidInput(f"{name} is a timedelta, not {type(value).__name__}")
    return name, value


def money(name: str, value: Decimal | int | None) -> Argument:
    """An exact amount from 0 to 10^12, or nothing. Binary fractions are refused: they are not what they seem."""
    if value is None:
        return name, ...
    if isinstance(value, bool) or not isinstance(value, (Decimal, int)):
        raise InvalidInput(
            f"{name} is a Decimal, not {type(value).__name__}", hint="from text, so that it is exact: Decimal('0.10')"
        )
    amount = Decimal(value)
    if not amount.is_finite() or not 0 <= amount < _MONEY_LIMIT:
        raise InvalidInput(f"{name} {amount} is not an amount between 0 and 10^12")
    return name, amount


def whole(name: str, value: int | None, least: int, most: int = 2**31 - 1) -> Argument:
    """A whole number from ``least`` to ``most``, or nothing."""
    if value is None:
        return name, ...
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{name} is a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidInput(f"{name} {value} is not between {least} and {most}")
    return name, value


def words(name: str, value: Sequence[str] | None) -> Argument:
    """A list of texts, or nothing; a single text is a mistake."""
    if value is None:
        return name, ...
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidInput(f"{name} is a list of texts, not {type(value).__name__}")
    return name, [_text(name, word) for word in value]


def texts_by_name(name: str, value: Mapping[str, str] | None) -> Argument:
    """Texts by name, sent as a JSON object, or nothing."""
    if value is None:
        return name, ...
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} is a mapping of texts, not {type(value).__name__}")
    return document(name, {_text(name, key): _text(name, held) for key, held in value.items()})


def document(name: str, value: Any) -> Argument:
    """A JSON value, sent as text: no NaN, no infinity, no NUL, no lone surrogate."""
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        written.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} contains half of a surrogate pair, which is no text") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{name} is not JSON: {error}") from None
    if _NUL.search(written):
        raise InvalidInput(f"{name} contains a NUL character, which the database cannot store")
    return name, JsonText(written)


def payload(value: Any) -> Argument:
    """A JSON value of at most 64 KiB, counted in bytes; ``...`` leaves it out."""
    if value is ...:
        return "payload", ...
    name, written = document("payload", value)
    size = len(written.encode())
    if size > PAYLOAD_BYTES:
        raise InvalidInput(
            f"the payload has {size} bytes; the limit is {PAYLOAD_BYTES} bytes (64 KiB)",
            hint="store large input elsewhere and put its address into the payload",
        )
    if _deeper(value, PAYLOAD_LEVELS):
        raise InvalidInput(f"the payload has more than {PAYLOAD_LEVELS} levels")
    return name, written


def session_policy(value: Mapping[str, Any] | None) -> Argument:
    """``{"mode": "reuse" or "fresh", "rotate_runs": n, "rotate_days": n}``, each optional; or nothing."""
    if value is None:
        return "session_policy", ...
    hint = "as in {'mode': 'reuse', 'rotate_runs': 20, 'rotate_days': 7}"
    if not isinstance(value, Mapping):
        raise InvalidInput(f"session_policy is a mapping, not {type(value).__name__}", hint=hint)
    for name, setting in value.items():
        if name == "mode":
            one_of("session mode", setting, "reuse", "fresh")
        elif name in ("rotate_runs", "rotate_days"):
            whole(name, setting, 1, 999_999)
        else:
            raise InvalidInput(f"session_policy has no {name!r}", hint=hint)
    return document("session_policy", {name: setting for name, setting in value.items() if setting is not None})


def reader(value: Mapping[str, Any] | None) -> Argument:
    """The configuration of a result reader: a mapping with its ``kind``; or nothing."""
    if value is None:
        return "reader", ...
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise InvalidInput("reader is a mapping with a kind", hint="as in {'kind': 'json_lines', 'rules': [...]}")
    _identifier("the kind of reader", value["kind"])
    name, written = document("reader", dict(value))
    size = len(written.encode())
    if size > PAYLOAD_BYTES:
        raise InvalidInput(f"reader has {size} bytes; the limit is {PAYLOAD_BYTES} bytes (64 KiB)")
    return name, written


def _deeper(value: Any, levels: int) -> bool:
    if levels == 0:
        return True
    if isinstance(value, Mapping):
        return any(_deeper(held, levels - 1) for held in value.values())
    return isinstance(value, (list, tuple)) and any(_deeper(held, levels - 1) for held in value)


def _text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is text, not {type(value).__name__}")
    if "\0" in value:
        raise InvalidInput(f"{name} contains a NUL character, which the database cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} contains half of a surrogate pair, which is no text") from None
    return value


def _identifier(name: str, value: str) -> str:
    if not 1 <= len(_text(name, value)) <= _ID_CHARACTERS:
        raise InvalidInput(f"{name} has {len(value)} characters; 1 to {_ID_CHARACTERS} are allowed")
    return value


def _who(name: str, value: str, kinds: Sequence[str]) -> str:
    kind, _, who = _text(name, value).partition(":")
    if kind not in kinds or not 1 <= len(who) <= _ID_CHARACTERS:
        raise InvalidInput(f"{name} {value!r} is not " + " or ".join(f"{one}:ID" for one in kinds))
    return value
