"""Every closed gate answers why: gate, key, since when, what opens it; in Python, on paper and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.gate_table import GATES, SETUP, GateCase
from tests.passes import WHO, admission, admit
from tests.quota import Quota, open_quota

from wakeful import claims
from wakeful.crash_points import no_crash
from wakeful.explain import Explanation, why
from wakeful.testing import Database

Conn = psycopg.Connection[Any]
PAGE = (Path(__file__).parents[2] / "docs/reference/reasons.md").read_text(encoding="utf-8")
# Judged at a claim too: all that an admission reads unlocked, and the issue. Limits were judged at the admission.
# A run whose issue goes to somebody else makes room instead of waiting.
AT_CLAIM = [
    case
    for case in GATES
    if case.gate not in ("execution", "concurrency", "quota")
    and "budget" not in case.name
    and case.name not in ("live run", "assignee")
]
ON_PAPER = [case for case in GATES if case.name in ("cancel hold", "provider")]


@pytest.fixture
def conn(database: Database) -> Conn:
    conn = database.connect()
    open_quota(conn)
    for statement in SETUP:
        conn.execute(statement, {"c": "acme"})
    return conn


def request(conn: Conn) -> UUID:
    return conn.execute("SELECT wake FROM wakeful.request_wake('acme', 'coder', 'I-1')").fetchone()[0]


def assert_answers(told: Explanation, case: GateCase, before: Any) -> None:
    key = case.key.format(c="acme")
    assert (told.gate, told.reason) == (case.gate, case.reason)
    assert told.key == key or (key == "*" and told.key)
    assert told.since is not None
    assert told.since >= before
    assert told.opens_on
    assert told.message
    assert told.standing == "waiting"
    if case.gate != "quota":
        assert f"| `{told.reason}` |" in PAGE
    # The clock opens a budget of a month and a limit with a reset; nothing else.
    clock = case.gate in ("budget", "provider")
    assert (told.reopens_at is not None) == clock


@pytest.mark.parametrize("case", GATES, ids=lambda case: case.name)
def test_a_parked_wake_says_why(case: GateCase, conn: Conn) -> None:
    before = conn.execute("SELECT wakeful.wall()").fetchone()[0]
    case.close(conn, "acme")
    wake = request(conn)
    admit(conn, wake, by=admission(gates=[Quota()]))
    assert_answers(why(conn, "acme", wake), case, before)


@pytest.mark.parametrize("case", AT_CLAIM, ids=lambda case: case.name)
def test_a_run_that_is_held_back_at_its_claim_says_why(case: GateCase, conn: Conn) -> None:
    wake = request(conn)
    run = admit(conn, wake).runs[wake]
    conn.execute("UPDATE wakeful.agent SET executor = 'local'")
    before = conn.execute("SELECT wakeful.wall()").fetchone()[0]
    case.close(conn, "acme")
    conn.execute("UPDATE wakeful.agent SET executor = 'local'")
    assert claims.claim(conn, "acme", WHO, limit=9, gate=None, crash=no_crash).started == ()
    told = why(conn, "acme", run)
    assert told.kind == "run"
    assert_answers(told, case, before)


@pytest.mark.parametrize(
    "case", [case for case in GATES if case.name in ("cancel hold", "provider")], ids=lambda c: c.name
)
def test_the_command_says_it_too(case: GateCase, conn: Conn, database: Database, tmp_path: Path) -> None:
    cli = CommandLine(tmp_path / "data", database.dsn)
    case.close(conn, "acme")
    wake = request(conn)
    admit(conn, wake)
    told = why(conn, "acme", wake)
    found = cli("why", str(wake), "--json").json
    assert (found["gate"], found["key"], found["reason"]) == (case.gate, case.key, case.reason)
    assert (found["opens_on"], found["message"]) == (told.opens_on, told.message)
    assert found["since"].endswith("Z") or "+00:00" in found["since"]
    assert (found["reopens_at"] is None) == (told.reopens_at is None)
    text = cli("why", str(wake)).out
    for word in (case.gate, case.key, case.reason, told.opens_on, told.message):
        assert str(word) in text
