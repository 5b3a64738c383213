"""What producers refuse, in Python and in the database: the cause is named, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.rows import audits

import wakeful
from wakeful.errors import InvalidInput, NotFound
from wakeful.producers import Statement

Conn = psycopg.Connection[Any]


GONE = UUID("01a22bc2-c7a6-71ef-8435-a34d29d43db5")
REFUSED: list[tuple[Callable[[], Statement], type[Exception], str]] = [
    (lambda: wakeful.pause_company("nowhere"), NotFound, "company 'nowhere'"),
    (lambda: wakeful.resume_company("nowhere"), NotFound, "company 'nowhere'"),
    (lambda: wakeful.panic_company("nowhere"), NotFound, "company 'nowhere'"),
    (lambda: wakeful.lift_panic("nowhere"), NotFound, "company 'nowhere'"),
    (lambda: wakeful.pause_project("acme", "x"), NotFound, "project 'x'"),
    (lambda: wakeful.resume_project("acme", "x"), NotFound, "project 'x'"),
    (lambda: wakeful.pause_agent("acme", "x"), NotFound, "agent 'x'"),
    (lambda: wakeful.request_wake("acme", "x"), NotFound, "agent 'x'"),
    (lambda: wakeful.request_wake("nowhere", "x"), NotFound, "company 'nowhere'"),
    (lambda: wakeful.request_wake("acme", "coder", kind="task_retry"), InvalidInput, "their own producers"),
    (lambda: wakeful.assign_issue("acme", "I-1", "agent:x"), NotFound, "agent 'x'"),
    (lambda: wakeful.create_issue("acme", "I-1", project="x"), NotFound, "project 'x'"),
    (lambda: wakeful.create_issue("acme", "I-1", parent="I-1"), InvalidInput, "its own parent"),
    (lambda: wakeful.request_retry("acme", GONE), NotFound, str(GONE)),
    (lambda: wakeful.rearm_wake("acme", GONE), NotFound, str(GONE)),
    (lambda: wakeful.retire_wake("acme", GONE), NotFound, str(GONE)),
    (lambda: wakeful.stop_run("acme", GONE), NotFound, str(GONE)),
    (lambda: wakeful.set_budget("acme", "team:x", 1), InvalidInput, "no budget scope"),
    (lambda: wakeful.set_budget("acme", "agent:x", 1), NotFound, "agent 'x'"),
    (lambda: wakeful.set_budget("acme", "project:x", 1), NotFound, "project 'x'"),
    (lambda: wakeful.raise_budget("acme", "company", amount=1), NotFound, "no budget 'company'"),
    (lambda: wakeful.raise_budget("acme", "company"), InvalidInput, "the new limit, or by how much"),
    (lambda: wakeful.add_spend("acme", 1, run=GONE), NotFound, str(GONE)),
    (lambda: wakeful.set_setting("retention_days", 0), InvalidInput, "retention_days cannot be 0"),
    (lambda: wakeful.set_setting("nonsense", True), InvalidInput, "nonsense"),
]


@pytest.mark.parametrize(("make", "kind", "cause"), REFUSED, ids=[f"{k.__name__} {c}"[:40] for _, k, c in REFUSED])
def test_a_refusal_names_its_cause_and_leaves_nothing(
    conn: Conn, company: str, listener: Any, make: Callable[[], Statement], kind: type[Exception], cause: str
) -> None:
    before = audits(conn)
    with pytest.raises(kind) as raised:
        wakeful.run(conn, make())
    assert cause in str(raised.value)
    assert audits(conn) == before
    assert listener.heard() == []


# What a caller in another language may send past the Python checks.
RAW: list[tuple[str, str]] = [
    ("request_wake('acme', 'coder', at => 'infinity')", "2000 to 2100"),
    ("request_wake('acme', 'coder', at => '12000-01-01')", "2000 to 2100"),
    ("request_wake('acme', 'coder', estimate => 'NaN')", "not an amount"),
    ("request_wake('acme', 'coder', estimate => 'Infinity')", "not an amount"),
    ("request_wake('acme', 'coder', priority => 1001)", "between -1000 and 1000"),
    ("request_wake('acme', 'coder', payload => NULL)", "not NULL"),
    ("request_wake('acme', 'coder', payload => to_jsonb(repeat('x', 65536)))", "limit is 65536"),
    ("panic_company('acme', repeat('x', 65537))", "a reason has at most 65536 bytes"),
    ("retire_wake('acme', wakeful.uuid7(), repeat('x', 65537))", "a reason has at most 65536 bytes"),
    ("stop_run('acme', wakeful.uuid7(), repeat('x', 65537))", "a reason has at most 65536 bytes"),
    ("hold_issue('acme', 'I-1', reason => repeat('x', 65537))", "a reason has at most 65536 bytes"),
    ("close_account('acme', 'a/b', reason => repeat('x', 65537))", "a reason has at most 65536 bytes"),
    (
        "interrupt_issue('acme', 'I-1', reason => repeat('x', 65537), actor => 'user:ann')",
        "a reason has at most 65536 bytes",
    ),
    ("commit_status('acme', 'I-1', 'done', reason => repeat('x', 65537))", "a reason has at most 65536 bytes"),
    ("request_wake('acme', 'coder', payload => (repeat('[', 101) || repeat(']', 101))::jsonb)", "100 levels"),
    ("request_wake('acme', 'coder', payload => (repeat('[', 6000) || repeat(']', 6000))::jsonb)", "100 levels"),
    ("request_wake('acme', 'coder', estimate => 999999999999.9999999)", "not an amount"),
    ("request_wake('acme', 'coder', payload => '\"\\u0000\"')", "cannot store"),
    ("request_wake('acme', 'coder', key => '')", "1 to 200 characters"),
    ("request_wake('acme', 'coder', repeat('x', 201))", "1 to 200 characters"),
    ("request_wake('acme', 'coder', source => 'cron')", "no source"),
    ("request_wake('acme', 'coder', actor => 'ann')", "not user:ID"),
    ("request_wake('acme', 'coder', source => NULL)", "missing"),
    ("request_wake(NULL, 'coder')", "1 to 200 characters"),
    ("add_company('')", "1 to 200 characters"),
    ("add_agent('acme', 'a', '{}')", "at least one word"),
    ("add_agent('acme', 'a', NULL)", "at least one word"),
    ("add_agent('acme', '', '{a}')", "1 to 200 characters"),
    ("add_agent('acme', 'a', '{a}', max_attempts => 0)", "attempts is at least 1"),
    ("add_agent('acme', 'a', '{a}', env_values => '[]')", "JSON object"),
    ("set_budget('acme', 'company', 'NaN')", "not an amount"),
    ("set_budget('acme', 'company', NULL)", "needs a limit"),
    ("set_budget('acme', 'company', 1, warn_percent => 0)", "1 to 100 percent"),
    ("set_budget('acme', 'company', 1, on_overrun => 'x')", "finish or stop"),
    ("add_spend('acme', -1)", "not an amount"),
    ("add_spend('acme', 999999999999.9999999)", "not an amount"),
    ("add_spend('acme', 1, provenance => NULL)", "provenance"),
    ("set_issue_status('acme', 'I-1', NULL)", "no issue status"),
    ("set_setting('draining', NULL)", "cannot be null"),
    ("set_setting(NULL, 'true')", "cannot be true"),
    ("signal_gate('acme', NULL, 'k')", "1 to 200 characters"),
]


@pytest.mark.parametrize(("call", "cause"), RAW, ids=[call[:60] for call, _ in RAW])
def test_the_database_checks_for_itself(conn: Conn, company: str, call: str, cause: str) -> None:
    from wakeful.database_errors import translated

    with pytest.raises(InvalidInput, match=cause), translated():
        conn.execute(f"SELECT wakeful.{call}")


@pytest.mark.parametrize(
    ("name", "value"), [("retention_days", "1e400"), ("ramp_starts", '"x"'), ("draining", "7"), ("nonsense", "true")]
)
def test_a_setting_that_would_stop_everything_is_no_row_either(conn: Conn, name: str, value: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("INSERT INTO wakeful.setting (name, value, changed_by) VALUES (%s, %s, 'me')", (name, value))
