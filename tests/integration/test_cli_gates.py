"""The commands of the further gates: holds, dependencies, limits, recovery, membership, drains, a company's data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.gate_table import SETUP

from wakeful.admission import Admission
from wakeful.testing import Database
from wakeful_plugins.request import Requests
from wakeful_plugins.run_directory import company_folder, coordination_root

Conn = psycopg.Connection[Any]
COMPANY = "acme"


@pytest.fixture
def cli(database: Database, conn: Conn, tmp_path: Path) -> CommandLine:
    for statement in SETUP:
        conn.execute(statement, {"c": COMPANY})  # type: ignore[arg-type]  # the table's own words
    return CommandLine(tmp_path / "data", database.dsn, {"WAKEFUL_COMPANY": COMPANY})


def one(conn: Conn, query: str) -> Any:
    row = conn.execute(query).fetchone()  # type: ignore[arg-type]  # a test's own words
    assert row is not None
    return row[0]


def pass_over(conn: Conn) -> None:
    """One admission pass over everything that is pending."""
    ids = [row[0] for row in conn.execute("SELECT id FROM wakeful.wake WHERE state = 'deferred'").fetchall()]
    Admission([Requests()]).admit(conn, COMPANY, dict.fromkeys(ids, True))


def status(issue: str) -> Callable[[Conn], Any]:
    return lambda conn: one(conn, f"SELECT status FROM wakeful.issue WHERE id = '{issue}'")  # noqa: S608 - a test's own words


def agent_state(conn: Conn) -> Any:
    return one(conn, "SELECT state FROM wakeful.agent WHERE id = 'coder'")


STEPS: list[tuple[str, list[list[str]], Callable[[Conn], Any], Any]] = [
    ("hold", [["hold", "ROOT"]], lambda c: one(c, "SELECT mode FROM wakeful.hold WHERE state = 'active'"), "pause"),
    ("hold --cancel", [["hold", "ROOT", "--cancel"]], status("I-1"), "cancelled"),
    ("release", [["hold", "ROOT", "--cancel"], ["release", "ROOT"]], status("I-1"), "cancelled"),
    ("restore", [["hold", "ROOT", "--cancel"], ["restore", "ROOT"]], status("I-1"), "todo"),
    (
        "depend",
        [["issue", "depend", "I-1", "I-2"]],
        lambda c: one(c, "SELECT blocker FROM wakeful.issue_block"),
        "I-2",
    ),
    (
        "undepend",
        [["issue", "depend", "I-1", "I-2"], ["issue", "undepend", "I-1", "I-2"]],
        lambda c: one(c, "SELECT count(*) FROM wakeful.issue_block"),
        0,
    ),
    ("agent terminate", [["agent", "terminate", "coder"]], agent_state, "terminated"),
    ("agent archive", [["agent", "archive", "coder"]], agent_state, "archived"),
    ("agent await-approval", [["agent", "await-approval", "coder"]], agent_state, "pending_approval"),
    ("agent approve", [["agent", "await-approval", "coder"], ["agent", "approve", "coder"]], agent_state, "active"),
    (
        "project archive",
        [["project", "archive", "site"]],
        lambda c: one(c, "SELECT archived_at IS NOT NULL FROM wakeful.project"),
        True,
    ),
    (
        "company limit",
        [["company", "limit", COMPANY, "3"]],
        lambda c: one(c, "SELECT max_concurrent_runs FROM wakeful.company"),
        3,
    ),
    (
        "company limit none",
        [["company", "limit", COMPANY, "3"], ["company", "limit", COMPANY, "none"]],
        lambda c: one(c, "SELECT max_concurrent_runs IS NULL FROM wakeful.company"),
        True,
    ),
    ("drain", [["drain"]], lambda c: one(c, "SELECT value FROM wakeful.setting WHERE name = 'draining'"), True),
    (
        "undrain",
        [["drain"], ["undrain"]],
        lambda c: one(c, "SELECT value FROM wakeful.setting WHERE name = 'draining'"),
        False,
    ),
    (
        "limit close",
        [["limit", "close", "acme-ai/main", "--until", "+2h", "--reason", "rate"]],
        lambda c: one(c, "SELECT closed_until > wakeful.now() + interval '1 hour' FROM wakeful.provider_account"),
        True,
    ),
    (
        "limit clear",
        [["limit", "close", "acme-ai/main"], ["limit", "clear", "acme-ai/main"]],
        lambda c: one(c, "SELECT closed_at IS NULL AND ramp_from IS NOT NULL FROM wakeful.provider_account"),
        True,
    ),
    (
        "limit set",
        [["limit", "set", "acme-ai/main", "--ask", "--starts-per-second", "2"]],
        lambda c: one(c, "SELECT resuming || starts_per_second::int FROM wakeful.provider_account"),
        "ask2",
    ),
    (
        "recovery open",
        [["recovery", "open", "I-1", "--cause", "odd"]],
        lambda c: one(c, "SELECT cause FROM wakeful.recovery_action WHERE state = 'open'"),
        "odd",
    ),
]


@pytest.mark.parametrize(("commands", "asked", "expected"), [s[1:] for s in STEPS], ids=[s[0] for s in STEPS])
def test_a_command_does_what_it_says_and_says_so_again_when_repeated(
    cli: CommandLine, conn: Conn, commands: list[list[str]], asked: Callable[[Conn], Any], expected: Any
) -> None:
    for words in commands:
        done = cli(*words)
        assert done.code == 0, done.err
        assert done.out.count("\n") == 1
    assert asked(conn) == expected
    again = cli(*commands[-1], "--json")
    assert again.json["outcome"] in ("existing", "merged")  # an --until of +2h lies later the second time
    assert asked(conn) == expected


def test_a_recovery_action_is_listed_and_resolved(cli: CommandLine, conn: Conn) -> None:
    cli("recovery", "open", "I-1", "--cause", "odd")
    (action,) = cli("recovery", "list", "--state", "open", "--json").json["rows"]
    assert (action["issue"], action["cause"]) == ("I-1", "odd")
    assert cli("recovery", "resolve", action["id"]).code == 0
    assert cli("recovery", "list", "--state", "open", "--json").json["rows"] == []


def test_the_audit_shows_who_did_what(cli: CommandLine) -> None:
    cli("hold", "ROOT", "--as", "user:ann")
    rows = cli("audit", "--limit", "1", "--json").json["rows"]
    assert [(row["actor"], row["verb"], row["target"]) for row in rows] == [("user:ann", "hold", "issue:ROOT")]


def test_a_dry_run_of_a_raise_says_which_wakes_would_run_and_changes_nothing(cli: CommandLine, conn: Conn) -> None:
    cli("budget", "set", "company", "0")
    wakes = [cli("wake", "coder", "--json").json["wake"] for _ in range(3)]
    pass_over(conn)
    told = cli("budget", "raise", "company", "2", "--dry-run", "--json").json["wakes"]
    assert [one_["wake"] for one_ in told] == wakes
    assert [(one_["runs"], one_["reason"]) for one_ in told] == [
        (True, None),
        (True, None),
        (False, "budget.exhausted"),
    ]
    assert one(conn, "SELECT amount FROM wakeful.budget") == 0
    assert cli("budget", "raise", "company", "2").out == "budget company: raised to 2\n"
    assert cli("budget", "raise", "company", "2").out == "budget company: raised to 2, as before\n"
    pass_over(conn)
    assert one(conn, "SELECT count(*) FROM wakeful.run") == 2


def test_a_dry_run_names_an_unknown_budget_in_one_line(cli: CommandLine) -> None:
    done = cli("budget", "raise", "company", "2", "--dry-run")
    assert done.code == 1
    assert "there is no budget 'company'" in done.err


def test_a_company_is_exported_and_erased_but_keeps_its_hashes(cli: CommandLine, conn: Conn) -> None:
    cli("wake", "coder", "I-1", "--payload", '{"secret": "the launch is on Friday"}')
    cli("issue", "create", "I-9", "--title", "the launch is on Friday")
    lines = [json.loads(line) for line in cli("company", "export", COMPANY).out.splitlines()]
    assert {line["table"] for line in lines} >= {"company", "agent", "issue", "wake", "audit"}
    assert "Friday" in json.dumps(lines)
    refused = cli("company", "erase", COMPANY, "--yes")
    assert refused.code == 4
    assert "company archive" in refused.err
    cli("company", "archive", COMPANY)
    assert cli("company", "add", COMPANY).out == f"company {COMPANY}: existing, archived\n"
    kept = [cli.data / "runs" / company_folder(COMPANY), coordination_root(cli.data, COMPANY)]
    others = [cli.data / "runs" / company_folder("other"), coordination_root(cli.data, "other")]
    for folder in kept + others:
        (folder / "inside").mkdir(parents=True)
    assert cli("company", "erase", COMPANY, "--yes").code == 0
    assert [folder.exists() for folder in kept + others] == [False, False, True, True]
    left = cli("company", "export", COMPANY).out
    assert "Friday" not in left
    assert left.count("sha256:") > 3
    assert [json.loads(line)["table"] for line in left.splitlines()].count("wake") == 1


def test_erasing_without_a_yes_asks_and_does_nothing(cli: CommandLine, conn: Conn) -> None:
    cli("company", "archive", COMPANY)
    for answer in ("", "n\n"):
        refused = cli("company", "erase", COMPANY, stdin=answer)
        assert (refused.code, refused.out) == (2, "")
        last = refused.err.splitlines()[-1]
        assert last == "wakeful: nothing is erased: nobody said yes; if you mean it: --yes (exit 2)"
    assert one(conn, "SELECT command[1] FROM wakeful.agent WHERE id = 'coder'") == "true"


def test_a_host_nobody_knows_cannot_be_dead(cli: CommandLine) -> None:
    done = cli("host", "dead", "nowhere")
    assert (done.code, "host list" in done.err) == (1, True)
