"""``wakeful comment``, ``card`` and ``run take``, as processes against a real database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.passes import admit, row
from tests.saved import busy

import wakeful
from wakeful.testing import Database

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("web")


@pytest.fixture
def cli(database: Database, tmp_path: Path, web: None) -> CommandLine:
    return CommandLine(tmp_path / "data", database.dsn, {"WAKEFUL_ACTOR": "user:ann"})


def test_comments_from_saving_to_the_run(cli: CommandLine, conn: Conn, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("from a file\n")
    made = cli("comment", "add", "I-1", "hello", "--agent", "coder", "--id", "c-1", "--json").json
    assert (made["outcome"], made["state"], made["issue"]) == ("inserted", "deferred", "I-1")
    queue = made["wake"]
    said = cli("comment", "add", "I-1", f"@{tmp_path / 'words'}", "--agent", "coder", "--id", "c-2")
    assert said.out == f"comment c-2 joined wake {queue}\n"
    assert cli("comment", "add", "I-1", "@-", "--agent", "coder", "--id", "c-3", stdin="piped").code == 0

    told = cli("comment", "list", "I-1", "--queued", "--json").json["queues"]
    [found] = told
    assert (found["queue"], found["agent"], found["actor"], found["state"]) == (queue, "coder", "user:ann", "deferred")
    assert [(one["id"], one["body"]) for one in found["comments"]] == [
        *(("c-1", "hello"), ("c-2", "from a file"), ("c-3", "piped")),
    ]

    assert cli("comment", "edit", "c-1", "hallo").out == "comment c-1: edited\n"
    assert cli("comment", "edit", "c-1", "hallo").out == "comment c-1: as before\n"
    reordered = cli("comment", "reorder", queue[-8:], "c-3", "c-2", "c-1", "--json").json
    assert reordered["outcome"] == "merged"
    assert cli("comment", "discard", "c-2").out == "comment c-2: taken out of its queue\n"
    assert row(conn, wakeful.run(conn, wakeful.save_comment("acme", "I-1", "x", "user:ann", id="c-1")).wake, "comments")

    listed = cli("comment", "list", "I-1", "--json").json
    shown = [(one["id"], one["revision"], one["body"], one["delivered"], one["queued"]) for one in listed["rows"]]
    assert shown == [
        *(("c-1", 2, "hallo", False, True), ("c-2", 1, "from a file", False, False), ("c-3", 1, "piped", False, True)),
    ]
    people = [line.split()[:3] for line in cli("comment", "list", "I-1").out.splitlines()[1:]]
    assert people == [[f"c-{n}", "user:ann", state] for n, state in ((1, "waiting"), (2, "saved"), (3, "waiting"))]
    first = cli("comment", "list", "I-1", "--limit", "2", "--json").json
    assert first["after"] == "c-2"
    rest = cli("comment", "list", "I-1", "--limit", "2", "--after", "c-2", "--json").json
    assert ([one["id"] for one in rest["rows"]], rest["after"]) == (["c-3"], None)
    assert "c-1" in cli("comment", "list", "I-1").out
    people = cli("comment", "list", "I-1", "--queued").out
    assert f"queue {queue} for agent coder, of user:ann: deferred, revision " in people
    assert "  c-3 (revision 1) user:ann: piped\n" in people

    assert re.search(r"^  comments +c-3, c-1$", cli("why", queue).out, re.M)
    assert cli("why", queue, "--json").json["comments"] == ["c-3", "c-1"]
    assert "saved_comments" in cli("wakes").out

    [(wake,)] = conn.execute("SELECT id FROM wakeful.wake").fetchall()
    run = admit(conn, wake).runs[wake]
    [queued] = cli("comment", "list", "I-1", "--queued", "--json").json["queues"]
    assert (queued["run"], queued["state"]) == (str(run), "queued")
    assert "in the name of" in cli("why", str(run)).out
    assert cli("comment", "delete", "c-3").out == "comment c-3: deleted\n"
    assert cli("comment", "delete", "c-1").out == f"comment c-1: deleted; wake {queue} is cancelled\n"
    assert cli("comment", "list", "I-1", "--queued").out == "nothing waits on issue I-1\n"

    named = cli("comment", "add", "I-1", "more", "--agent", "coder", "--json").json["comment"]
    assert cli("comment", "discard", named).out.startswith(f"comment {named}: taken out of its queue")
    keyed = [cli("comment", "add", "I-1", "once", "--agent", "coder", "--key", "k", "--json").json for _ in range(2)]
    assert [made["outcome"] for made in keyed] == ["inserted", "existing"]


def test_refusals_name_cause_and_remedy(cli: CommandLine) -> None:
    cli("comment", "add", "I-1", "hello", "--agent", "coder", "--id", "c-1", "--author", "user:bob")
    refused = cli("comment", "edit", "c-1", "x")
    assert (refused.code, "user:bob; user:ann may not change it" in refused.err) == (4, True)
    assert cli("comment", "edit", "c-1", "x", "--force", "--revision", "7").code == 4
    assert cli("comment", "edit", "c-1", "x", "--force").code == 0
    assert cli("comment", "edit", "c-9", "x").code == 1
    assert cli("comment", "add", "I-1", "").code == 2
    assert cli("comment", "reorder", "abcdef", "c-1").code == 1
    assert cli("comment", "list", "I-1", "--limit", "0").code == 2
    for words in (("comment", "list", "I-8"), ("comment", "list", "I-8", "--queued"), ("card", "list", "I-8")):
        refused = cli(*words)
        assert (refused.code, "issue 'I-8' does not exist; list them: wakeful issue list" in refused.err) == (1, True)
    assert "wakes nobody now" in cli("comment", "add", "I-9", "x").out


def test_cards_from_question_to_answer(cli: CommandLine, conn: Conn) -> None:
    assert cli("card", "create", "I-1", "coder", '{"text": "Ship?"}', "--id", "k-1").out == "card k-1 is pending\n"
    made = cli("card", "create", "I-1", "coder", '"Really?"', "--json").json
    assert (made["outcome"], made["state"], len(made["card"])) == ("inserted", "pending", 36)
    assert cli("card", "answer", "k-1").code == 2
    answered = cli("card", "answer", "k-1", "[1]", "--accept", "--json").json
    assert (answered["outcome"], answered["state"]) == ("inserted", "deferred")
    assert "exists already" in cli("card", "answer", "k-1", "[1]", "--accept").out
    assert cli("card", "answer", "k-1", "--reject").code == 4
    rows = cli("card", "list", "I-1", "--json").json["rows"]
    first = {"state": "accepted", "question": {"text": "Ship?"}, "answer": [1], "answered_by": "user:ann"}
    assert {name: rows[0][name] for name in first} == first
    assert "Ship?" in cli("card", "list", "I-1").out
    assert cli("why", answered["wake"], "--json").json["card"] == "k-1 (accepted)"
    assert cli("card", "withdraw", "k-1").out == "card k-1 is withdrawn\n"
    assert cli("card", "withdraw", "k-1").out == "card k-1 is withdrawn, as before\n"
    assert conn.execute("SELECT state FROM wakeful.wake").fetchall() == [("cancelled",)]


def test_a_run_takes_another_issue(cli: CommandLine, conn: Conn) -> None:
    key = busy(conn)
    wakeful.run(conn, wakeful.create_issue("acme", "I-2"))
    assert cli("run", "take", str(key.run), "I-2").out == f"run {key.run} has issue I-2 too\n"
    assert cli("run", "take", str(key.run), "I-2", "--json").json["outcome"] == "existing"
    assert cli("run", "take", str(key.run), "I-2", "--generation", "9").code == 4
    assert cli("issue", "show", "I-2", "--json").json["execution_run"] == str(key.run)
