"""Each producer says truthfully what it did, leaves one audit row for it, and signals a real transition only."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import psycopg
import pytest
from tests.rows import audits

import wakeful
from wakeful.errors import NotFound
from wakeful.producers import ProducerResult, Statement

Conn = psycopg.Connection[Any]
Setup = list[Statement]

OPENS_PROJECT = [("eligibility", "project", "p"), ("dispatch", "project", "p")]
OPENS_COMPANY = [("eligibility", "company", "acme"), ("dispatch", "company", "acme")]
OPENS_AGENT = [("eligibility", "agent", "coder"), ("dispatch", "agent", "coder")]
OPENS_ISSUE = [("eligibility", "issue", "I-1"), ("dispatch", "issue", "I-1")]
OPENS_BUDGET = [("eligibility", "budget", "company"), ("dispatch", "budget", "company")]
OPENS_SLOTS = [("eligibility", "concurrency", "agent:coder"), ("dispatch", "concurrency", "agent:coder")]

PROJECT = wakeful.add_project("acme", "p")
ISSUE = wakeful.create_issue("acme", "I-1")
BUDGET = wakeful.set_budget("acme", "company", 10)
Gates = list[tuple[str, str | None, str | None]]
QUEUE = ("dispatch", None, None)  # look at the company's queue

# what is there before, the call, its outcome and state, and the gates it opens
CASES: list[tuple[str, Setup, Statement, str, str | None, Gates]] = [
    ("add company", [], wakeful.add_company("other", name="Other"), "inserted", "active", []),
    ("add company again", [], wakeful.add_company("acme"), "existing", "active", []),
    ("pause company", [], wakeful.pause_company("acme"), "merged", "paused", []),
    ("pause again", [wakeful.pause_company("acme")], wakeful.pause_company("acme"), "existing", "paused", []),
    (
        "resume company",
        [wakeful.pause_company("acme")],
        wakeful.resume_company("acme"),
        "merged",
        "active",
        OPENS_COMPANY,
    ),
    ("resume running company", [], wakeful.resume_company("acme"), "existing", "active", []),
    ("panic", [], wakeful.panic_company("acme"), "merged", "active", []),
    ("panic again", [wakeful.panic_company("acme")], wakeful.panic_company("acme"), "existing", "active", []),
    (
        "resume lifts panic",
        [wakeful.panic_company("acme")],
        wakeful.resume_company("acme"),
        "merged",
        "active",
        OPENS_COMPANY,
    ),
    (
        "lift panic",
        [wakeful.panic_company("acme")],
        wakeful.lift_panic("acme"),
        "merged",
        "active",
        OPENS_COMPANY,
    ),
    ("lift no panic", [], wakeful.lift_panic("acme"), "existing", "active", []),
    ("add project", [], PROJECT, "inserted", None, []),
    ("add project again", [PROJECT], PROJECT, "existing", None, []),
    ("pause project", [PROJECT], wakeful.pause_project("acme", "p"), "merged", "paused", []),
    (
        "pause project again",
        [PROJECT, wakeful.pause_project("acme", "p")],
        wakeful.pause_project("acme", "p"),
        "existing",
        "paused",
        [],
    ),
    (
        "resume project",
        [PROJECT, wakeful.pause_project("acme", "p")],
        wakeful.resume_project("acme", "p"),
        "merged",
        "active",
        OPENS_PROJECT,
    ),
    ("resume running project", [PROJECT], wakeful.resume_project("acme", "p"), "existing", "active", []),
    ("add agent", [], wakeful.add_agent("acme", "tester", ["true"]), "inserted", "active", []),
    ("same contract", [], wakeful.add_agent("acme", "coder", ["true"]), "existing", "active", []),
    ("other contract", [], wakeful.add_agent("acme", "coder", ["false"]), "merged", "active", []),
    ("other executor", [], wakeful.add_agent("acme", "coder", ["true"], executor="far"), "merged", "active", [QUEUE]),
    ("other labels", [], wakeful.add_agent("acme", "coder", ["true"], labels=["gpu"]), "merged", "active", [QUEUE]),
    ("other host", [], wakeful.add_agent("acme", "coder", ["true"], host="here"), "merged", "active", [QUEUE]),
    ("fewer slots", [], wakeful.add_agent("acme", "coder", ["true"], max_concurrent_runs=1), "merged", "active", []),
    (
        "more slots",
        [wakeful.add_agent("acme", "coder", ["true"], max_concurrent_runs=1)],
        wakeful.add_agent("acme", "coder", ["true"], max_concurrent_runs=2),
        "merged",
        "active",
        OPENS_SLOTS,
    ),
    (
        "lower estimate",
        [BUDGET, wakeful.add_agent("acme", "coder", ["true"], estimate=2)],
        wakeful.add_agent("acme", "coder", ["true"], estimate=1),
        "merged",
        "active",
        OPENS_BUDGET,
    ),
    ("pause agent", [], wakeful.pause_agent("acme", "coder"), "merged", "paused", []),
    (
        "pause agent again",
        [wakeful.pause_agent("acme", "coder")],
        wakeful.pause_agent("acme", "coder"),
        "existing",
        "paused",
        [],
    ),
    (
        "resume agent",
        [wakeful.pause_agent("acme", "coder")],
        wakeful.resume_agent("acme", "coder"),
        "merged",
        "active",
        OPENS_AGENT,
    ),
    ("resume running agent", [], wakeful.resume_agent("acme", "coder"), "existing", "active", []),
    ("create issue", [], wakeful.create_issue("acme", "I-1", title="Help", parent="I-0"), "inserted", "todo", []),
    ("create issue again", [ISSUE], ISSUE, "existing", "todo", []),
    ("finish issue", [ISSUE], wakeful.set_issue_status("acme", "I-1", "done"), "merged", "done", OPENS_ISSUE),
    (
        "reopen issue",
        [ISSUE, wakeful.set_issue_status("acme", "I-1", "done")],
        wakeful.set_issue_status("acme", "I-1", "todo"),
        "merged",
        "todo",
        OPENS_ISSUE,
    ),
    ("move issue on", [ISSUE], wakeful.set_issue_status("acme", "I-1", "in_progress"), "merged", "in_progress", []),
    (
        "done to cancelled",
        [ISSUE, wakeful.set_issue_status("acme", "I-1", "done")],
        wakeful.set_issue_status("acme", "I-1", "cancelled"),
        "merged",
        "cancelled",
        [],
    ),
    ("same status", [ISSUE], wakeful.set_issue_status("acme", "I-1", "todo"), "existing", "todo", []),
    ("assign to a user", [], wakeful.assign_issue("acme", "I-1", "user:ann"), "merged", "todo", OPENS_ISSUE),
    (
        "assign to the same",
        [wakeful.assign_issue("acme", "I-1", "user:ann")],
        wakeful.assign_issue("acme", "I-1", "user:ann"),
        "existing",
        "todo",
        [],
    ),
    (
        "assign to nobody",
        [wakeful.assign_issue("acme", "I-1", "user:ann")],
        wakeful.assign_issue("acme", "I-1", None),
        "merged",
        "todo",
        OPENS_ISSUE,
    ),
    ("first mention by status", [], wakeful.set_issue_status("acme", "I-9", "in_review"), "merged", "in_review", []),
    ("set budget", [], BUDGET, "inserted", None, []),
    ("same budget", [BUDGET], BUDGET, "existing", None, []),
    ("lower budget", [BUDGET], wakeful.set_budget("acme", "company", 5), "merged", None, []),
    ("more budget", [BUDGET], wakeful.set_budget("acme", "company", 11), "merged", None, OPENS_BUDGET),
    ("soft budget", [BUDGET], wakeful.set_budget("acme", "company", 10, hard_stop=False), "merged", None, OPENS_BUDGET),
    ("budget with a warning", [BUDGET], wakeful.set_budget("acme", "company", 10, warn_percent=50), "merged", None, []),
    ("raise budget", [BUDGET], wakeful.raise_budget("acme", "company", by_amount=1), "merged", None, OPENS_BUDGET),
    ("raise by nothing", [BUDGET], wakeful.raise_budget("acme", "company", amount=10), "existing", None, []),
    ("spend", [], wakeful.add_spend("acme", Decimal("1.5"), agent="coder"), "inserted", None, []),
    (
        "spend again",
        [wakeful.add_spend("acme", 1, key="k")],
        wakeful.add_spend("acme", 1, key="k"),
        "existing",
        None,
        [],
    ),
    (
        "signal",
        [],
        wakeful.signal_gate("acme", "mine", "door"),
        "merged",
        None,
        [("eligibility", "mine", "door"), ("dispatch", "mine", "door")],
    ),
]


@pytest.mark.parametrize(
    ("setup", "call", "outcome", "state", "gates"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_producer(
    conn: Conn,
    company: str,
    listener: Any,
    setup: Setup,
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
    assert (result.outcome, result.state, result.wake, result.run) == (outcome, state, None, None)
    assert listener.gates() == gates
    changed = outcome != "existing" and call.function != "signal_gate"
    assert audits(conn) == before + changed


# ── the instance ────────────────────────────────────────────────────────────────────────────────────────


def test_a_setting_is_stored_audited_and_signalled_once(conn: Conn, company: str, listener: Any) -> None:
    assert wakeful.run(conn, wakeful.set_setting("draining", True, actor="user:ann")).outcome == "inserted"
    assert listener.heard() == [{"t": "settings", "s": "draining"}]
    assert wakeful.run(conn, wakeful.set_setting("draining", True)).outcome == "existing"
    assert listener.heard() == []
    assert wakeful.run(conn, wakeful.set_setting("draining", False)) == ProducerResult("merged", None, "false", None)
    assert conn.execute("SELECT actor, before, after FROM wakeful.instance_audit ORDER BY id").fetchall() == [
        ("user:ann", None, True),
        (f"system:{conn.info.user}", True, False),
    ]


def test_first_mention_creates_a_company_only_where_the_setting_says_so(conn: Conn) -> None:
    with pytest.raises(NotFound, match="company 'new' does not exist"):
        wakeful.run(conn, wakeful.create_issue("new", "I-1"))
    wakeful.run(conn, wakeful.set_setting("create_companies", True))
    assert wakeful.run(conn, wakeful.create_issue("new", "I-1")).outcome == "inserted"
