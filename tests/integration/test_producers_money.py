"""Budgets, what is spent, and the pause that fits them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
from tests.rows import linked_run, wake_of

import wakeful

Conn = psycopg.Connection[Any]

OPENS_PROJECT = [("eligibility", "project", "p"), ("dispatch", "project", "p")]

PROJECT = wakeful.add_project("acme", "p")


def pause_of(conn: Conn) -> Any:
    return conn.execute("SELECT pause_reason, paused_at FROM wakeful.project WHERE id = 'p'").fetchone()


def test_spending_a_projects_budget_pauses_it_once_and_a_raise_resumes_it(
    conn: Conn, company: str, listener: Any
) -> None:
    wakeful.run(conn, PROJECT)
    wakeful.run(conn, wakeful.set_budget("acme", "project:p", 10))
    wakeful.run(conn, wakeful.add_spend("acme", 9, project="p"))
    assert listener.heard() == []
    wakeful.run(conn, wakeful.add_spend("acme", 1, project="p"))
    assert listener.gates() == OPENS_PROJECT
    reason, since = pause_of(conn)
    assert reason == "budget"
    wakeful.run(conn, wakeful.add_spend("acme", 5, project="p"))
    assert (listener.heard(), pause_of(conn)) == ([], ("budget", since))
    wakeful.run(conn, wakeful.raise_budget("acme", "project:p", amount=15))
    assert (listener.gates(), pause_of(conn)[0]) == ([], "budget")
    wakeful.run(conn, wakeful.raise_budget("acme", "project:p", amount=16))
    assert set(listener.gates()) == {
        *OPENS_PROJECT,
        ("eligibility", "budget", "project:p"),
        ("dispatch", "budget", "project:p"),
    }
    assert pause_of(conn) == (None, None)


def test_a_persons_pause_survives_budget_stop_and_raise(conn: Conn, company: str, listener: Any) -> None:
    wakeful.run(conn, PROJECT)
    wakeful.run(conn, wakeful.set_budget("acme", "project:p", 10))
    wakeful.run(conn, wakeful.pause_project("acme", "p", actor="user:ann"))
    paused = pause_of(conn)
    assert paused[0] == "manual"
    listener.heard()
    wakeful.run(conn, wakeful.add_spend("acme", 10, project="p"))
    assert (listener.heard(), pause_of(conn)) == ([], paused)
    wakeful.run(conn, wakeful.raise_budget("acme", "project:p", by_amount=10))
    assert OPENS_PROJECT[0] not in listener.gates()
    assert pause_of(conn) == paused


def test_a_saved_retry_is_untouched_by_a_budget_stop(conn: Conn, failed_run: UUID) -> None:
    wakeful.run(conn, PROJECT)
    wakeful.run(conn, wakeful.set_budget("acme", "project:p", 10))
    retry = wakeful.run(conn, wakeful.request_retry("acme", failed_run))
    before = wake_of(conn, retry.wake)
    wakeful.run(conn, wakeful.add_spend("acme", 99, project="p"))
    assert wake_of(conn, retry.wake) == before


def test_spend_of_a_run_counts_for_its_agent_and_project(conn: Conn, company: str) -> None:
    wakeful.run(conn, PROJECT)
    wakeful.run(conn, wakeful.create_issue("acme", "I-1", project="p"))
    run = linked_run(conn, wakeful.run(conn, wakeful.request_wake("acme", "coder", "I-1")).wake)
    wakeful.run(conn, wakeful.add_spend("acme", Decimal("0.000001"), run=run, provenance="estimated"))
    row = conn.execute("SELECT agent, project, issue, amount, provenance FROM wakeful.spend").fetchone()
    assert row == ("coder", "p", "I-1", Decimal("0.000001"), "estimated")
