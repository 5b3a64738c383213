"""One producer's call as a value that renders for any driver, and its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, LiteralString
from uuid import UUID

if TYPE_CHECKING:
    from psycopg import Connection

Argument = tuple[str, Any]


class JsonText(str):
    """A JSON document as text, which the server reads as jsonb.

    A type of its own, because SQLAlchemy binds a plain str as VARCHAR, and no function takes VARCHAR for jsonb.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """A call of one database function, with only the arguments that were given.

    The text holds no cast, and neither ``%`` nor ``:`` besides the placeholders, so no driver mistakes it. It
    selects one row: outcome, wake, state, run. Execute it in any transaction, or let :func:`run` do so.
    """

    function: str
    arguments: tuple[Argument, ...]

    @property
    def psycopg(self) -> tuple[LiteralString, tuple[Any, ...]]:
        """For psycopg, sync or async: ``conn.execute(*statement.psycopg)``."""
        return self._text(lambda _, __: "%s"), self._values

    @property
    def django(self) -> tuple[str, tuple[Any, ...]]:
        """For Django: ``cursor.execute(*statement.django)``."""
        return self.psycopg

    @property
    def sqlalchemy(self) -> tuple[str, dict[str, Any]]:
        """For SQLAlchemy, sync or async: ``sql, values = call.sqlalchemy; conn.execute(text(sql), values)``."""
        return self._text(lambda _, name: f":{name}"), dict(self.arguments)

    @property
    def numbered(self) -> tuple[str, list[Any]]:
        """For asyncpg and others with ``$1``: ``sql, values = call.numbered; await conn.fetchrow(sql, *values)``."""
        return self._text(lambda number, _: f"${number}"), list(self._values)

    @property
    def _values(self) -> tuple[Any, ...]:
        return tuple(value for _, value in self.arguments)

    def _text(self, placeholder: Callable[[int, str], str]) -> LiteralString:
        given = ", ".join(f"{name} => {placeholder(at, name)}" for at, (name, _) in enumerate(self.arguments, 1))
        # Function and argument names are this package's own, never input.
        return f"SELECT outcome, wake, state, run FROM wakeful.{self.function}({given})"  # noqa: S608


@dataclass(frozen=True, slots=True)
class ProducerResult:
    """What a producer did; ``ProducerResult(*row)`` from any driver's row.

    Attributes:
        outcome: inserted (something new), merged (changed what was there), existing (nothing to change).
        wake: the wake this is about, if any.
        state: the present state of the wake, run or thing.
        run: the run this is about, or that carries the wake, if any.
    """

    outcome: Literal["inserted", "merged", "existing"]
    wake: UUID | None
    state: str | None
    run: UUID | None


def call(function: str, *arguments: Argument) -> Statement:
    """Return the call of ``function`` with ``arguments``; a value of ``...`` is left out, None is sent as NULL."""
    return Statement(function, tuple(argument for argument in arguments if argument[1] is not ...))


def run(conn: Connection[Any], statement: Statement) -> ProducerResult:
    """Execute ``statement`` on a psycopg connection, in the transaction that is open there, and commit nothing.

    Arguments:
        conn: any psycopg connection; on an autocommit one the call is a transaction of its own.

    Raises:
        InvalidInput, NotFound, Conflict: the producer's answer; a transaction around it must be rolled back.
        DatabaseUnavailable, SchemaMismatch: no answer, or no producers there.
    """
    from psycopg.rows import tuple_row

    from wakeful.database_errors import translated

    with translated(), conn.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(*statement.psycopg).fetchone()
    assert row is not None  # noqa: S101 - a function call selects one row
    return ProducerResult(*row)
