"""What the driver reads: windows, gates that may have opened, pages behind a gate, receipts that other rows name.

Keyset pages over keys that never change: what is inserted, deleted or altered on the way makes nothing appear twice or
get lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import store
from wakeful.admission import PASS
from wakeful.clock import DatabaseTime
from wakeful.coalesce import Source
from wakeful.errors import PluginError
from wakeful.line import Manner
from wakeful.memory import Job, Memory
from wakeful.owners import NamesReceipts
from wakeful.window import Entry, Window

log = logging.getLogger("wakeful.driver")

SHARDS = list(range(16))
# For the sources that coalesce calls wide; all others are read by what waits on just them.
_PAGES = {"issue": "window.waiting_on_issue", "agent": "window.waiting_for_agent"}


class Lookout:
    """The reading half of a driver.

    Arguments:
        memory: what is read goes there.
        time: the database's time; every read corrects it.
        size: rows of one window.
        namers: the owners whose other rows name receipts, by name.
    """

    def __init__(self, memory: Memory, time: DatabaseTime, size: int, namers: Mapping[str, NamesReceipts]) -> None:
        self._memory = memory
        self._time = time
        self._size = size
        self._namers = namers
        self._warned: set[str] = set()

    def job(self, conn: Connection[Any], job: Job) -> None:
        """Do the next part of what is read in the background after a start."""
        match job:
            case ("gates",):
                self.gates(conn)
            case ("named", owner):
                self.named(conn, owner)
            case ("owners",):
                self.owners(conn)

    def window(self, conn: Connection[Any], window: Window, *, ask: bool = True) -> None:
        """Read what is overdue, fairly, and what comes next; with a page full of overdue ones the rest comes later.

        Rows that somebody else holds are left out: they come back by themselves, and would fill every page.

        Arguments:
            ask: whether to ask for the time where no row tells it.
        """
        memory = self._memory
        companies, rows = memory.held()
        parameters = {
            "owner": window.owner,
            "shards": SHARDS,
            "limit": self._size,
            "share": PASS,
            "start": memory.last_company,
            "companies": companies,
            "rows": rows,
        }
        overdue = store.run(conn, "window.overdue", parameters).fetchall()
        full = len(overdue) >= self._size
        near = [] if full else store.run(conn, "window.upcoming", parameters).fetchall()
        page = overdue if full else near
        if page or ask:
            self._time.observe(page[-1].now if page else self.now(conn))
        if len(page) >= self._size and window.is_stuck(frozenset(row.id for row in page)):
            memory.opened(window, [], self._size, complete=False)
            return
        for row in overdue:
            memory.is_due(row.company, row.id, window.manner)
        if full:
            window.stale = True
            return
        entries = [Entry(row.company, row.id, row.due_at) for row in near]
        memory.opened(window, entries, self._size, complete=not companies)

    def now(self, conn: Connection[Any]) -> datetime:
        """Return the database's time."""
        now: datetime = store.run(conn, "settings.now").fetchall()[0].now
        return now

    def page(self, conn: Connection[Any], source: Source, after: UUID) -> list[UUID]:
        """Return the next receipts behind a gate."""
        company, gate, key = source
        parameters = {"company": company, "gate": gate, "key": key, "after": after, "limit": PASS}
        return [row.id for row in store.run(conn, _PAGES.get(gate, "window.parked"), parameters)]

    def gates(self, conn: Connection[Any]) -> None:
        """Read one page of distinct gates: each is judged again through one receipt, never through each."""
        memory = self._memory
        if memory.gates_after is None:
            return
        company, gate, key = memory.gates_after
        parameters = {"company": company, "gate": gate, "key": key, "limit": PASS}
        rows = store.run(conn, "window.gates", parameters).fetchall()
        for row in rows:
            memory.probe((row.company, row.gate, row.key), row.first)
        last = rows[-1] if len(rows) == PASS else None
        memory.gates_after = None if last is None else (last.company, last.gate, last.key)

    def owners(self, conn: Connection[Any]) -> None:
        """Say, once, of whose due wakes no plugin here looks after: they stay due, for a scheduler that loads it."""
        for row in store.run(conn, "window.owners", {"known": list(self._memory.windows)}).fetchall():
            if row.owner not in self._warned:
                self._warned.add(row.owner)
                log.warning(
                    "no loaded plugin times wakes of owner %s: they wait for a scheduler that has it", row.owner
                )
        self._memory.owners_read = True

    def named(self, conn: Connection[Any], owner: str) -> None:
        """Read one page of the receipts that other rows of an owner name: each is due at once.

        Raises:
            PluginError: the owner broke its contract.
        """
        memory = self._memory
        after = memory.named_after[owner]
        page = _page(owner, self._namers[owner], conn, after)
        for company, wake, _ in page:
            memory.is_due(company, wake, Manner.RELEASED)
        if len(page) < PASS:
            del memory.named_after[owner]
        elif page[-1][2] == after:
            raise PluginError(f"owner {owner} names the same receipts again", hint="named() goes on after its cursor")
        else:
            memory.named_after[owner] = page[-1][2]


def _page(owner: str, namer: NamesReceipts, conn: Connection[Any], after: Any) -> Sequence[tuple[str, UUID, Any]]:
    try:
        page = list(namer.named(conn, after, PASS))
    except (SystemExit, GeneratorExit) as error:
        raise PluginError(
            f"owner {owner} raised {type(error).__name__}", hint="a plugin may not end its host"
        ) from error
    sound = len(page) <= PASS and all(
        isinstance(item, tuple) and len(item) == 3 and isinstance(item[0], str) and isinstance(item[1], UUID)
        for item in page
    )
    if not sound:
        raise PluginError(
            f"owner {owner} names no receipts: {page!r:.100}",
            hint=f"named() returns up to {PASS} (company, wake, cursor)",
        )
    return page
