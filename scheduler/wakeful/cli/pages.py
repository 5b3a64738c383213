"""One page of a listing on the command line, and the options that choose it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wakeful.cli import rendering
from wakeful.cli.invocation import Invocation

if TYPE_CHECKING:
    from psycopg import Connection

F = TypeVar("F", bound=Callable[..., Any])
Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], object]]


def paged(function: F) -> F:
    """Add ``--limit`` and ``--after``."""
    limit = click.option("--limit", type=int, default=50, show_default=True, help="Rows at most, 1 to 1000.")
    after = click.option("--after", metavar="CURSOR", help="Go on after this: what the page before named.")
    return limit(after(function))


def by_state(function: F) -> F:
    """Add ``--state``."""
    words = "Only these states, comma between them; an unknown one answers with the known ones."
    return click.option("--state", "states", metavar="STATE,…", help=words)(function)


def split(states: str | None) -> list[str]:
    """Return the words of ``--state``."""
    return [word.strip() for word in (states or "").split(",") if word.strip()]


def show(
    invocation: Invocation,
    conn: Connection[Any],
    name: str,
    columns: Sequence[Column],
    *,
    company: str | None = None,
    states: str | None = None,
    **how: Any,
) -> None:
    """Print one page: a table for people, ``{"rows": …, "after": …}`` for programs.

    Arguments:
        name: one of ``wakeful.listings.LISTINGS``.
        columns: heading and value of what people see.
        how: limit, after, by_end and the listing's own filters.
    """
    from wakeful import listings

    page = listings.page(conn, name, company=company, states=split(states), **how)
    if invocation.json:
        rendering.emit_json({"rows": page.rows, "after": page.after})
        return
    headings = [invocation.noun(heading) for heading, _ in columns]
    rendering.table(headings, [[value(row) for _, value in columns] for row in page.rows])
    more(page.after)


def more(after: str | None) -> None:
    """Tell a person how to go on after a page, if anything comes after it."""
    if after is not None:
        rendering.note(f"more: --after {after}")


def column(heading: str, key: str | None = None) -> Column:
    """Return a column that shows one value of each row as it is."""
    return heading, lambda row: row[key or heading.replace(" ", "_")]
