"""What an argument or option may say, read strictly. Each function reads one text; all raise InvalidInput."""

from __future__ import annotations

import json
import re
import shlex
import sys
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from wakeful.cli import rendering
from wakeful.errors import InvalidInput

# More than any payload may have; what is longer is not read to its end.
_LONGEST_FILE = 1 << 20
_TIMES = "write +30s, +5m, +2h, or with an offset 2031-05-06T07:08:09+02:00"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time as it was given: absolute, or so long after the database's now."""

    at: datetime | None
    after: timedelta = timedelta()

    def resolved(self, now: datetime) -> datetime:
        """Return the absolute time, ``now`` being the database's."""
        return self.at if self.at is not None else now + self.after


def moment(given: str) -> Moment:
    """Read ``+30s``, ``+5m``, ``+2h``, ``+1d``, ``now``, or ISO 8601; one without offset is local, and that is said."""
    given = given.strip()
    if given == "now":
        return Moment(None)
    if given.startswith("+"):
        return Moment(None, length(given[1:]))
    try:
        at = datetime.fromisoformat(given)
        local = at.tzinfo is None
        at = at.astimezone()
    except (ValueError, OverflowError):
        raise InvalidInput(f"{given!r} is no time", hint=_TIMES) from None
    if local:
        rendering.note(f"wakeful: {given} is taken as local time: {rendering.moment(at)}")
    return Moment(at)


def length(given: str) -> timedelta:
    """Read ``30``, ``30s``, ``5m``, ``500ms``, ``2h`` or ``1d``; a bare number is seconds."""
    from wakeful.config_values import duration

    try:
        return duration(given)
    except ValueError as refusal:
        raise InvalidInput(f"{given!r} is {refusal}", hint="write 30s, 5m, 500ms, 2h or 1d") from None


def money(given: str) -> Decimal:
    """Read an exact amount: digits, and a point with at most six more."""
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,6})?", given):
        raise InvalidInput(f"{given!r} is no amount", hint="write 12 or 12.50, with at most six decimals")
    return Decimal(given)


JSON_EXAMPLES = """example: '{"answer": 42}'; a text: '"words"'"""


def json_value(given: str, examples: str = JSON_EXAMPLES) -> Any:
    """Read JSON, ``@FILE`` to take it from a file, or ``@-`` from standard input; ``examples`` help who wrote none."""
    words = _file(given[1:]) if given.startswith("@") else given
    try:
        return json.loads(words, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"this is not JSON: {error}", hint=examples) from None


def words(given: str) -> str:
    """Read a text, ``@FILE`` to take it from a file, or ``@-`` from standard input; one line break at its end goes."""
    if not given.startswith("@"):
        return given
    return _file(given[1:]).removesuffix("\n")


def fresh_id() -> str:
    """Return an id for something that was given none."""
    return str(uuid.uuid4())


def command(given: str) -> tuple[str, ...]:
    """Split a command line as a shell would, though no shell ever reads it."""
    try:
        words = tuple(shlex.split(given))
    except ValueError as error:
        raise InvalidInput(f"{given!r} cannot be split into words: {str(error).lower()}") from None
    if not words or not words[0]:
        raise InvalidInput("a command has at least one word", hint="example: --run 'python3 agent.py'")
    return words


def variable(given: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``. The refusal does not repeat the value, which may be a secret."""
    name, equals, value = given.partition("=")
    if not equals or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise InvalidInput("a variable is given as NAME=VALUE", hint="a name has letters, digits and _")
    return name, value


def _file(path: str) -> str:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_LONGEST_FILE + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_LONGEST_FILE + 1)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > _LONGEST_FILE:
        raise InvalidInput(f"{path} has more than {_LONGEST_FILE} bytes", hint="a payload has at most 65536 (64 KiB)")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8") from None


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON number")
