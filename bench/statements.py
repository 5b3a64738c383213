"""The bench's own SQL: named blocks of ``statements.sql``, in the form of the product's SQL files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, LiteralString, cast

from psycopg import Connection, Cursor

_BLOCK = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def _blocks() -> Mapping[str, LiteralString]:
    parts = _BLOCK.split(Path(__file__).with_name("statements.sql").read_text(encoding="utf-8"))
    # The text is this folder's own, never input.
    return {name: cast(LiteralString, body.strip()) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def query(name: str) -> LiteralString:
    """Return the SQL of one block."""
    return _blocks()[name]


def run(conn: Connection[Any], name: str, parameters: Mapping[str, Any] | None = None) -> Cursor[Any]:
    """Run one block; rows are plain tuples."""
    return conn.execute(query(name), parameters)
