"""The only place that holds and runs the domain's SQL: named blocks from ``sql/<aggregate>.sql``.

A block starts with ``-- name: <block>``; the comment lines after it say what it guarantees. Parameters are
psycopg's named ones. Nothing is read at import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString, cast

from psycopg import Connection, Cursor
from psycopg.rows import RowFactory, namedtuple_row

AGGREGATES = (
    "admission",
    "control",
    "conversations",
    "demo",
    "dispatch",
    "doctor",
    "explain",
    "export",
    "fence",
    "forecast",
    "hosts",
    "intents",
    "interrupts",
    "listings",
    "migrations",
    "panics",
    "recovery",
    "relay",
    "settings",
    "settlement",
    "terminals",
    "transactions",
    "usage",
    "window",
)
_BLOCK = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)

Params = Mapping[str, Any]


@cache
def blocks(aggregate: str) -> Mapping[str, LiteralString]:
    """Return the named blocks of one aggregate.

    Raises:
        KeyError: the aggregate has two blocks of one name.
    """
    text = files("wakeful").joinpath("sql", f"{aggregate}.sql").read_text(encoding="utf-8")
    parts = _BLOCK.split(text)
    found: dict[str, LiteralString] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if name in found:
            raise KeyError(f"{aggregate}.sql has two blocks named {name}")
        # The text comes from our own package, never from input.
        found[name] = cast(LiteralString, body.strip())
    return found


def query(name: str) -> LiteralString:
    """Return the SQL of ``<aggregate>.<block>``."""
    aggregate, _, block = name.partition(".")
    return blocks(aggregate)[block]


def run(conn: Connection[Any], name: str, params: Params | None = None, *, prepare: bool | None = None) -> Cursor[Any]:
    """Run one block on the given connection and return its cursor; rows are named tuples."""
    cursor = conn.cursor(row_factory=cast("RowFactory[Any]", namedtuple_row))
    return cursor.execute(query(name), params, prepare=prepare)
