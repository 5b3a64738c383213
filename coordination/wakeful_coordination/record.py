"""One JSON object a file: how records become bytes, and how bytes are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping

from wakeful_coordination.errors import InvalidRecord, UnknownVersion

#: No record is longer: a reader never loads more than this.
LIMIT = 1 << 20


def encode(record: Mapping[str, object]) -> bytes:
    """Return canonical bytes: sorted keys, UTF-8, a newline last.

    Raises InvalidRecord for values JSON cannot hold, and for more than 1 MiB.
    """
    try:
        data = _ENCODER.encode(record).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRecord(f"not a JSON record: {error}") from None
    if len(data) > LIMIT:
        raise InvalidRecord(f"a record of {len(data)} bytes", hint=f"at most {LIMIT} bytes; put large data in a file")
    return data


def quoted(value: object) -> str:
    """Return a string as JSON text; raises InvalidRecord for anything else."""
    if not isinstance(value, str):
        raise InvalidRecord(f"not a JSON record: {type(value).__name__} in the place of a text")
    return _ENCODER.encode(value)


def utf8(text: str) -> bytes:
    """Return the bytes of a record; raises InvalidRecord for what UTF-8 cannot hold."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRecord(f"not a JSON record: {error}") from None


def decode(data: bytes, *, what: str, version: int) -> dict[str, object]:
    """Return the object in ``data``, whose ``v`` must be ``version``; unknown keys are kept.

    Raises InvalidRecord for anything that is not one JSON object with distinct keys, UnknownVersion for
    another version.
    """
    if len(data) > LIMIT:
        raise InvalidRecord(f"{what}: more than {LIMIT} bytes")
    try:
        found = _DECODER.decode(data.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"{what}: not a JSON record ({error})") from None
    if not isinstance(found, dict):
        raise InvalidRecord(f"{what}: not a JSON object")
    require_version(found, what=what, version=version)
    return found


def require_version(record: Mapping[str, object], *, what: str, version: int) -> None:
    """Refuse a record of another version than ``version``."""
    found = record.get("v")
    if type(found) is not int or found != version:
        raise UnknownVersion(
            f"{what}: version {found!r} is not known here (this code knows {version})",
            hint="it is kept as it is; use the release that wrote it",
        )


def text(record: Mapping[str, object], key: str, *, what: str) -> str:
    """Return a string field, or raise InvalidRecord."""
    found = record.get(key)
    if not isinstance(found, str):
        raise InvalidRecord(f"{what}: {key} must be a string")
    return found


def number(record: Mapping[str, object], key: str, *, what: str) -> int:
    """Return a field that is a positive whole number, or raise InvalidRecord."""
    found = record.get(key)
    if type(found) is not int or found < 1:
        raise InvalidRecord(f"{what}: {key} must be a whole number from 1 up")
    return found


def table(record: Mapping[str, object], key: str, *, what: str) -> dict[str, object]:
    """Return a field that is an object, or raise InvalidRecord."""
    found = record.get(key)
    if not isinstance(found, dict):
        raise InvalidRecord(f"{what}: {key} must be an object")
    return found


def rows(record: Mapping[str, object], key: str, *, what: str, most: int) -> list[dict[str, object]]:
    """Return a field that is an array of at most ``most`` objects, or raise InvalidRecord."""
    found = record.get(key)
    if not isinstance(found, list) or len(found) > most or not all(isinstance(row, dict) for row in found):
        raise InvalidRecord(f"{what}: {key} must be an array of at most {most} objects")
    return found


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refused(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


# Made once: to make one costs more than to use it.
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refused)
