"""Times that people wrote around the producers, and that Python cannot hold: a list with one must still be shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from psycopg import DataError
from psycopg.types.datetime import TimestamptzLoader

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.abc import Buffer

# A day within what Python holds, so that every zone can show them.
FIRST = datetime(1, 1, 2, tzinfo=UTC)
LAST = datetime(9999, 12, 30, tzinfo=UTC)


class TolerantLoader(TimestamptzLoader):
    """Reads infinity and far times as the last time there is, or the first."""

    def load(self, data: Buffer) -> datetime:
        """Return the time in ``data``."""
        try:
            return super().load(data)
        except DataError:
            text = bytes(data)
            return FIRST if text.startswith(b"-") or text.endswith(b"BC") else LAST


def tolerate(conn: Connection[Any]) -> None:
    """Read every time that the database can hold, on this connection."""
    conn.adapters.register_loader("timestamptz", TolerantLoader)
