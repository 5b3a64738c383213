"""Pages of records in a total order, and single records for a closer look.

A cursor is opaque: the last row's whole sort tuple, times with their microseconds, and the name of the listing it
belongs to. A missing end sorts before every end. Payloads, results and outputs are never read by a page.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import store
from wakeful.errors import InvalidInput, NotFound
from wakeful.receipts import ENDED_RUN, FINAL, ISSUE_STATUSES, LIVE_RUN, PENDING

LONGEST_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Listing:
    """What can be listed.

    Arguments:
        name: in commands, and the block of ``listings.sql``.
        key: the column that sorts it.
        by_end: whether it can be sorted by its end as well.
        groups: words for several states at once.
        states: every single state.
        filters: the columns it can be narrowed by.
    """

    name: str
    key: str
    by_end: bool = False
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    states: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()

    @property
    def time_ordered(self) -> bool:
        """Whether its ids are UUIDs that begin with the time they were made; newest come first."""
        return self.name in ("wakes", "runs", "spend", "audit", "recoveries", "chats", "decisions")


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows, and the cursor after the last of them; None when nothing comes after."""

    rows: tuple[Mapping[str, Any], ...]
    after: str | None


LISTINGS: Mapping[str, Listing] = MappingProxyType(
    {
        listing.name: listing
        for listing in (
            Listing("companies", "company", states=("active", "paused", "archived")),
            Listing("projects", "id", states=("active", "paused", "archived")),
            Listing("agents", "id", states=("active", "paused", "pending_approval", "terminated", "archived")),
            Listing(
                "issues",
                "id",
                states=ISSUE_STATUSES,
            ),
            Listing(
                "wakes",
                "id",
                by_end=True,
                groups=(
                    ("pending", PENDING),
                    ("final", FINAL),
                    ("ran", ("linked",)),
                    ("merged", ("coalesced", "settled")),
                    ("will-not-run", ("skipped", "retired", "cancelled", "failed")),
                ),
                states=PENDING + FINAL,
                filters=("agent", "issue", "gate", "key"),
            ),
            Listing(
                "runs",
                "id",
                by_end=True,
                groups=(("live", LIVE_RUN), ("ended", ENDED_RUN)),
                states=LIVE_RUN + ENDED_RUN,
                filters=("agent", "issue"),
            ),
            Listing("budgets", "id"),
            Listing("spend", "id"),
            Listing("audit", "id"),
            Listing("recoveries", "id", states=("open", "resolved")),
            Listing("chats", "id", states=("pending", "processing", "processed", "failed")),
            Listing("decisions", "id", filters=("issue",)),
            Listing("limits", "id"),
            Listing("settings", "name"),
            Listing("hosts", "id"),
        )
    }
)


def page(
    conn: Connection[Any],
    name: str,
    *,
    company: str | None = None,
    limit: int = 50,
    after: str | None = None,
    by_end: bool = False,
    states: Sequence[str] = (),
    **filters: str | None,
) -> Page:
    """Return one page.

    Arguments:
        conn: any connection that may read.
        name: one of ``LISTINGS``.
        company: whose records; only instance tables and companies do without.
        limit: rows at most, 1 to 1000.
        after: the cursor of the page before, None for the first.
        by_end: latest end first, what has not ended before all that has.
        states: single states, or the listing's own words for several; none means all.
        filters: columns and the values they must have; None means any.

    Raises:
        InvalidInput: a cursor of another listing or none at all, an unknown state, a limit out of range.
    """
    listing = LISTINGS[name]
    if not 1 <= limit <= LONGEST_PAGE:
        raise InvalidInput(f"a page has 1 to {LONGEST_PAGE} rows, not {limit}")
    if unknown := [column for column in filters if column not in listing.filters]:
        raise InvalidInput(f"{name} cannot be narrowed by {', '.join(unknown)}")
    if by_end and not listing.by_end:
        raise InvalidInput(f"{name} have no end to be sorted by")
    order = f"{name} by end" if by_end else name
    at, last = (None, None) if after is None else _decoded(after, order, listing)
    params: dict[str, Any] = dict.fromkeys(listing.filters)
    params |= filters
    params |= {
        "company": company,
        "id": None,
        "limit": limit + 1,  # one more tells whether anything comes after
        "by_end": by_end,
        "states": _states(listing, states),
        "after_at": at,
        "after_id": last if listing.time_ordered else None,
        "after_key": None if listing.time_ordered else last,
    }
    rows = [row._asdict() for row in store.run(conn, f"listings.{name}", params, prepare=False).fetchall()]
    if len(rows) <= limit:
        return Page(tuple(rows), None)
    edge = rows[limit - 1]
    return Page(tuple(rows[:limit]), _encoded(order, edge["ended_at"] if by_end else None, edge[listing.key]))


def enter_company(conn: Connection[Any], company: str | None, *, known: bool = True) -> str:
    """Make a company the session's tenant and return its id.

    Arguments:
        company: its id; None for the only one there is.
        known: whether it must exist.

    Raises:
        NotFound: it does not exist, or none is given and there is none.
        InvalidInput: none is given, and there are several.
    """
    if company is None:
        rows = store.run(conn, "listings.first_companies", prepare=False).fetchall()
        if not rows:
            raise NotFound("there is no company yet", hint="create one: wakeful company add NAME")
        if len(rows) > 1:
            raise InvalidInput("there are several companies", hint="name one: --company ID, or set WAKEFUL_COMPANY")
        company = str(rows[0].company)
    row = store.run(conn, "listings.enter_company", {"company": company}, prepare=False).fetchone()
    if known and not (row and row.known):
        raise NotFound(f"company {company!r} does not exist", hint="list them: wakeful company list")
    return company


def now(conn: Connection[Any]) -> datetime:
    """Return the database's time."""
    row = store.run(conn, "settings.now", prepare=False).fetchone()
    assert row is not None  # noqa: S101 - a statement without FROM has one row
    moment: datetime = row.now
    return moment


def one(conn: Connection[Any], name: str, company: str, id: str) -> Mapping[str, Any]:
    """Return a single company, project, agent or issue as its listing shows it.

    Raises:
        NotFound: there is none of that id.
    """
    params: dict[str, Any] = {"company": company, "id": id, "limit": 1, "states": None, "after_key": None}
    row = store.run(conn, f"listings.{name}", params, prepare=False).fetchone()
    if row is None:
        noun = {"companies": "company"}.get(name, name.removesuffix("s"))
        raise NotFound(f"{noun} {id!r} does not exist", hint=f"list them: wakeful {noun} list")
    return row._asdict()  # type: ignore[no-any-return]  # named tuples have no static type


def issue(conn: Connection[Any], company: str, id: str) -> Mapping[str, Any]:
    """Return one issue with its body.

    Raises:
        NotFound: there is none of that id.
    """
    row = one(conn, "issues", company, id)
    body = store.run(conn, "listings.issue_body", {"company": company, "id": id}, prepare=False).fetchone()
    return {**row, "body": body.body if body else None}


def run(conn: Connection[Any], company: str, id: UUID) -> Mapping[str, Any]:
    """Return one run as its listing shows it, with its result and where its output lies.

    Raises:
        NotFound: there is no such run.
    """
    params: dict[str, Any] = dict.fromkeys(("agent", "issue", "states", "after_at", "after_id"))
    params |= {"company": company, "id": id, "limit": 1, "by_end": False}
    row = store.run(conn, "listings.runs", params, prepare=False).fetchone()
    detail = store.run(conn, "listings.run_detail", {"company": company, "id": id}, prepare=False).fetchone()
    if row is None or detail is None:
        raise NotFound(f"run {str(id)!r} does not exist", hint="list them: wakeful runs")
    return {**row._asdict(), **detail._asdict()}


def chat(conn: Connection[Any], company: str, id: UUID) -> Mapping[str, Any]:
    """Return one chat action as its listing shows it.

    Raises:
        NotFound: there is no such action.
    """
    params: dict[str, Any] = {"company": company, "id": id, "limit": 1, "states": None, "after_id": None}
    row = store.run(conn, "listings.chats", params, prepare=False).fetchone()
    if row is None:
        raise NotFound(f"chat action {str(id)!r} does not exist", hint="list them: wakeful chat list")
    return row._asdict()  # type: ignore[no-any-return]  # named tuples have no static type


def _states(listing: Listing, words: Sequence[str]) -> list[str] | None:
    states: list[str] = []
    groups = dict(listing.groups)
    for word in words:
        if word in groups:
            states += groups[word]
        elif word in listing.states:
            states.append(word)
        else:
            known = ", ".join((*groups, *listing.states)) or "none: they have no state"
            raise InvalidInput(f"{word!r} is no state of {listing.name}", hint=f"known: {known}")
    return states or None


def _encoded(order: str, at: datetime | None, last: object) -> str:
    tuple_ = [order, None if at is None else at.isoformat(timespec="microseconds"), str(last)]
    return base64.urlsafe_b64encode(json.dumps(tuple_).encode()).decode().rstrip("=")


def _decoded(cursor: str, order: str, listing: Listing) -> tuple[datetime | None, UUID | str]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        whose, at, last = json.loads(text)
        if whose != order or "\0" in last.encode().decode():
            raise ValueError
        moment = None if at is None else datetime.fromisoformat(at)
        if moment is not None and moment.tzinfo is None:
            raise ValueError
        return moment, UUID(last) if listing.time_ordered else last
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidInput(
            f"this cursor does not belong to a list of {order}",
            hint="give what the page before named as its `after`, unchanged, with the same order",
        ) from None
