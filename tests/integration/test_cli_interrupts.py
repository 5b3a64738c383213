"""The commands ``interrupt`` and ``admit``, and what ``why`` and ``wakes`` say of an interrupted wake."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.passes import admit, start
from tests.rows import request, say

import wakeful
from wakeful import explain, producers
from wakeful.executions import EndClass, Grade, RunKey
from wakeful.results import Conclusion
from wakeful.terminals import Ending, record

Conn = psycopg.Connection[Any]
ACME, ANN = "acme", "user:ann"

pytestmark = pytest.mark.usefixtures("web")


@pytest.fixture
def key(conn: Conn, web: None) -> RunKey:
    """A run that works on the agent's issue."""
    conn.execute("UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = 'coder' WHERE id = 'I-1'")
    admit(conn, request(conn, "I-1"))
    (key,) = start(conn)
    return key


@pytest.fixture
def wake(conn: Conn, key: RunKey) -> UUID:
    """What is saved behind it."""
    made = wakeful.run(conn, wakeful.save_comment(ACME, "I-1", "words", ANN, id="c-1")).wake
    assert made is not None
    return made


def test_a_person_interrupts(cli: CommandLine, conn: Conn, key: RunKey, wake: UUID) -> None:
    made = cli("interrupt", "I-1", "--as", ANN, "--json").json
    assert made == {
        "company": ACME,
        "issue": "I-1",
        "outcome": "merged",
        "wake": str(wake),
        "state": "deferred",
        "run": str(key.run),
    }
    assert f"delivered when run {key.run} has ended" in cli("interrupt", "I-1", "--as", ANN, "--agent", "coder").out
    assert cli("interrupt", "I-1", "--as", ANN).code == 0
    again = cli("interrupt", "I-1", "--as", ANN)
    assert (again.code, "was asked three times" in again.out) == (0, True)
    assert conn.execute("SELECT teardowns FROM wakeful.run").fetchone() == (3,)


def test_who_may_not_and_what_is_not_there(cli: CommandLine, key: RunKey, wake: UUID) -> None:
    refused = cli("interrupt", "I-1", "--as", "user:bob", "--json")
    assert (refused.code, json.loads(refused.err)["error"]) == (4, "conflict")
    nameless = cli("interrupt", "I-1", "--as", "agent:coder")
    assert nameless.code == 4
    assert "--as user:ID" in nameless.err
    empty = cli("interrupt", "I-1", "--as", ANN, "--agent", "other")
    assert empty.code == 4
    assert f"wakeful run stop {key.run}" in empty.err


def test_without_a_run_it_is_due_now(cli: CommandLine, conn: Conn, key: RunKey, wake: UUID) -> None:
    conclusion = Conclusion("failed", EndClass.FAILED, "run.failed")
    record(conn, ACME, [Ending(key, conclusion, grade=Grade.CONTAINED)], crash=lambda point: None)
    assert "nothing runs on I-1, it is due now" in cli("interrupt", "I-1", "--as", ANN).out


@pytest.mark.parametrize(("grade", "words"), [(Grade.CONTAINED, "(contained)"), (Grade.REPORTED, "nobody has proven")])
def test_the_stop_stays_with_the_wake(
    cli: CommandLine, conn: Conn, key: RunKey, wake: UUID, grade: Grade, words: str
) -> None:
    cli("interrupt", "I-1", "--as", ANN)
    [note] = explain.why(conn, ACME, wake).notes[:1]
    assert note == f"{ANN} interrupts for it, stopping run {key.run}, which was asked 1 of 3 times and is stopping"
    conclusion = Conclusion("cancelled", EndClass.STOPPED, "run.stopped")
    record(conn, ACME, [Ending(key, conclusion, grade=grade)], crash=lambda point: None)
    told = cli("why", str(wake)).out
    assert words in told
    [listed] = [one for one in cli("wakes", "--json").json["rows"] if one["id"] == str(wake)]
    evidence = {name: listed[f"interrupt{name}"] for name in ("_by", "ed_run", "ed_state", "ed_evidence")}
    assert evidence == {"_by": ANN, "ed_run": str(key.run), "ed_state": "cancelled", "ed_evidence": grade.value}
    admit(conn, wake)
    answer = cli("why", str(wake), "--json").json
    assert (answer["interrupt_by"], answer["interrupted_evidence"]) == (ANN, grade.value)


def test_a_marker_that_gives_no_right_any_more_is_said_to(conn: Conn, key: RunKey) -> None:
    for id, author in (("c-1", ANN), ("c-2", "user:bob")):
        made = wakeful.run(conn, wakeful.save_comment(ACME, "I-1", "words", author, id=id, actor="system:bridge")).wake
        if author == ANN:
            wakeful.run(conn, wakeful.interrupt_issue(ACME, "I-1", actor=ANN))
    assert made is not None
    assert any("in the name of user:bob by now" in note for note in explain.why(conn, ACME, made).notes)


def test_whoever_claims_an_interrupt_in_a_payload_is_told(cli: CommandLine, conn: Conn) -> None:
    made = cli("wake", "coder", "--payload", '{"interrupt_by": "user:eve", "a": 1}', "--json")
    assert "claims an interrupt; taken out of it: interrupt_by" in made.err
    assert conn.execute("SELECT payload FROM wakeful.wake WHERE id = %s", (made.json["wake"],)).fetchone() == (
        {"a": 1},
    )


# ── admit ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pending_wake_is_admitted_by_hand(cli: CommandLine, conn: Conn) -> None:
    wake = request(conn, at=conn.execute("SELECT wakeful.now() + interval '1 day'").fetchone()[0])
    made = cli("admit", str(wake)[-8:], "--as", "user:olga", "--json").json
    assert conn.execute("SELECT id::text FROM wakeful.run WHERE wake = %s", (wake,)).fetchone() == (made["run"],)
    assert conn.execute("SELECT actor, target FROM wakeful.audit WHERE verb = 'release'").fetchone() == (
        *("user:olga", f"wake:{wake}"),
    )
    assert cli("admit", str(wake), "--json").json == made


def test_a_closed_gate_answers_with_its_name(cli: CommandLine, conn: Conn) -> None:
    wake = request(conn)
    say(conn, producers.pause_agent(ACME, "coder"))
    for _ in range(2):  # a wait that was saved, and one that the row knew already, look alike from outside
        refused = cli("admit", str(wake), "--json")
        assert refused.code == 4
        answer = json.loads(refused.err)
        assert (answer["error"], answer["gate"], answer["key"]) == ("refused", "agent", "coder")
        assert (answer["reason"], answer["opens_on"]) == ("agent.paused_manual", "wakeful resume agent coder")
    assert "wakeful resume agent coder" in cli("admit", str(wake)).err
