"""What a run printed: its files, read through the executor that has them, and the tail that the database keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from psycopg import Connection

from wakeful import store
from wakeful.errors import ExecutorError, NotFound
from wakeful.executions import Ended, Executor, NeverStarted, RunKey

Stream = Literal["stdout", "stderr"]
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class SavedOutput:
    """What the database knows of one stream: where the run is or was, and, once it has ended, its last 8 KiB.

    ``altered`` says that the tail is not byte for byte what was printed, ``truncated`` that the cap cut the file.
    """

    key: RunKey
    state: str
    ended: bool
    host: str | None
    executor: str
    bytes: int | None
    tail: str | None
    altered: bool
    truncated: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a stream, and the byte offset they begin at."""

    offset: int
    data: bytes


def saved(conn: Connection[Any], company: str, run: UUID, stream: Stream) -> SavedOutput:
    """Read what the database knows of a run's output.

    Raises:
        NotFound: there is no such run.
    """
    row = store.run(conn, "listings.run_output", {"company": company, "id": run}, prepare=False).fetchone()
    if row is None:
        raise NotFound(f"run {str(run)!r} does not exist", hint="list them: wakeful runs")
    columns = row._asdict()
    return SavedOutput(
        key=RunKey(company, run, row.generation),
        state=row.state,
        ended=row.ended_at is not None,
        host=row.host,
        executor=row.executor,
        bytes=columns[f"{stream}_bytes"],
        tail=columns[f"{stream}_tail"],
        altered=bool(columns[f"{stream}_altered"]),
        truncated=bool(columns[f"{stream}_truncated"]),
    )


def are_here(executor: Executor | None, key: RunKey, stream: Stream) -> bool:
    """Say whether the executor has the files of this execution."""
    if executor is None:
        return False
    try:
        executor.logs(key, stream, 0, 0)
    except ExecutorError:
        return False
    return True


def pieces(executor: Executor, key: RunKey, stream: Stream, offset: int) -> Iterator[Piece]:
    """Yield what the files have from a byte offset to their present end.

    Raises:
        ExecutorError: the files cannot be read.
    """
    while data := executor.logs(key, stream, offset, _PIECE):
        yield Piece(offset, data)
        offset += len(data)


def are_complete(executor: Executor, key: RunKey) -> bool:
    """Say whether nothing will be added to the files any more, as the files themselves say."""
    return isinstance(executor.poll([key])[0], (Ended, NeverStarted))
