"""What was said on an issue: its comments, its cards, and the queues of comments that wait for a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import store
from wakeful.errors import InvalidInput, NotFound

LONGEST_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Said:
    """Some rows, oldest first, and the id of the last one if more come after it."""

    rows: tuple[Mapping[str, Any], ...]
    after: str | None


def comments(conn: Connection[Any], company: str, issue: str, *, limit: int = 50, after: str | None = None) -> Said:
    """Return one page of an issue's comments.

    Arguments:
        limit: rows at most, 1 to 1000.
        after: the id of the last comment of the page before; None for the first page.

    Raises:
        InvalidInput: the limit is out of range.
    """
    return _page(conn, "comments", company, issue, limit, after)


def cards(conn: Connection[Any], company: str, issue: str, *, limit: int = 50, after: str | None = None) -> Said:
    """Return one page of an issue's cards, questions and answers as values.

    Arguments:
        limit: rows at most, 1 to 1000.
        after: the id of the last card of the page before; None for the first page.

    Raises:
        InvalidInput: the limit is out of range, or a host's JSON cannot be read.
    """
    page = _page(conn, "cards", company, issue, limit, after)
    return Said(tuple({**row, **_read(row)} for row in page.rows), page.after)


def queues(conn: Connection[Any], company: str, issue: str) -> tuple[Mapping[str, Any], ...]:
    """Return the issue's queues: what waits in receipts, and in the run that is queued with it.

    Each names its ``queue`` (the receipt), its ``revision`` to compare by, and its ``comments`` in order.
    """
    rows = store.run(conn, "conversations.queues", {"company": company, "issue": issue}, prepare=False)
    return tuple(row._asdict() for row in rows)


def revision(conn: Connection[Any], company: str, comment: str) -> int:
    """Return a comment's present revision.

    Raises:
        NotFound: there is no such comment.
    """
    key = {"company": company, "comment": comment}
    row = store.run(conn, "conversations.revision", key, prepare=False).fetchone()
    if row is None:
        raise NotFound(f"comment {comment!r} does not exist", hint="list them: wakeful comment list ISSUE")
    return int(row.revision)


def queue_revision(conn: Connection[Any], company: str, queue: UUID) -> str:
    """Return the present revision of a queue of comments.

    Raises:
        NotFound: nothing waits in it.
    """
    row = store.run(conn, "conversations.queue", {"company": company, "queue": queue}, prepare=False).fetchone()
    found = [] if row is None else [one for one in queues(conn, company, row.issue) if one["queue"] == queue]
    if not found:
        raise NotFound(f"no comments wait in queue {queue}", hint="see: wakeful comment list ISSUE --queued")
    return str(found[0]["revision"])


def generation(conn: Connection[Any], company: str, run: UUID) -> int:
    """Return a run's present generation.

    Raises:
        NotFound: there is no such run.
    """
    row = store.run(conn, "conversations.generation", {"company": company, "run": run}, prepare=False).fetchone()
    if row is None:
        raise NotFound(f"run {str(run)!r} does not exist", hint="list them: wakeful runs")
    return int(row.generation)


def _page(conn: Connection[Any], what: str, company: str, issue: str, limit: int, after: str | None) -> Said:
    if not 1 <= limit <= LONGEST_PAGE:
        raise InvalidInput(f"a page has 1 to {LONGEST_PAGE} rows, not {limit}")
    key = {"company": company, "issue": issue, "after": after, "limit": limit + 1}
    rows = [row._asdict() for row in store.run(conn, f"conversations.{what}", key, prepare=False)]
    return Said(tuple(rows[:limit]), str(rows[limit - 1]["id"]) if len(rows) > limit else None)


def _read(row: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {name: None if row[name] is None else json.loads(row[name]) for name in ("question", "answer")}
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"card {row['id']!r} cannot be read: {error}") from None
