"""The rules of the JSON-lines reader: what to look for in a line, and what it then says. Pure.

A path names a value inside a line: ``"message.usage.0"`` goes through objects by name and lists by number;
``["modelUsage", "m-1.5"]`` says the same step by step, for names with a dot in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from wakeful.results import CLASSES

RULES = 50
COUNTS = ("tokens_in", "tokens_out", "tokens_cached", "money")
_KIB = {"head": (64, 1024), "tail": (4096, 16384)}  # default and most, in KiB

Path = tuple[str, ...]


class BadRules(ValueError):
    """Why a configuration cannot be used, with the place at fault."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold at a path: one of ``values``, or a text that contains ``contains``, or that it is ``present``."""

    path: Path
    values: tuple[Any, ...] = ()
    contains: str | None = None
    present: bool | None = None

    def holds(self, line: Mapping[str, Any]) -> bool:
        """Say whether it holds for a line."""
        found, value = look(line, self.path)
        if self.present is not None:
            return found is self.present
        if self.contains is not None:
            return isinstance(value, str) and self.contains in value
        return found and any(_same(value, wanted) for wanted in self.values)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a text comes from: a path, or a constant; ``after`` keeps only what follows its last occurrence."""

    path: Path = ()
    value: str | None = None
    after: str | None = None

    def read(self, line: Mapping[str, Any]) -> str | int | Decimal | None:
        """Return the text or number in a line, or None."""
        if self.value is not None:
            return self.value
        _, value = look(line, self.path)
        if isinstance(value, bool) or not isinstance(value, (str, int, Decimal)):
            return None
        if self.after is not None and isinstance(value, str):
            return value.rpartition(self.after)[2].strip() if self.after in value else None
        return value


@dataclass(frozen=True, slots=True)
class UsageRule:
    """How lines add up to usage.

    Arguments:
        take: ``sum`` adds the lines up, ``last`` keeps the last one; per provider and model.
        once: lines with the same value here are one line, told several times; the last of them counts.
        counts: for each of COUNTS, the paths whose numbers are added.
        provenance: of the money.
    """

    take: Literal["sum", "last"]
    once: Path | None
    provider: Source | None
    model: Source | None
    counts: Mapping[str, tuple[Path, ...]]
    provenance: str


@dataclass(frozen=True, slots=True)
class Rule:
    """If all conditions hold for a line: what it says."""

    conditions: tuple[Condition, ...]
    end_class: str | None
    session: Source | None
    message: Source | None
    until: Source | None
    usage: UsageRule | None


@dataclass(frozen=True, slots=True)
class Rules:
    """A whole configuration; ``head`` and ``tail`` are the bytes read from both ends of the stream."""

    stream: Literal["stdout", "stderr"]
    head: int
    tail: int
    rules: tuple[Rule, ...]


def look(value: Any, path: Path) -> tuple[bool, Any]:
    """Return whether there is something at a path, and what."""
    for step in path:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 7 and int(step) < len(value):
            value = value[int(step)]
        else:
            return False, None
    return True, value


def parse(config: Mapping[str, Any]) -> Rules:
    """Validate a configuration.

    Raises:
        BadRules: it has a field that is unknown or unusable.
    """
    _known("the reader", config, "kind", "stream", "head_kib", "tail_kib", "rules")
    stream = _one_of("stream", config.get("stream", "stdout"), "stdout", "stderr")
    rules = config.get("rules")
    if not isinstance(rules, list) or not 1 <= len(rules) <= RULES:
        raise BadRules(f"rules is not a list of 1 to {RULES} objects")
    parsed = tuple(_rule(f"rules[{number}]", rule) for number, rule in enumerate(rules))
    return Rules(stream, _kib(config, "head"), _kib(config, "tail"), parsed)


def _kib(config: Mapping[str, Any], name: str) -> int:
    default, most = _KIB[name]
    value = config.get(f"{name}_kib", default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadRules(f"{name}_kib is not a whole number from 0 to {most}")
    return value * 1024


def _rule(where: str, value: Any) -> Rule:
    _known(where, value, "when", "class", "session", "message", "until", "usage")
    when = value.get("when", {})
    if not isinstance(when, dict):
        raise BadRules(f"{where}.when is not an object of paths and values")
    end_class = value.get("class")
    if end_class is not None:
        _one_of(f"{where}.class", end_class, *sorted(CLASSES))
    return Rule(
        tuple(_condition(f"{where}.when", path, wanted) for path, wanted in when.items()),
        end_class,
        _source(f"{where}.session", value.get("session")),
        _source(f"{where}.message", value.get("message")),
        _source(f"{where}.until", value.get("until")),
        _usage(f"{where}.usage", value["usage"]) if "usage" in value else None,
    )


def _condition(where: str, path: str, wanted: Any) -> Condition:
    where = f"{where}[{path[:50]!r}]"
    steps = _path(where, path)
    if isinstance(wanted, dict):
        _known(where, wanted, "contains", "present")
        contains, present = wanted.get("contains"), wanted.get("present")
        if isinstance(contains, str) and contains and present is None:
            return Condition(steps, contains=contains)
        if isinstance(present, bool) and contains is None:
            return Condition(steps, present=present)
        raise BadRules(f"{where} is neither {{contains: text}} nor {{present: true or false}}")
    values = wanted if isinstance(wanted, list) else [wanted]
    if not values or not all(value is None or isinstance(value, (str, int, float)) for value in values):
        raise BadRules(f"{where} is no value to compare with, nor a list of such")
    return Condition(steps, values=tuple(values))


def _usage(where: str, value: Any) -> UsageRule:
    _known(where, value, "take", "once", "provider", "model", "provenance", *COUNTS)
    counts = {name: _paths(f"{where}.{name}", value[name]) for name in COUNTS if name in value}
    if not counts:
        raise BadRules(f"{where} names none of {', '.join(COUNTS)}")
    return UsageRule(
        _one_of(f"{where}.take", value.get("take", "sum"), "sum", "last"),
        _path(f"{where}.once", value["once"]) if "once" in value else None,
        _source(f"{where}.provider", value.get("provider")),
        _source(f"{where}.model", value.get("model")),
        counts,
        _one_of(f"{where}.provenance", value.get("provenance", "reported"), "reported", "estimated"),
    )


def _source(where: str, value: Any) -> Source | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        return Source(_path(where, value))
    _known(where, value, "path", "value", "after")
    constant, after = value.get("value"), value.get("after")
    if isinstance(constant, str) and constant and len(value) == 1:
        return Source(value=constant)
    if "path" not in value or "value" in value or not (after is None or (isinstance(after, str) and after)):
        raise BadRules(f"{where} is neither {{value: text}} nor {{path: ..., after: text}}")
    return Source(_path(f"{where}.path", value["path"]), after=after)


def _paths(where: str, value: Any) -> tuple[Path, ...]:
    """Read one path, or a list of paths as texts, whose numbers are added."""
    if isinstance(value, list) and value and all(isinstance(one, (str, list)) for one in value):
        return tuple(_path(where, one) for one in value)
    return (_path(where, value),)


def _path(where: str, value: Any) -> Path:
    steps = value.split(".") if isinstance(value, str) else value
    if not isinstance(steps, Sequence) or not steps or not all(isinstance(step, str) and step for step in steps):
        raise BadRules(f"{where} is no path, as in 'message.usage'")
    return tuple(steps)


def _known(where: str, value: Any, *names: str) -> None:
    if not isinstance(value, Mapping):
        raise BadRules(f"{where} is not an object")
    for name in value:
        if name not in names:
            raise BadRules(f"{where} has no {str(name)[:50]!r}; there are {', '.join(names)}")


def _one_of(where: str, value: Any, *allowed: str) -> Any:
    if not isinstance(value, str) or value not in allowed:
        raise BadRules(f"{where} is none of {', '.join(allowed)}")
    return value


def _same(value: Any, wanted: Any) -> bool:
    """Compare as JSON does: true is no 1, and 1 is 1.0."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(wanted, float):
        wanted = Decimal(repr(wanted))
    if isinstance(value, (int, Decimal)) and isinstance(wanted, (int, Decimal)):
        return value == wanted
    return type(value) is type(wanted) and bool(value == wanted)
