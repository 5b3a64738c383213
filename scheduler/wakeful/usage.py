"""What a run says it used, validated. Unknown is a value of its own, never zero. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, Literal, cast

Provenance = Literal["reported", "estimated", "unknown"]

LINES = 100
PROVENANCES = ("reported", "estimated", "unknown")
_TEXT = 200
_TOKENS = 2**63 - 1
_MONEY = Decimal(10) ** 12
_DECIMAL = re.compile(r"\d{1,12}(\.\d{1,18})?", re.ASCII)
_PLACES = Decimal("0.000001")


class BadUsage(ValueError):
    """Why a list of usage cannot be accepted."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used of one model.

    Arguments:
        tokens_in, tokens_out, tokens_cached: None where it was not said.
        money: in the company's currency, to 6 decimal places; None where it is unknown.
        provenance: where ``money`` comes from: a bill (reported) or a reckoning (estimated).
    """

    provider: str | None = None
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    money: Decimal | None = None
    provenance: Provenance = "unknown"


def read_usage(value: Any) -> tuple[Usage, ...]:
    """Validate the ``usage`` of a result.

    Raises:
        BadUsage: with the field at fault.
    """
    if not isinstance(value, list) or len(value) > LINES:
        raise BadUsage(f"usage is not a list of at most {LINES} objects")
    lines = tuple(_line(f"usage[{number}]", line) for number, line in enumerate(value))
    if sum((line.money for line in lines if line.money is not None), Decimal(0)) >= _MONEY:
        raise BadUsage("usage adds up to 10^12 or more")
    return lines


def _line(where: str, value: Any) -> Usage:
    if not isinstance(value, Mapping):
        raise BadUsage(f"{where} is not an object")
    money = _money(f"{where}.money", value.get("money"))
    provenance = value.get("provenance")
    if provenance is None:
        provenance = "unknown" if money is None else "reported"
    if provenance not in PROVENANCES:
        raise BadUsage(f"{where}.provenance is none of {', '.join(PROVENANCES)}")
    if provenance == "unknown" and money is not None:
        raise BadUsage(f"{where} has an amount of money and calls it unknown: leave one of them out")
    return Usage(
        provider=_text(f"{where}.provider", value.get("provider")),
        model=_text(f"{where}.model", value.get("model")),
        tokens_in=_tokens(f"{where}.tokens_in", value.get("tokens_in")),
        tokens_out=_tokens(f"{where}.tokens_out", value.get("tokens_out")),
        tokens_cached=_tokens(f"{where}.tokens_cached", value.get("tokens_cached")),
        money=money,
        provenance=cast(Provenance, provenance),
    )


def _text(where: str, value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) > _TEXT):
        raise BadUsage(f"{where} is not text of at most {_TEXT} characters")
    return value


def _tokens(where: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _TOKENS:
        raise BadUsage(f"{where} is not a whole number of tokens")
    return value


def _money(where: str, value: Any) -> Decimal | None:
    if value is None:
        return None
    amount = None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MONEY:
        amount = Decimal(repr(value))  # the shortest decimal that reads as this number: what was written
    elif isinstance(value, str) and _DECIMAL.fullmatch(value):
        amount = Decimal(value)
    if amount is None or (rounded := amount.quantize(_PLACES, ROUND_HALF_EVEN)) >= _MONEY:
        raise BadUsage(f"{where} is no amount: a number, or text such as '0.0123', from 0 to below 10^12")
    return rounded
