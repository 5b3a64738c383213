"""The reference of names and defaults says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import wakeful
from wakeful import backoff, coalesce, connections, listings, memory, outcomes, results, standings, usage, window
from wakeful.cli.settings import KNOWN
from wakeful.control import Pace
from wakeful.executions import EndClass, Grade, RunSpec
from wakeful.producers.arguments import BODY_BYTES, PAYLOAD_BYTES, PAYLOAD_LEVELS
from wakeful_plugins import reader_rules, result_reader

SOURCES = Path(wakeful.__file__).parents[2]
PAGE = (SOURCES / "docs/reference/defaults.md").read_text(encoding="utf-8")


def rows() -> dict[str, str]:
    found = re.findall(r"^\| (.+?) \| (.+?) \|", PAGE, re.M)
    return {what.replace("`", ""): value for what, value in found}


def test_the_instances_settings() -> None:
    table = rows()
    for name, default, _ in KNOWN:
        assert table[name] == f"`{str(default).lower()}`"


def test_the_numbers() -> None:
    table, pace, spec = rows(), Pace(), RunSpec(command=("true",), input={}, agent="a")
    assert table["grace after a first or changed wait reason"] == f"{outcomes.GRACE.seconds} s"
    assert table["failure backoff"].startswith(f"from {backoff.FIRST:g} s to {backoff.CAP:g} s")
    assert f"every {pace.keep_alive.seconds} s" in table["keep-alive of the control session"]
    assert f"after {pace.frozen.seconds} s" in table["keep-alive of the control session"]
    assert table["a standby scheduler tries for the owners' lock"] == f"every {pace.contend.seconds} s"
    assert table["an answer of the database"].startswith(f"{connections.DEADLINE.seconds} s")
    assert table["payload"] == f"{PAYLOAD_BYTES >> 10} KiB"
    assert table["payload, levels of lists and mappings"] == f"{PAYLOAD_LEVELS}"
    assert table["comment"] == f"{BODY_BYTES >> 10} KiB"
    assert table["question of a card, answer to it"] == f"{PAYLOAD_BYTES >> 10} KiB each"
    assert table["result"] == f"{results.LIMIT >> 10} KiB"
    assert table["session token"] == f"{results.SESSION} bytes"
    assert table["lines of usage in a result"] == str(usage.LINES)
    reader = reader_rules.parse({"rules": [{}]})
    assert table["configuration of a result reader"] == f"{PAYLOAD_BYTES >> 10} KiB, {reader_rules.RULES} rules"
    bounds = f"{reader.head >> 10} KiB from the start and {reader.tail >> 20} MiB from the end"
    line = f"lines of {result_reader.LINE >> 20} MiB"
    assert table["output that the reader json_lines reads"] == f"{bounds}; {line}"
    assert table["deadlines read at once"] == str(window.SIZE)
    assert table["rows of one company that another session holds, before no more of it are read"] == str(memory.HELD)
    coalescing = table["reconstructions of one source, while they admit nothing"]
    assert coalescing == f"at most one in {coalesce.WINDOW:g} s"
    excuse = table["an admission excuses a walk that finds its slot or issue taken"]
    assert excuse == f"for {coalesce.MOMENT:g} s, once"
    assert table["times that interrupts ask one run to stop"] == str(standings.TEARDOWNS)
    assert table["rows of a page"].startswith(str(listings.LONGEST_PAGE))
    assert table["grace between TERM and KILL"] == f"{spec.stop_grace.seconds} s"
    assert table["longest runtime"] == "1 h"
    assert spec.max_runtime is not None
    assert spec.max_runtime.total_seconds() == 3600
    assert table["variables inherited"] == f"`{' '.join(spec.allow)}`"


def test_every_end_and_every_grade_is_explained() -> None:
    for word in [*EndClass, *Grade]:
        assert f"`{word.value}`" in PAGE, word
