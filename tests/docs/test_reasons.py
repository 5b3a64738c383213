"""The reference of reasons says what the code says: every one, and no other; with gates and commands that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import wakeful
from wakeful import gates, store
from wakeful.executions import EndClass

SOURCES = Path(wakeful.__file__).parents[2]
PAGE = (SOURCES / "docs/reference/reasons.md").read_text(encoding="utf-8")
COMMANDS = (SOURCES / "docs/reference/cli.md").read_text(encoding="utf-8")
FIRST = [
    *("company", "budget", "agent", "circuit", "project", "hold", "recovery", "issue", "dependency", "execution"),
    *("provider", "concurrency", "rate", "plugin", "chat", "comments", "card", "intent", "retry", "wake", "run"),
]
REASON = re.compile(rf"(?:{'|'.join(FIRST)})\.[a-z_]*[a-z]")

# What a text with a gap may become, by the column that fills it.
FILLED = {
    "agent.paused_{}": ["manual", "budget", "system"],
    "project.paused_{}": ["manual", "budget", "system"],
    "agent.{}": ["terminated", "archived"],
    "hold.{}": ["pause", "cancel"],
    "run.{}": [end.value for end in EndClass],
}
IN_SQL = {"run.": ["dead", "lost"]}
OBSERVATIONS = {"wake.linked", "wake.parked", "run.ended"}


def rows() -> dict[str, str]:
    """Return each reason of the page with the rest of its row."""
    found = re.findall(r"^\| `([a-z_.]+)` \|(.*)\|$", PAGE, re.M)
    assert len(found) == len({reason for reason, _ in found}), "a reason is listed twice"
    return dict(found)


def pattern(node: ast.JoinedStr) -> str:
    """Return a formatted text with ``{}`` for each gap."""
    parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return "".join(parts)


def said_in_python() -> Iterator[str]:
    for path in [*SOURCES.glob("scheduler/wakeful/*.py"), *SOURCES.glob("plugins/wakeful_plugins/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = pattern(node)
                if re.fullmatch(rf"(?:{'|'.join(FIRST)})\.[a-z_]*\{{\}}", text):
                    yield from (text.replace("{}", word) for word in FILLED[text])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and REASON.fullmatch(node.value):
                yield node.value


def said_in_sql() -> Iterator[str]:
    for path in SOURCES.glob("scheduler/wakeful/sql/migrations/*.sql"):
        text = path.read_text(encoding="utf-8")
        yield from (match[1] for match in re.finditer(rf"'({REASON.pattern})'", text))
        for begun in re.findall(rf"'((?:{'|'.join(FIRST)})\.)' \|\|", text):
            yield from (begun + word for word in IN_SQL[begun])


def test_every_reason_is_explained_and_no_other() -> None:
    blocks = {f"{aggregate}.{name}" for aggregate in store.AGGREGATES for name in store.blocks(aggregate)}
    said = {*said_in_python(), *said_in_sql()} - OBSERVATIONS - blocks
    explained = set(rows())
    assert said - explained == set(), "reasons without an explanation"
    assert explained - said == set(), "explanations of what nobody says"


def test_what_opens_a_gate_is_a_command_that_exists() -> None:
    names = {" ".join(match[1].split()) for match in re.finditer(r"^#{3,4} (.+)$", COMMANDS, re.M)}
    commands = {name for name in names if not any(other.startswith(f"{name} ") for other in names)}
    named = re.findall(r"`wakeful ([a-z][a-z -]*[a-z])(?: [A-Z]+[^`]*)?`", PAGE)
    assert named
    unknown = [words for words in named if not any(f"{words} ".startswith(f"{name} ") for name in commands)]
    assert unknown == []


def test_the_page_has_the_order_of_the_gates() -> None:
    kinds = [re.match(r"\((\w+)", str(gate.__doc__))[1] for gate in (*gates.ORDER, *gates.LATE_ORDER)]  # type: ignore[index]
    table = PAGE.partition("## Gates that open")[2].partition("## Final")[0]
    listed = [reason.partition(".")[0] for reason in re.findall(r"^\| `([a-z_.]+)`", table, re.M)]
    once = list(dict.fromkeys(listed))
    assert once == [*dict.fromkeys(kinds), "plugin", "chat"]
