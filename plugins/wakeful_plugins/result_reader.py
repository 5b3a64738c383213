"""Reads what an agent program prints as JSON lines into the fields of a result, by rules that its agent carries.

Pure over bytes, bounded in memory and work, and silent about everything it cannot read: it never raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import wakeful
from wakeful.results import storable
from wakeful_plugins.reader_account import Account
from wakeful_plugins.reader_rules import BadRules, Rule, Rules, parse

if TYPE_CHECKING:
    from wakeful.readers import ResultReader, SavedStream

KIND = "json_lines"
LINE = 1 << 20  # bytes; longer lines are skipped
CHUNK = 1 << 16
MESSAGE = 4000
SESSION = 4096  # bytes
MODELS = 50
_MILLISECONDS = 10**11  # as seconds this would be after the year 5000
_MOST_MILLISECONDS = 10**14
_EARLIEST, _LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2101, 1, 1, tzinfo=UTC)


@wakeful.hookimpl
def register_readers() -> list[ResultReader]:
    """Offer the reader named ``json_lines``."""
    return [JsonLinesReader()]


class JsonLinesReader:
    """The reader for programs that print one JSON object a line (protocol ``ResultReader``)."""

    name = KIND

    def read(self, config: Mapping[str, Any], stdout: SavedStream, stderr: SavedStream) -> dict[str, Any]:
        """Return what the rules found, and under ``reader`` how many lines were read, matched and skipped."""
        try:
            rules = parse(config)
        except BadRules as error:
            return {"reader": {"kind": KIND, "error": str(error)}}
        findings = _Findings(rules)
        stream = stderr if rules.stream == "stderr" else stdout
        try:
            for line in lines(stream, rules.head, rules.tail):
                findings.take(line)
        except Exception as error:  # its files may be gone; what was found until then stands
            fields = findings.fields(whole=False, to_the_end=False)
            return fields | {"reader": findings.counts() | {"error": f"{type(error).__name__}: {error}"[:300]}}
        whole = stream.size <= rules.head + rules.tail and not stream.truncated
        fields = findings.fields(whole=whole, to_the_end=not stream.truncated)
        return fields | {"reader": findings.counts() | ({} if whole else {"gap": True})}


def lines(stream: SavedStream, head: int, tail: int) -> Iterator[bytes | None]:
    """Yield the lines within ``head`` bytes from the start and ``tail`` from the end; None for one too long.

    Lines that the gap between both cuts are left out.
    """
    if stream.size <= head + tail:
        yield from _window(stream, 0, stream.size, whole_start=True, whole_end=True)
    else:
        yield from _window(stream, 0, head, whole_start=True, whole_end=False)
        yield from _window(stream, stream.size - tail, stream.size, whole_start=False, whole_end=True)


def _window(stream: SavedStream, start: int, end: int, *, whole_start: bool, whole_end: bool) -> Iterator[bytes | None]:
    kept, skipping, first = bytearray(), False, not whole_start
    while start < end and (chunk := stream.read(start, min(CHUNK, end - start))):
        start += len(chunk)
        *ends, rest = chunk.split(b"\n")
        for part in ends:
            kept += part
            if not first:
                yield None if skipping or len(kept) > LINE else bytes(kept)
            kept, skipping, first = bytearray(), False, False
        kept += rest
        if len(kept) > LINE:
            kept, skipping = bytearray(), True
    if whole_end and not first and (kept or skipping):
        yield None if skipping else bytes(kept)


class _Findings:
    """What the rules have found so far, line by line; later lines and later rules win."""

    def __init__(self, rules: Rules) -> None:
        self._rules = [(rule, Account(rule.usage) if rule.usage else None) for rule in rules.rules]
        self._said: dict[str, str] = {}
        self._read = self._matched = self._skipped = 0

    def take(self, raw: bytes | None) -> None:
        """Look at one line; None stands for one that was too long."""
        if raw is not None and not raw.strip():
            return
        self._read += 1
        line = None if raw is None else _object(raw)
        if line is None:
            self._skipped += 1
            return
        matched = False
        for rule, account in self._rules:
            if all(condition.holds(line) for condition in rule.conditions):
                matched = True
                self._hear(rule, line)
                if account is not None:
                    account.enter(line)
        self._matched += matched

    def counts(self) -> dict[str, Any]:
        """Return how the reading went."""
        return {"kind": KIND, "lines": self._read, "matched": self._matched, "skipped": self._skipped}

    def fields(self, *, whole: bool, to_the_end: bool) -> dict[str, Any]:
        """Return the fields of a result. Sums need the whole output; what was said last, its end."""
        found: dict[str, Any] = dict(self._said)
        if found.get("class") != "provider_limited":
            found.pop("until", None)
        usage = [line for _, account in self._rules if account for line in account.usage(whole, to_the_end)]
        if usage:
            found["usage"] = usage if len(usage) <= MODELS else [{"provenance": "unknown"}]
        return found

    def _hear(self, rule: Rule, line: Mapping[str, Any]) -> None:
        if rule.end_class is not None:
            self._said["class"] = rule.end_class
        if rule.session is not None and (token := rule.session.read(line)) is not None:
            text = storable(str(token))
            if 1 <= len(text.encode()) <= SESSION:
                self._said["session"] = text
        if rule.message is not None and (message := rule.message.read(line)) is not None:
            self._said["message"] = storable(str(message))[:MESSAGE]
        if rule.until is not None and (moment := _moment(rule.until.read(line))) is not None:
            self._said["until"] = moment.isoformat()


def _object(raw: bytes) -> dict[str, Any] | None:
    """Return a line as a JSON object with exact numbers, or None if it is none."""
    if not raw.lstrip().startswith(b"{"):
        return None
    try:
        value = json.loads(raw.decode(), parse_float=Decimal, parse_constant=_no_number)
    except (ValueError, ArithmeticError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _moment(value: str | int | Decimal | None) -> datetime | None:
    """Return a time given in ISO 8601 with a zone, or as seconds or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            if not (value.isascii() and value.isdigit() and len(value) < 20):
                moment = datetime.fromisoformat(value)
                return moment if moment.tzinfo and _EARLIEST <= moment < _LATEST else None
            value = int(value)
        if value is None or not 0 <= value < _MOST_MILLISECONDS:
            return None
        moment = datetime.fromtimestamp(float(value / 1000 if value > _MILLISECONDS else value), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment if _EARLIEST <= moment < _LATEST else None
