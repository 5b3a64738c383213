"""The producers of the further gates: outcomes, states, audit rows, and signals of real transitions only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest

import wakeful
from wakeful.errors import Conflict, InvalidInput, NotFound
from wakeful.producers import Statement

Conn = psycopg.Connection[Any]
Gates = list[tuple[str, str]]

SOON = datetime.now(UTC) + timedelta(hours=1)
ISSUE = wakeful.create_issue("acme", "I-1")
PROJECT = wakeful.add_project("acme", "p")
DEPENDS = wakeful.add_dependency("acme", "I-1", "I-2")
HOLD = wakeful.hold_issue("acme", "I-1")
CANCEL = wakeful.hold_issue("acme", "I-1", mode="cancel")
LEASE = wakeful.open_lease("acme", "box", "I-1")
CLOSED = wakeful.close_account("acme", "ai/main", until=SOON)
RATED = wakeful.set_account("acme", "ai/main", resuming="ask", starts_per_second=2)


def done(issue: str) -> Statement:
    return wakeful.set_issue_status("acme", issue, "done")


# what is there before, the call, its outcome and state, and the gates it opens
CASES: list[tuple[str, list[Statement], Statement, str, str | None, Gates]] = [
    ("depend", [], DEPENDS, "inserted", None, []),
    ("depend again", [DEPENDS], DEPENDS, "existing", None, []),
    ("undepend", [DEPENDS], wakeful.remove_dependency("acme", "I-1", "I-2"), "merged", None, [("dependency", "I-1")]),
    ("undepend again", [ISSUE], wakeful.remove_dependency("acme", "I-1", "I-2"), "existing", None, []),
    (
        "undepend with another left",
        [DEPENDS, wakeful.add_dependency("acme", "I-1", "I-3")],
        wakeful.remove_dependency("acme", "I-1", "I-2"),
        "merged",
        None,
        [],
    ),
    ("undepend of done", [DEPENDS, done("I-2")], wakeful.remove_dependency("acme", "I-1", "I-2"), "merged", None, []),
    ("blocker is done", [DEPENDS], done("I-2"), "merged", "done", [("dependency", "I-1"), ("issue", "I-2")]),
    ("hold", [ISSUE], HOLD, "inserted", "pause", []),
    ("hold again", [ISSUE, HOLD], CANCEL, "existing", "pause", []),
    ("release", [ISSUE, HOLD], wakeful.release_hold("acme", "I-1"), "merged", "released", [("hold", "I-1")]),
    ("release again", [ISSUE], wakeful.release_hold("acme", "I-1"), "existing", None, []),
    (
        "release of a cancel hold",
        [ISSUE, CANCEL],
        wakeful.release_hold("acme", "I-1"),
        "merged",
        "released",
        [("hold", "I-1"), ("issue", "I-1")],
    ),
    (
        "restore",
        [ISSUE, CANCEL],
        wakeful.restore_hold("acme", "I-1"),
        "merged",
        "restored",
        [("hold", "I-1"), ("issue", "I-1")],
    ),
    ("terminate", [], wakeful.terminate_agent("acme", "coder"), "merged", "terminated", [("agent", "coder")]),
    (
        "terminate again",
        [wakeful.terminate_agent("acme", "coder")],
        wakeful.terminate_agent("acme", "coder"),
        "existing",
        "terminated",
        [],
    ),
    ("archive agent", [], wakeful.archive_agent("acme", "coder"), "merged", "archived", [("agent", "coder")]),
    ("await approval", [], wakeful.await_approval("acme", "coder"), "merged", "pending_approval", []),
    (
        "approve",
        [wakeful.await_approval("acme", "coder")],
        wakeful.approve_agent("acme", "coder"),
        "merged",
        "active",
        [("agent", "coder")],
    ),
    ("approve again", [], wakeful.approve_agent("acme", "coder"), "existing", "active", []),
    ("archive project", [PROJECT], wakeful.archive_project("acme", "p"), "merged", "archived", [("project", "p")]),
    (
        "archive project again",
        [PROJECT, wakeful.archive_project("acme", "p")],
        wakeful.archive_project("acme", "p"),
        "existing",
        "archived",
        [],
    ),
    ("limit company", [], wakeful.limit_company("acme", 2), "merged", "active", []),
    (
        "unlimit company",
        [wakeful.limit_company("acme", 2)],
        wakeful.limit_company("acme", None),
        "merged",
        "active",
        [("concurrency", "company")],
    ),
    ("limit again", [wakeful.limit_company("acme", 2)], wakeful.limit_company("acme", 2), "existing", "active", []),
    ("open lease", [ISSUE], LEASE, "inserted", "active", []),
    ("open lease again", [ISSUE, LEASE], LEASE, "existing", "active", []),
    (
        "close lease",
        [ISSUE, LEASE],
        wakeful.close_lease("acme", "box"),
        "merged",
        "released",
        [("execution", "I-1")],
    ),
    (
        "close lease again",
        [ISSUE, LEASE, wakeful.close_lease("acme", "box", outcome="failed")],
        wakeful.close_lease("acme", "box"),
        "existing",
        "failed",
        [],
    ),
    ("close account", [], CLOSED, "inserted", "closed", []),
    ("close account again", [CLOSED], CLOSED, "existing", "closed", []),
    ("close account for longer", [CLOSED], wakeful.close_account("acme", "ai/main"), "merged", "closed", []),
    ("clear account", [CLOSED], wakeful.clear_account("acme", "ai/main"), "merged", "open", [("provider", "ai/main")]),
    ("clear open account", [], wakeful.clear_account("acme", "ai/main"), "existing", "open", []),
    ("set account", [], RATED, "inserted", None, []),
    ("set account again", [RATED], RATED, "existing", None, []),
    (
        "faster account",
        [RATED],
        wakeful.set_account("acme", "ai/main", resuming="ask", starts_per_second=Decimal("2.5")),
        "merged",
        None,
        [("rate", "ai/main")],
    ),
    (
        "account that resumes by itself",
        [RATED],
        wakeful.set_account("acme", "ai/main", starts_per_second=2),
        "merged",
        None,
        [("provider", "ai/main")],
    ),
    ("reset closed circuit", [], wakeful.reset_circuit("acme", "coder"), "existing", None, []),
]


@pytest.mark.parametrize(
    ("setup", "call", "outcome", "state", "gates"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_producer(
    conn: Conn,
    company: str,
    listener: Any,
    setup: list[Statement],
    call: Statement,
    outcome: str,
    state: str | None,
    gates: Gates,
) -> None:
    for statement in setup:
        wakeful.run(conn, statement)
    listener.heard()
    before = audits(conn)
    result = wakeful.run(conn, call)
    assert (result.outcome, result.state) == (outcome, state)
    both_topics = [(topic, *gate) for gate in gates for topic in ("dispatch", "eligibility")]
    assert sorted(listener.gates()) == sorted(both_topics)
    assert audits(conn) == before + (outcome != "existing")


def audits(conn: Conn) -> int:
    return conn.execute("SELECT count(*) FROM wakeful.audit").fetchone()[0]


def test_a_cancel_hold_covers_the_subtree_and_restore_puts_back_what_nobody_changed(conn: Conn, company: str) -> None:
    wakeful.run(conn, wakeful.create_issue("acme", "I-2", parent="I-1"))
    wakeful.run(conn, wakeful.create_issue("acme", "I-3", parent="I-2"))
    wakeful.run(conn, wakeful.create_issue("acme", "I-4", parent="I-3"))
    wakeful.run(conn, wakeful.set_issue_status("acme", "I-2", "in_progress"))
    wakeful.run(conn, done("I-4"))
    wakeful.run(conn, CANCEL)
    assert statuses(conn) == {"I-1": "cancelled", "I-2": "cancelled", "I-3": "cancelled", "I-4": "done"}
    wakeful.run(conn, wakeful.set_issue_status("acme", "I-3", "todo"))
    wakeful.run(conn, wakeful.set_issue_status("acme", "I-3", "cancelled"))
    wakeful.run(conn, wakeful.restore_hold("acme", "I-1"))
    assert statuses(conn) == {"I-1": "todo", "I-2": "in_progress", "I-3": "cancelled", "I-4": "done"}


def statuses(conn: Conn) -> dict[str, str]:
    return dict(conn.execute("SELECT id, status FROM wakeful.issue").fetchall())


def test_a_recovery_action_is_opened_once_and_resolved_once(conn: Conn, company: str, listener: Any) -> None:
    wakeful.run(conn, ISSUE)
    opened = wakeful.run(conn, wakeful.open_recovery("acme", "I-1", "disk full"))
    assert (opened.outcome, opened.state) == ("inserted", "open")
    assert wakeful.run(conn, wakeful.open_recovery("acme", "I-1", "disk full")).outcome == "existing"
    listener.heard()
    assert wakeful.run(conn, wakeful.resolve_recovery("acme", opened.wake)).outcome == "merged"
    assert ("eligibility", "recovery", str(opened.wake)) in listener.gates()
    assert wakeful.run(conn, wakeful.resolve_recovery("acme", opened.wake)).outcome == "existing"
    assert listener.heard() == []


def test_a_host_is_declared_dead_once(conn: Conn, company: str, listener: Any) -> None:
    with pytest.raises(NotFound, match="'h1'"):
        wakeful.run(conn, wakeful.declare_host_dead("h1"))
    conn.execute("INSERT INTO wakeful.host (id) VALUES ('h1')")
    assert wakeful.run(conn, wakeful.declare_host_dead("h1", actor="user:ann")).outcome == "merged"
    assert listener.heard() == [{"t": "settings", "s": "hosts"}]
    assert wakeful.run(conn, wakeful.declare_host_dead("h1")).outcome == "existing"
    assert listener.heard() == []
    assert conn.execute("SELECT count(*) FROM wakeful.instance_audit").fetchone() == (1,)


GONE = UUID("01a22bc2-c7a6-71ef-8435-a34d29d43db5")
REFUSED: list[tuple[Callable[[], Statement], type[Exception], str]] = [
    (lambda: wakeful.add_dependency("acme", "I-1", "I-1"), InvalidInput, "depend on itself"),
    (lambda: wakeful.add_dependency("acme", "I-2", "I-1"), Conflict, "wait for ever"),
    (lambda: wakeful.add_dependency("acme", "I-3", "I-1"), Conflict, "wait for ever"),
    (lambda: wakeful.hold_issue("acme", "nothing"), NotFound, "'nothing'"),
    (lambda: wakeful.terminate_agent("acme", "x"), NotFound, "agent 'x'"),
    (lambda: wakeful.approve_agent("acme", "x"), NotFound, "agent 'x'"),
    (lambda: wakeful.archive_project("acme", "x"), NotFound, "project 'x'"),
    (lambda: wakeful.limit_company("nowhere", 1), NotFound, "company 'nowhere'"),
    (lambda: wakeful.open_lease("acme", "box", "nothing"), NotFound, "'nothing'"),
    (lambda: wakeful.close_lease("acme", "nothing"), NotFound, "'nothing'"),
    (lambda: wakeful.open_recovery("acme", "nothing", "x"), NotFound, "'nothing'"),
    (lambda: wakeful.resolve_recovery("acme", GONE), NotFound, str(GONE)),
    (lambda: wakeful.set_account("acme", "ai/main", starts_per_second=0), InvalidInput, "more than 0"),
    (lambda: wakeful.reset_circuit("acme", "x"), NotFound, "agent 'x'"),
]


@pytest.mark.parametrize(("make", "kind", "cause"), REFUSED, ids=[f"{k.__name__} {c}"[:40] for _, k, c in REFUSED])
def test_a_refusal_names_its_cause_and_leaves_nothing(
    conn: Conn, company: str, listener: Any, make: Callable[[], Statement], kind: type[Exception], cause: str
) -> None:
    wakeful.run(conn, DEPENDS)
    wakeful.run(conn, wakeful.add_dependency("acme", "I-2", "I-3"))
    before = audits(conn)
    with pytest.raises(kind) as raised:
        wakeful.run(conn, make())
    assert cause in str(raised.value)
    assert audits(conn) == before
    assert listener.heard() == []


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("hold_issue('acme', 'I-1', NULL)", "missing"),
        ("close_lease('acme', 'box', NULL)", "missing"),
        ("set_account('acme', 'ai/main', NULL)", "missing"),
        ("close_account('acme', 'ai/main', 'infinity')", "2000 to 2100"),
        ("close_account('acme', '')", "1 to 200 characters"),
        ("add_dependency('acme', 'I-1', NULL)", "missing"),
        ("limit_company('acme', 0)", "at least 1"),
    ],
)
def test_the_database_checks_for_itself(conn: Conn, company: str, call: str, cause: str) -> None:
    from wakeful.database_errors import translated

    wakeful.run(conn, ISSUE)
    wakeful.run(conn, LEASE)
    with pytest.raises(InvalidInput, match=cause), translated():
        conn.execute(f"SELECT wakeful.{call}")
