"""``make bench``: measure this machine, print a table, write ``bench/results.json``.

Every limit is measured in the same run, in turns with what it bounds. A missed target is shown; only a bench
that could not measure exits with 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import drain
import emit
import enqueue
import idle
import latency
import machine
from row import Row

from wakeful.testing import Server

HERE = Path(__file__).parent
PARTS = ("machine", "idle", "latency", "enqueue", "drain", "coordination", "emit")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few samples: whether the bench works, not how fast")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part to measure; may be repeated")
    parser.add_argument("--results", type=Path, default=HERE / "results.json", help="where to write the rows")
    asked = parser.parse_args(arguments)
    start = time.monotonic()
    rows: list[Row] = []
    data = HERE.parent / "build" / "bench"
    with Server(dsn=os.environ.get("WAKEFUL_DSN"), data=data) as server:
        header = _header(server, quick=asked.quick)
        for part in asked.only or PARTS:
            print(f"measuring {part} …", file=sys.stderr)
            rows.extend(_measured(part, server, quick=asked.quick))
    header["seconds"] = round(time.monotonic() - start, 1)
    asked.results.write_text(json.dumps({"header": header, "rows": [row.as_json() for row in rows]}, indent=1) + "\n")
    _show(header, rows)
    return 0


def _header(server: Server, *, quick: bool) -> dict[str, Any]:
    with server.database(migrated=False) as database:
        described = machine.described(database.connect())
    return {"at": datetime.now(UTC).isoformat(timespec="seconds"), "quick": quick} | described


def _measured(part: str, server: Server, *, quick: bool) -> Iterator[Row]:
    if part == "machine":
        rate = machine.fsyncs_per_s(HERE.parent / "build", 0.1 if quick else 1.0)
        yield Row("fsyncs_per_s", rate, "1/s")
    elif part == "coordination":
        if importlib.util.find_spec("coordination") is not None:
            yield from importlib.import_module("coordination").rows(quick=quick)
    else:
        parts = {"idle": idle, "latency": latency, "enqueue": enqueue, "drain": drain, "emit": emit}
        yield from parts[part].rows(server, quick=quick)


def _show(header: dict[str, Any], rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    facts = ", ".join(f"{name} {value}" for name, value in header.items())
    table = Table(title="wakeful bench", caption=facts)
    table.add_column("row", no_wrap=True)
    for column in ("value", "unit", "limit", "ratio", "n", "spread", "target", ""):
        table.add_column(column, justify="right" if column in ("value", "limit", "ratio", "n", "spread") else "left")
    for row in rows:
        mark = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[row.met]
        limit, ratio = ("" if n is None else f"{n:.3g}" for n in (row.limit, row.ratio))
        numbers = (f"{row.value:,.4g}", row.unit, limit, ratio, str(row.n), f"{row.spread:.0%}")
        table.add_row(row.name, *numbers, row.target, mark)
    Console(width=max(120, Console().width)).print(table)


if __name__ == "__main__":
    sys.exit(main())
