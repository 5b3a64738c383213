"""Counts of the statements that a database really executed, by anybody, nested ones included."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from wakeful import connections
from wakeful.store import query
from wakeful.testing.database import Database

_Counts = dict[tuple[int, int | None, bool], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Executed:
    """One statement and how often it ran; the text is the server's normalised one."""

    text: str
    calls: int


class Statements(AbstractContextManager["Statements"]):
    """What ran in ``database``, asked from another database, so that asking never counts.

    Arguments:
        database: what is counted.
        nested: count also what functions execute. To see that nothing runs at all, False will do.

    Raises:
        AssertionError: the server does not count.
    """

    def __init__(self, database: Database, *, nested: bool = True) -> None:
        self._conn = connections.connect(database.maintenance_dsn, purpose="test statements")
        row = self._conn.execute(query("testing.statement_tracking")).fetchone()
        if row is None or row[0] not in (("all",) if nested else ("all", "top")):
            asked = self._conn.info.dbname
            self._conn.close()
            raise AssertionError(
                f"this server does not count statements: as a superuser, CREATE EXTENSION pg_stat_statements in the "
                f"database {asked}" + (", and set pg_stat_statements.track = 'all'" if nested else "")
            )
        oid = self._conn.execute(query("testing.database_oid"), {"name": database.name}).fetchone()
        if oid is None:
            raise AssertionError(f"there is no database {database.name}")
        self._oid = oid[0]
        self._base = self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._conn.close()

    def reset(self) -> None:
        """Count from now on."""
        self._base = self._read()

    def executed(self) -> list[Executed]:
        """Return what ran since the start or the last reset, most frequent first."""
        found = []
        for key, (calls, text) in self._read().items():
            before = self._base.get(key, (0, ""))[0]
            # The server forgets rare statements; one that came back counts anew.
            more = calls - before if calls >= before else calls
            if more:
                found.append(Executed(text, more))
        return sorted(found, key=lambda one: (-one.calls, one.text))

    def count(self) -> int:
        """Return how many statements ran since the start or the last reset."""
        return sum(one.calls for one in self.executed())

    @contextlib.contextmanager
    def none(self) -> Iterator[None]:
        """Assert that nothing at all runs during the block."""
        self.reset()
        yield
        ran = self.executed()
        if ran:
            listing = "\n".join(f"{one.calls} x {one.text}" for one in ran)
            raise AssertionError(f"statements ran where none was to:\n{listing}")

    def _read(self) -> _Counts:
        rows = self._conn.execute(query("testing.statement_counts"), {"dbid": self._oid}).fetchall()
        found: _Counts = {}
        for user, queryid, top, calls, text in rows:
            # Other accounts' statements have no id for a login without pg_read_all_stats; all of one's count as one.
            key = (user, queryid, top)
            found[key] = (calls + found.get(key, (0, ""))[0], text)
        return found
