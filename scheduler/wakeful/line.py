"""Receipts that are due, in line by company: each company in turn has a pass, so none waits for another's backlog."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import NamedTuple
from uuid import UUID


class Manner(Enum):
    """How a receipt is looked at."""

    JUDGED = "judged"  # an ordinary pass: due by its stored deadline, or behind a signalled gate
    SETTLED = "settled"  # its chat action's outcome is read into it, and nothing else
    RELEASED = "released"  # judged alone, whatever its deadline: another row names it


class Look(NamedTuple):
    """One receipt to be looked at."""

    company: str
    wake: UUID
    manner: Manner = Manner.JUDGED


class Line:
    """Due receipts, each with whether its gate was signalled."""

    def __init__(self) -> None:
        self._companies: OrderedDict[str, OrderedDict[UUID, bool]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._companies)

    def add(self, company: str, wake: UUID, *, signalled: bool = False) -> None:
        """Put a receipt in line, once; it stays signalled whoever names it again."""
        waiting = self._companies.setdefault(company, OrderedDict())
        waiting[wake] = signalled or waiting.get(wake, False)

    def take(self, together: Callable[[str, UUID], int]) -> tuple[str, dict[UUID, bool]] | None:
        """Take the next company's pass; what is left of that company goes to the end of the line.

        Arguments:
            together: with how many at most a receipt may share a pass, itself included; only its equals share it.
        """
        if not self._companies:
            return None
        company, waiting = self._companies.popitem(last=False)
        most = together(company, next(iter(waiting)))
        equals = (wake for wake in waiting if together(company, wake) == most)
        chosen = {wake: waiting[wake] for wake in list(islice(equals, most))}
        for wake in chosen:
            del waiting[wake]
        if waiting:
            self._companies[company] = waiting
        return company, chosen

    def clear(self) -> None:
        """Forget everybody."""
        self._companies.clear()
