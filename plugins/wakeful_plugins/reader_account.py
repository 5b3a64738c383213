"""What one usage rule of the JSON-lines reader adds up. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from wakeful.results import storable
from wakeful_plugins.reader_rules import COUNTS, Path, Source, UsageRule, look

_MONEY = Decimal(10) ** 12
_TOKENS = 2**53
_PLACES = Decimal("0.000001")
_TEXT = 200

_Who = tuple[str | None, str | None]
_Counts = dict[str, int | Decimal]


class Account:
    """The usage that lines told, by provider and model.

    Arguments:
        rule: which numbers of a line count, and how.
    """

    def __init__(self, rule: UsageRule) -> None:
        self._rule = rule
        self._told: dict[object, tuple[_Who, _Counts]] = {}
        self._totals: dict[_Who, _Counts] = {}
        self._unpriced: set[_Who] = set()

    def enter(self, line: Mapping[str, Any]) -> None:
        """Enter one line. One without any of the numbers says nothing; one whose price is no price makes it unknown."""
        rule = self._rule
        counted = ((name, _count(name, paths, line)) for name, paths in rule.counts.items())
        counts = {name: number for name, number in counted if number is not None}
        if not counts and all(look(line, path)[1] is None for path in rule.counts.get("money", ())):
            return
        who = (_name(rule.provider, line), _name(rule.model, line))
        if rule.once is not None:
            found, value = look(line, rule.once)
            self._told[repr(value) if found else len(self._told)] = (who, counts)
        elif rule.take == "last":
            self._totals[who] = counts
        else:
            self._add(who, counts)

    def usage(self, whole: bool, to_the_end: bool) -> list[dict[str, Any]]:
        """Return the lines of a result's ``usage``.

        Arguments:
            whole: all lines were seen; else a sum is unknown.
            to_the_end: the last lines were seen; else the last one is unknown.
        """
        for who, counts in self._told.values():
            self._add(who, counts)
        self._told = {}
        known = whole if self._rule.take == "sum" else to_the_end
        return [self._line(who, counts if known else {}) for who, counts in self._totals.items()]

    def _add(self, who: _Who, counts: _Counts) -> None:
        total = self._totals.setdefault(who, {})
        if self._rule.take == "last":
            total.clear()
        for name, number in counts.items():
            total[name] = total.get(name, 0) + number
        if "money" in self._rule.counts and "money" not in counts:
            self._unpriced.add(who)

    def _line(self, who: _Who, counts: _Counts) -> dict[str, Any]:
        line: dict[str, Any] = {name: text for name, text in zip(("provider", "model"), who, strict=True) if text}
        tokens = {name: int(counts[name]) for name in COUNTS if name in counts and name != "money"}
        line |= {name: number for name, number in tokens.items() if number < 2**63}
        # A part without a price makes the price of the whole unknown.
        money = None if who in self._unpriced else counts.get("money")
        if money is None or money >= _MONEY:
            return line | {"provenance": "unknown"}
        exact = Decimal(money).quantize(_PLACES, ROUND_HALF_EVEN)
        return line | {"money": f"{exact:f}", "provenance": self._rule.provenance}


def _count(name: str, paths: tuple[Path, ...], line: Mapping[str, Any]) -> int | Decimal | None:
    """Return the sum of the numbers at some paths, or None where there is none that can be believed."""
    total: int | Decimal | None = None
    for path in paths:
        _, value = look(line, path)
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            continue
        if not 0 <= value < (_MONEY if name == "money" else _TOKENS) or (name != "money" and value != int(value)):
            continue
        total = value if total is None else total + value
    return total


def _name(source: Source | None, line: Mapping[str, Any]) -> str | None:
    value = source.read(line) if source is not None else None
    return None if value is None else storable(str(value))[:_TEXT]
