"""One measured row: a median, the limit it is held against, and how far the samples spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One row of ``results.json``.

    Arguments:
        name, unit: what was measured, in what.
        value: the median of the samples (or the percentile that the name says).
        limit: the same of what it is held against, measured in turns with it; None where there is none.
        ratio: the median of the ratios of neighbouring samples, value by limit.
        n: how many samples.
        spread: the distance between the quartiles of the samples, as a part of their median.
        target: for people; ``met`` says whether it was, None where there is none.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    ratio: float | None = None
    n: int = 1
    spread: float = 0.0
    target: str = ""
    met: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the row for ``results.json``, numbers rounded to what was really measured."""
        numbers = {"value": self.value, "limit": self.limit, "ratio": self.ratio, "spread": self.spread}
        return asdict(self) | {name: None if n is None else float(f"{n:.4g}") for name, n in numbers.items()}


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the smallest sample that at least ``percent`` of them do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, min(len(ordered) - 1, -int(-len(ordered) * percent // 100) - 1))]


def spread(samples: Sequence[float]) -> float:
    """Return the distance between the quartiles as a part of the median."""
    middle = statistics.median(samples)
    return (percentile(samples, 75) - percentile(samples, 25)) / middle if middle else 0.0


def paired(
    name: str,
    unit: str,
    ours: Sequence[float],
    limits: Sequence[float],
    *,
    most: float | None = None,
    least: float | None = None,
    floor: float | None = None,
) -> Row:
    """Return the row of samples measured in turns with those of a limit.

    Arguments:
        most, least: the target of the ratio.
        floor: a target of the value itself.
    """
    ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, limits, strict=True))
    value = statistics.median(ours)
    targets = []
    met = True
    if most is not None:
        targets.append(f"≤ {most:g} x the limit")
        met = met and ratio <= most
    if least is not None:
        targets.append(f"≥ {least:g} x the limit")
        met = met and ratio >= least
    if floor is not None:
        targets.append(f"≥ {floor:g} {unit}")
        met = met and value >= floor
    return Row(
        name,
        value,
        unit,
        statistics.median(limits),
        ratio,
        len(ours),
        spread(ours),
        ", ".join(targets),
        met if targets else None,
    )
