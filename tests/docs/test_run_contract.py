"""The run contract's tables and examples are what the code gives and takes."""

from __future__ import annotations

import inspect
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests import passes

import wakeful
from wakeful import terminals, work
from wakeful.crash_points import no_crash
from wakeful.executions import EndClass, Grade, RunKey, RunSpec
from wakeful.results import read_result
from wakeful_plugins.child_environment import child_environment
from wakeful_plugins.reader_rules import BadRules, parse
from wakeful_plugins.result_reader import JsonLinesReader

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/run-contract.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text under a heading, up to the next heading."""
    return re.split(r"^#+ ", after(title), maxsplit=1, flags=re.M)[0]


def after(title: str) -> str:
    start = re.search(rf"^#+ {re.escape(title)}$", PAGE, re.M)
    assert start, title
    return PAGE[start.end() :]


def blocks(title: str, language: str) -> list[str]:
    """The code blocks of one language under a heading, up to the next heading."""
    inside, found, body = False, [], []
    for line in after(title).splitlines():
        if not inside and re.match(r"#+ ", line):
            break
        if line.startswith("```"):
            if inside:
                found.append((body[0], "\n".join(body[1:])))
            inside, body = not inside, [line.removeprefix("```")]
        elif inside:
            body.append(line)
    return [text for name, text in found if name == language]


def named(title: str) -> set[str]:
    """The names in the first column of the tables under a heading."""
    rows = re.findall(r"^\| (`.+?) \|", section(title), re.M)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def keys(value: Any, above: str = "") -> Iterator[str]:
    """Dotted names of all fields of an example; a list's are those of its first item."""
    if isinstance(value, list) and value:
        yield from keys(value[0], above)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield above + name
            yield from keys(item, f"{above}{name}.")


def test_input_json_is_what_a_retry_on_an_issue_is_given(conn: psycopg.Connection[Any], company: str) -> None:
    def start(statement: wakeful.Statement) -> RunKey:
        made = wakeful.run(conn, statement).wake
        assert made is not None
        passes.admit(conn, made)
        [key] = passes.start(conn)
        return key

    first = start(wakeful.request_wake(company, "coder", "I-17", payload={"invoice": 17}))
    passes.end(conn, first)
    key = start(wakeful.request_retry(company, first.run))
    died = terminals.Death(key, Grade.CONTAINED, "its runner was killed")
    terminals.record(conn, company, [], [died], crash=no_crash)
    [key] = passes.start(conn)
    given = work.read(conn, company, [key])[key]
    [example] = blocks("input.json", "json")
    shown, real = json.loads(example), dict(given.spec.input)
    assert list(shown) == list(real)
    assert list(keys(shown)) == list(keys(real))
    payload = {"wake.payload.invoice"}
    assert named("input.json") == set(keys(shown)) - payload
    assert (shown["attempt"], shown["generation"], shown["wake"]["kind"]) == (
        real["attempt"],
        real["generation"],
        real["wake"]["kind"],
    )


def test_result_json_is_accepted_as_it_stands() -> None:
    [example] = blocks("result.json", "json")
    result = read_result(example.encode())
    assert result == json.loads(example)
    parts = {f"artifacts.{name}" for name in ("name", "uri", "digest")} | {"next.payload.invoice"}
    asks = {"next": {"question": "Ship it?", "kind": "choice"}}  # in place of a time
    assert read_result(json.dumps(asks).encode()) == asks
    assert named("result.json") == (set(keys(result)) | set(keys(asks))) - parts


def test_the_environment_is_what_a_child_gets() -> None:
    spec = RunSpec(("true",), {}, agent="coder", issue="I-17", token="1.2.3")
    made = child_environment(
        spec, RunKey("acme", UUID(int=1), 2), {}, input_path="/i", result_path="/r", coordination="/c"
    )
    assert named("Environment") == set(made)


def test_every_end_class_is_explained() -> None:
    assert named("How it ended") == {end_class.value for end_class in EndClass}


def test_the_record_is_what_add_agent_takes() -> None:
    parameters = set(inspect.signature(wakeful.add_agent).parameters)
    assert parameters - named("The agent's record") == {"company", "agent", "name", "reports_to", "actor"}
    assert named("The agent's record") <= parameters


def test_every_field_of_a_reader_is_explained() -> None:
    fields = set()
    for wrong in ({"?": 1}, {"rules": [{"?": 1}]}, {"rules": [{"usage": {"?": 1}}]}):
        with pytest.raises(BadRules) as raised:
            parse(wrong)
        fields |= set(str(raised.value).partition("there are ")[2].split(", "))
    assert named("Result readers") == fields - {"kind"}


def test_the_reader_makes_of_the_lines_what_the_page_says() -> None:
    class Lines:
        def __init__(self, text: str) -> None:
            self._data = text.encode()
            self.size, self.truncated = len(self._data), False

        def read(self, offset: int, limit: int) -> bytes:
            return self._data[offset : offset + limit]

    config, expected = (json.loads(block) for block in blocks("Result readers", "json"))
    [printed] = blocks("Result readers", "")
    assert JsonLinesReader().read(config, Lines(printed + "\n"), Lines("")) == expected
    # An agent may carry it.
    wakeful.add_agent("acme", "coder", ["true"], reader=config)
    limited = Lines('{"type": "result", "is_error": true, "result": "limit reached|4102444799"}\n')
    assert JsonLinesReader().read(config, limited, Lines(""))["class"] == "provider_limited"


def test_a_report_can_be_made_as_shown() -> None:
    [code] = blocks("Usage and money", "python")
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own page
    assert isinstance(names["report"], wakeful.Statement)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "bank") as bank:
        bank.execute("CREATE TABLE payment (key TEXT PRIMARY KEY, cents INTEGER)")
    with sqlite3.connect(tmp_path / "site") as site:
        site.execute("CREATE TABLE page (text TEXT, epoch INTEGER, run TEXT, generation INTEGER)")
        site.execute("INSERT INTO page VALUES ('', 0, '', 0)")
    return tmp_path


def test_the_agent_pays_once_and_is_refused_once_it_is_overtaken(outside: Path) -> None:
    [code] = blocks("Outside effects", "python")
    root, run = uuid4(), uuid4()
    (outside / "input.json").write_text(json.dumps({"wake": {"effect_root": str(root)}}), encoding="utf-8")

    def agent(token: str, code: str = code) -> subprocess.CompletedProcess[str]:
        own = {"WAKEFUL_INPUT": "input.json", "WAKEFUL_TOKEN": token, "BANK": "bank", "SITE": "site"}
        environment = os.environ | own | {"PYTHONPATH": str(ROOT / "scheduler")}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, cwd=outside, capture_output=True, text=True, check=False
        )

    def payments() -> list[Any]:
        with sqlite3.connect(outside / "bank") as bank:
            return bank.execute("SELECT key FROM payment").fetchall()

    assert agent(wakeful.token(1, run, 9)).returncode == 0
    assert agent(wakeful.token(1, run, 10)).returncode == 0
    stale = agent(wakeful.token(1, run, 9))
    assert (stale.returncode, stale.stderr) == (1, "somebody newer has published this page\n")
    assert payments() == [(wakeful.effect_key(root, "invoice-17"),)]
    assert agent(wakeful.token(2, run, 1)).returncode == 0
    # With the token as its key each generation would have paid.
    confused = re.sub(r"^key = .*$", 'key = os.environ["WAKEFUL_TOKEN"]', code, flags=re.M)
    for generation in (2, 3):
        assert agent(wakeful.token(2, run, generation), confused).returncode == 0
    assert len(payments()) == 3
