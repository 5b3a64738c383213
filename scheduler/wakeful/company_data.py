"""A company's data as a whole: exported as JSON lines, or erased.

Erasing replaces what people wrote and agents printed by its hash, in rows and journals, and deletes the run
directories of this host. Rows, states, times and money stay.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection

from wakeful import producers, store
from wakeful.errors import NotFound
from wakeful.executions import Executor


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure did with files.

    Arguments:
        deleted: directories deleted here.
        elsewhere: (host, directory) of those that lie on other hosts and are still there.
    """

    deleted: int
    elsewhere: tuple[tuple[str, str], ...]


def export(conn: Connection[Any], company: str) -> Iterator[str]:
    """Yield a company's rows as JSON lines ``{"table": …, "row": {…}}``, in one consistent snapshot.

    Raises:
        NotFound: there is no such company.
    """
    with conn.transaction():
        store.run(conn, "transactions.snapshot")
        tables = store.run(conn, "export.tables", {"company": company}).fetchall()
        found = False
        for table in tables:
            with conn.cursor(name="wakeful_export") as cursor:
                cursor.execute(table.query)
                for (row,) in cursor:
                    found = True
                    yield json.dumps({"table": table.name, "row": row}, ensure_ascii=False)
        if not found:
            raise NotFound(f"company {company!r} does not exist", hint="list them: wakeful company list")


def erase(
    conn: Connection[Any], company: str, *, host: str, data: Path, actor: str, executors: Iterable[Executor] = ()
) -> Erased:
    """Erase a company's words from its rows, then its run directories and instance files from this host.

    Arguments:
        data: this host's data directory; no run directory outside its ``runs`` is deleted.
        executors: this host's; each forgets what else it keeps for the company.

    Raises:
        NotFound, Conflict: as ``erase_company`` says; nothing was erased.
    """
    directories = store.run(conn, "export.directories", {"company": company}).fetchall()
    producers.run(conn, producers.erase_company(company, actor=actor))
    root = (data / "runs").resolve()
    deleted, elsewhere = 0, []
    for row in directories:
        path = Path(row.directory)
        if row.host != host:
            elsewhere.append((str(row.host), row.directory))
        elif root in path.resolve().parents:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)
                deleted += 1
    for executor in executors:
        executor.forget(company)
    return Erased(deleted, tuple(elsewhere))
