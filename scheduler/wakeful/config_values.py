"""What one setting's value means, whether it comes as text or typed.

Pure: no value knows another. Messages never repeat a value, which may be a secret in the wrong place.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

from wakeful import dsn as dsns

NOUNS = ("agent", "budget", "card", "chat", "comment", "company", "host", "issue", "project", "run", "wait", "wake")
_TOO_LONG = timedelta(days=30, microseconds=1)
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(given: object) -> timedelta:
    """Return the length of time meant by ``30``, ``"30s"``, ``"5m"``, ``"500ms"``, ``"2h"`` or ``"1d"``.

    A bare number is seconds. Raises ValueError for anything else, or for more than 30 days.
    """
    if isinstance(given, timedelta):
        length = given
    elif isinstance(given, (str, int, float)) and not isinstance(given, bool):
        match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h|d|)", str(given).strip())
        if match is None:
            raise ValueError("not a length of time")
        seconds = float(match[1]) * _UNITS[match[2]]
        length = timedelta(seconds=min(seconds, _TOO_LONG.total_seconds()))
    else:
        raise ValueError("not a length of time")
    if not timedelta(0) <= length < _TOO_LONG:
        raise ValueError("not between nothing and 30 days")
    return length


def dsn(given: object, _: Path) -> str:
    """Return a connection string that libpq can read. Raises ValueError."""
    return dsns.checked(given if isinstance(given, str) else "")


def name(given: object, _: Path) -> str:
    """Return 1 to 200 printable characters without a blank at either end. Raises ValueError."""
    if not isinstance(given, str) or given != given.strip() or not 0 < len(given) <= 200 or not given.isprintable():
        raise ValueError("not a name")
    return given


def names(given: object, folder: Path) -> tuple[str, ...]:
    """Return the names of a list, or of a text with commas between them, each once. Raises ValueError."""
    items = given.split(",") if isinstance(given, str) else given
    if not isinstance(items, (list, tuple)):
        raise ValueError("not a list of names")
    stripped = (item.strip() if isinstance(item, str) else item for item in items)
    return tuple(dict.fromkeys(name(item, folder) for item in stripped if item != ""))


def nouns(given: object, folder: Path) -> Mapping[str, str]:
    """Return the words that people read instead of wakeful's nouns. Raises ValueError."""
    if not isinstance(given, Mapping):
        raise ValueError("not a table of words")
    for noun in given:
        if noun not in NOUNS:
            raise ValueError(f"naming {noun!r}, which is no noun of wakeful{meant(noun, NOUNS)}")
    return MappingProxyType({noun: name(word, folder) for noun, word in given.items()})


def one_of(*choices: str) -> Callable[[object, Path], str]:
    """Return a reader that takes one of ``choices`` and raises ValueError at anything else."""

    def read(given: object, _: Path) -> str:
        if not isinstance(given, str) or given not in choices:
            raise ValueError("none of the choices")
        return given

    return read


def switch(given: object, _: Path) -> bool:
    """Return what true, yes, on, 1 or their opposites mean. Raises ValueError."""
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if str(given).lower() not in known:
        raise ValueError("neither true nor false")
    return known[str(given).lower()]


def positive(given: object, _: Path) -> timedelta:
    """Return a length of time that is not nothing. Raises ValueError."""
    if not (length := duration(given)):
        raise ValueError("no time at all")
    return length


def count(given: object, _: Path) -> int:
    """Return a whole number from 1 to 10000. Raises ValueError."""
    text = str(given).strip()
    if isinstance(given, bool) or not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= 10_000:
        raise ValueError("not a count")
    return int(text)


def remedy(name: str) -> str:
    """Return what a person should write as the setting ``name``."""
    remedies = {
        "dsn": "write postgresql://user@host/database or host=… dbname=…, special characters percent-encoded",
        "data": "give a directory",
        "postgres": "use wheel or path",
        "plugins_strict": "use true or false",
        "plugins_disabled": "give plugin names, comma between them",
        "notify": "use on or poll",
        "poll": "write seconds, or 500ms, 30s, 5m, 2h; more than nothing, 30 days at most",
        "shutdown_grace": "write seconds, or 500ms, 30s, 5m, 2h; 30 days at most",
        "stop_children": "use leave or kill",
        "slots": "give a whole number from 1 to 10000",
        "nouns": f"map words of yours to {', '.join(NOUNS)}",
    }
    return remedies.get(name.removeprefix("listen_"), "give 1 to 200 printable characters, no blank at either end")


def meant(word: str, known: Iterable[str]) -> str:
    """Return a question naming the one of ``known`` that ``word`` resembles, or nothing."""
    close = difflib.get_close_matches(str(word).lower().replace("-", "_"), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
