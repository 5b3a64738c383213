"""Every block of SQL is understood by the migrated schema, allowed to its role, and used by somebody."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest

import wakeful
from wakeful import store
from wakeful.testing import Database

PARAMETER = re.compile(r"%\((\w+)\)s")
BLOCKS = sorted(
    f"{path.name.removesuffix('.sql')}.{block}"
    for path in files("wakeful").joinpath("sql").iterdir()
    if path.name.endswith(".sql") and path.name not in ("roles.sql", "testing.sql", "conformance.sql")
    for block in store.blocks(path.name.removesuffix(".sql"))
)
# PREPARE takes queries only; these are run as they stand.
UTILITY = re.compile(r"^(--[^\n]*\n)*\s*(SET|LISTEN|UNLISTEN|RESET|LOCK)\b", re.IGNORECASE)


def test_every_aggregate_is_listed_and_has_its_file() -> None:
    assert {name.partition(".")[0] for name in BLOCKS} == set(store.AGGREGATES)


@pytest.fixture(scope="module")
def sessions(server: Any) -> Any:
    """Whoever runs a block: the scheduler's role; what migrations write, the login that migrates."""
    with server.database() as made:
        yield {
            "scheduler": made.connect_as("wakeful_scheduler", autocommit=False),
            "migrations": made.connect(autocommit=False),
        }


@pytest.mark.parametrize("name", BLOCKS)
def test_block_is_understood_and_allowed(name: str, sessions: dict[str, psycopg.Connection[Any]]) -> None:
    text = store.query(name)
    session = sessions.get(name.partition(".")[0], sessions["scheduler"])
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    prepared = PARAMETER.sub(numbered, text)
    if names:
        # psycopg reads a doubled percent sign as one, in texts that have parameters.
        assert not re.search(r"(?<!%)%(?!%)", prepared.replace("%%", "")), "a lone % needs to be doubled"
        prepared = prepared.replace("%%", "%")
    try:
        if UTILITY.match(text):
            session.execute(text)
            return
        session.execute(f"PREPARE block AS {prepared}")
        # The executor's start checks the rights on tables and functions.
        arguments = f"({', '.join(['NULL'] * len(names))})" if names else ""
        session.execute(f"EXPLAIN EXECUTE block {arguments}")
    finally:
        session.rollback()
        session.execute("DEALLOCATE ALL")
        session.rollback()


def sources() -> dict[Path, str]:
    root = Path(wakeful.__file__).parent
    roots = [root, root.parents[1] / "plugins", root.parents[1] / "bench"]
    return {path: path.read_text(encoding="utf-8") for one in roots for path in one.rglob("*.py")}


def test_every_block_is_used() -> None:
    texts = sources()
    unused = []
    for name in BLOCKS:
        aggregate, _, block = name.partition(".")
        for text in texts.values():
            computed = f'f"{aggregate}.{{' in text and re.search(rf"[\"']{block}[\"']|\b{block}=", text)
            if f'"{name}"' in text or computed:
                break
        else:
            unused.append(name)
    assert unused == []


def test_every_name_that_is_asked_for_exists() -> None:
    asked = {
        name for text in sources().values() for name in re.findall(r"\b(?:run|query)\([^\"'()]*\"(\w+\.\w+)\"", text)
    }
    product = [name for name in sorted(asked) if not name.startswith(("testing.", "conformance."))]
    missing = [name for name in product if name not in BLOCKS]
    assert missing == []


def test_a_block_named_twice_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "twice.sql").write_text("-- name: one\nSELECT 1\n\n-- name: one\nSELECT 2\n", encoding="utf-8")
    monkeypatch.setattr(store, "files", lambda _package: tmp_path)
    with pytest.raises(KeyError, match="two blocks named one"):
        store.blocks("twice")


def test_rows_are_named_tuples(database: Database) -> None:
    row = store.run(database.connect(), "settings.now").fetchone()
    assert row.now.tzinfo is not None
