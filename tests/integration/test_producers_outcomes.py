"""Each producer says truthfully what it did, leaves one audit row for it, and signals a real transition only."""

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
from wakeful.producers import ProducerResult, Statement

Conn = psycopg.Connection[Any]
Setup = list[Statement]

OPENS_PROJECT = [("eligibility", "project", "p"), ("dispatch", "project", "p")]
OPENS_COMPANY = [("eligibility", "company", "acme"), ("dispatch", "company", "acme")]
OPENS_AGENT = [("eligibility", "agent", "coder"), ("dispatch", "agent", "coder")]
OPENS_ISSUE = [("eligibility", "issue", "I-1"), ("dispatch", "issue", "I-1")]
OPENS_BUDGET = [("eligibility", "budget", "company"), ("dispatch", "budget", "company")]
OPENS_SLOTS = [("eligibility", "concurrency", "coder"), ("dispatch", "concurrency", "coder")]

PROJECT = wakeful.add_project("acme", "p")
ISSUE = wakeful.create_issue("acme", "I-1")
BUDGET = wakeful.set_budget("acme", "company", 10)
Gates = list[tuple[str, str, str]]

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


def audits(conn: Conn) -> int:
    return conn.execute("SELECT count(*) FROM wakeful.audit").fetchone()[0]


def wake_of(conn: Conn, wake: UUID) -> Any:
    cursor = conn.cursor(row_factory=psycopg.rows.namedtuple_row)
    return cursor.execute("SELECT * FROM wakeful.wake WHERE id = %s", (wake,)).fetchone()


def test_a_requested_wake_is_stored_as_asked(conn: Conn, company: str, listener: Any) -> None:
    at = datetime.now(UTC) + timedelta(days=2)
    wanted = wakeful.request_wake(
        "acme",
        "coder",
        "I-7",
        at,
        key="k",
        payload={"n": [1, "é"]},
        priority=-3,
        actor="user:ann",
        source="timer",
        estimate=Decimal("0.25"),
    )
    result = wakeful.run(conn, wanted)
    assert (result.outcome, result.state, result.run) == ("inserted", "deferred", None)
    row = wake_of(conn, result.wake)
    assert (row.kind, row.owner, row.agent, row.issue, row.due_at, row.key) == (
        "request",
        "request",
        "coder",
        "I-7",
        at,
        "k",
    )
    assert (row.payload, row.priority, row.source, row.estimate) == ({"n": [1, "é"]}, -3, "timer", Decimal("0.25"))
    assert (row.actor_kind, row.actor, row.effect_root, row.version) == ("user", "ann", row.id, 1)
    [signal] = listener.heard()
    assert signal["at"] == pytest.approx(at.timestamp(), abs=1e-5)
    del signal["at"]
    assert signal == {"t": "eligibility", "c": "acme", "w": str(result.wake), "o": "request"}
    audit = conn.execute(
        "SELECT actor, authenticated, verb, target FROM wakeful.audit ORDER BY id DESC LIMIT 1"
    ).fetchone()
    assert audit == ("user:ann", f"database login {conn.info.user}", "request", f"wake:{result.wake}")
    assert issue_of(conn, "I-7") == ("todo", "agent", "coder")


def issue_of(conn: Conn, issue: str) -> Any:
    return conn.execute("SELECT status, assignee_kind, assignee FROM wakeful.issue WHERE id = %s", (issue,)).fetchone()


def test_the_same_key_answers_existing_with_the_first_wake(conn: Conn, company: str, listener: Any) -> None:
    first = wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k"))
    listener.heard()
    before = audits(conn)
    again = wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k", payload={"other": 1}))
    assert again == ProducerResult("existing", first.wake, "deferred", None)
    assert listener.heard() == []
    assert audits(conn) == before


def test_a_late_redelivery_names_the_run(conn: Conn, company: str) -> None:
    first = wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k"))
    run = linked_run(conn, first.wake)
    end_run(conn, run)
    assert wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k")) == ProducerResult(
        "existing", first.wake, "linked", run
    )


def test_an_expired_key_makes_a_new_wake_unless_the_old_one_is_pending(conn: Conn, company: str, clock: Any) -> None:
    first = wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k"))
    clock.advance(timedelta(days=8))
    assert wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k")).wake == first.wake
    wakeful.run(conn, wakeful.retire_wake("acme", first.wake))
    second = wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k"))
    assert (second.outcome, second.wake != first.wake) == ("inserted", True)
    assert wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k")).wake == second.wake


def test_assigning_to_an_agent_wakes_it(conn: Conn, company: str, listener: Any) -> None:
    result = wakeful.run(conn, wakeful.assign_issue("acme", "I-1", "agent:coder", actor="user:ann"))
    assert (result.outcome, result.state) == ("inserted", "deferred")
    row = wake_of(conn, result.wake)
    assert (row.agent, row.issue, row.source, row.actor) == ("coder", "I-1", "assignment", "ann")
    assert [signal.get("g") or signal["o"] for signal in listener.heard()] == ["issue", "issue", "request"]
    again = wakeful.run(conn, wakeful.assign_issue("acme", "I-1", "agent:coder"))
    assert (again.outcome, again.wake) == ("existing", None)
    assert listener.heard() == []


def test_assigning_a_finished_issue_wakes_nobody(conn: Conn, company: str) -> None:
    wakeful.run(conn, ISSUE)
    wakeful.run(conn, wakeful.set_issue_status("acme", "I-1", "done"))
    result = wakeful.run(conn, wakeful.assign_issue("acme", "I-1", "agent:coder"))
    assert (result.outcome, result.wake) == ("merged", None)


# ── retries, re-arms, taking back ───────────────────────────────────────────────────────────────────────


def linked_run(conn: Conn, wake: UUID, state: str = "queued") -> UUID:
    """Make the run that an admission would have made for the wake."""
    [run] = conn.execute(
        "INSERT INTO wakeful.run (company, agent, issue, wake, attempt, state, project)"
        " SELECT company, agent, issue, id, %s, %s, project FROM wakeful.wake WHERE id = %s RETURNING id",
        (0 if state == "queued" else 1, state, wake),
    ).fetchone()
    conn.execute(
        "UPDATE wakeful.wake SET state = 'linked', run = %s, ended_at = wakeful.now(), due_at = NULL WHERE id = %s",
        (run, wake),
    )
    return run


def end_run(conn: Conn, run: UUID, state: str = "failed") -> None:
    conn.execute("UPDATE wakeful.run SET state = %s, ended_at = wakeful.now() WHERE id = %s", (state, run))


@pytest.fixture
def failed_run(conn: Conn, company: str) -> UUID:
    result = wakeful.run(conn, wakeful.request_wake("acme", "coder", "I-1", payload={"a": 1}, priority=4, estimate=2))
    run = linked_run(conn, result.wake)
    end_run(conn, run)
    return run


def test_a_retry_repeats_the_input_and_is_certified(conn: Conn, failed_run: UUID, listener: Any) -> None:
    result = wakeful.run(conn, wakeful.request_retry("acme", failed_run, actor="user:ann"))
    row = wake_of(conn, result.wake)
    assert (row.kind, row.agent, row.issue, row.payload, row.priority) == ("task_retry", "coder", "I-1", {"a": 1}, 4)
    assert (row.certified_run, row.certified_generation, row.estimate) == (failed_run, 1, Decimal(2))
    [signal] = listener.heard()
    assert (signal["w"], signal["o"]) == (str(result.wake), "task_retry")


def test_a_second_retry_under_any_key_is_existing(conn: Conn, failed_run: UUID, listener: Any) -> None:
    first = wakeful.run(conn, wakeful.request_retry("acme", failed_run, key="a"))
    listener.heard()
    for key in ("b", "a", None):
        again = wakeful.run(conn, wakeful.request_retry("acme", failed_run, key=key))
        assert again == ProducerResult("existing", first.wake, "deferred", None)
    run = linked_run(conn, first.wake)
    end_run(conn, run)
    assert wakeful.run(conn, wakeful.request_retry("acme", failed_run)) == ProducerResult(
        "existing", first.wake, "linked", run
    )
    assert listener.heard() == []


def test_a_retry_that_ended_without_a_run_makes_room(conn: Conn, failed_run: UUID) -> None:
    first = wakeful.run(conn, wakeful.request_retry("acme", failed_run))
    wakeful.run(conn, wakeful.retire_wake("acme", first.wake))
    second = wakeful.run(conn, wakeful.request_retry("acme", failed_run, payload={"b": 2}))
    assert (second.outcome, wake_of(conn, second.wake).payload) == ("inserted", {"b": 2})


def test_a_rearmed_wake_keeps_input_key_and_effect_root(conn: Conn, company: str, listener: Any) -> None:
    first = wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k", payload={"a": 1}))
    with pytest.raises(Conflict, match="still pending"):
        wakeful.run(conn, wakeful.rearm_wake("acme", first.wake))
    run = linked_run(conn, first.wake)
    with pytest.raises(Conflict, match="still queued"):
        wakeful.run(conn, wakeful.rearm_wake("acme", first.wake))
    end_run(conn, run)
    listener.heard()
    second = wakeful.run(conn, wakeful.rearm_wake("acme", first.wake))
    row = wake_of(conn, second.wake)
    assert (second.outcome, row.rearm_of, row.effect_root, row.payload) == (
        "inserted",
        first.wake,
        first.wake,
        {"a": 1},
    )
    assert [signal["w"] for signal in listener.heard()] == [str(second.wake)]
    assert wakeful.run(conn, wakeful.rearm_wake("acme", first.wake)) == ProducerResult(
        "existing", second.wake, "deferred", None
    )
    assert wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k")).wake == second.wake
    assert listener.heard() == []


def test_rearming_a_retry_whose_run_is_retried_already_is_a_conflict(conn: Conn, failed_run: UUID) -> None:
    first = wakeful.run(conn, wakeful.request_retry("acme", failed_run))
    run = linked_run(conn, first.wake)
    end_run(conn, run)
    second = wakeful.run(conn, wakeful.request_retry("acme", run))
    with pytest.raises(Conflict, match=str(second.wake)):
        wakeful.run(conn, wakeful.rearm_wake("acme", first.wake))


def test_taking_back_is_a_tombstone(conn: Conn, company: str, listener: Any) -> None:
    first = wakeful.run(conn, wakeful.request_wake("acme", "coder"))
    listener.heard()
    taken = wakeful.run(conn, wakeful.retire_wake("acme", first.wake, reason="a mistake"))
    assert taken == ProducerResult("merged", first.wake, "cancelled", None)
    row = wake_of(conn, first.wake)
    assert (row.due_at, row.version, row.reason, row.ended_at is None) == (None, 2, "wake.taken_back", False)
    assert wakeful.run(conn, wakeful.retire_wake("acme", first.wake)).outcome == "existing"
    assert listener.heard() == []


# ── stopping ────────────────────────────────────────────────────────────────────────────────────────────


def reserve(conn: Conn, run: UUID, policy: str, amount: int) -> None:
    conn.execute(
        "INSERT INTO wakeful.reservation (company, run, policy, amount) VALUES ('acme', %s, %s, %s)",
        (run, policy, amount),
    )


def test_stopping_a_queued_run_ends_it_and_opens_what_it_held(conn: Conn, company: str, listener: Any) -> None:
    wakeful.run(conn, wakeful.add_agent("acme", "coder", ["true"], max_concurrent_runs=1))
    wakeful.run(conn, BUDGET)
    run = linked_run(conn, wakeful.run(conn, wakeful.request_wake("acme", "coder", "I-1")).wake)
    reserve(conn, run, "company", 4)
    wakeful.run(conn, wakeful.request_wake("acme", "coder", "I-1"))  # waits behind the run
    listener.heard()
    stopped = wakeful.run(conn, wakeful.stop_run("acme", run, reason="enough", actor="user:ann"))
    assert (stopped.outcome, stopped.state, stopped.run) == ("merged", "cancelled", run)
    assert set(listener.gates()) == {("eligibility", "execution", "I-1"), *OPENS_SLOTS, *OPENS_BUDGET}
    assert conn.execute("SELECT state FROM wakeful.reservation").fetchall() == [("released",)]
    assert conn.execute("SELECT count(*) FROM wakeful.spend").fetchone() == (0,)
    again = wakeful.run(conn, wakeful.stop_run("acme", run))
    assert (again.outcome, again.state) == ("existing", "cancelled")
    assert listener.heard() == []


def test_stopping_a_running_run_is_a_row_and_a_hint_to_its_host(conn: Conn, company: str, listener: Any) -> None:
    run = linked_run(conn, wakeful.run(conn, wakeful.request_wake("acme", "coder")).wake, "running")
    conn.execute("UPDATE wakeful.run SET host = 'h1' WHERE id = %s", (run,))
    listener.heard()
    stopped = wakeful.run(conn, wakeful.stop_run("acme", run, actor="user:ann"))
    assert (stopped.outcome, stopped.state) == ("merged", "stopping")
    assert listener.heard() == [{"t": "dispatch", "c": "acme", "r": str(run), "h": "h1"}]
    assert conn.execute("SELECT stop_by FROM wakeful.run").fetchone() == ("user:ann",)
    assert wakeful.run(conn, wakeful.stop_run("acme", run)).outcome == "existing"
    assert listener.heard() == []


def test_panic_stops_what_runs_and_keeps_what_waits(conn: Conn, company: str, listener: Any) -> None:
    running, queued = (
        linked_run(conn, wakeful.run(conn, wakeful.request_wake("acme", "coder")).wake, state)
        for state in ("running", "queued")
    )
    listener.heard()
    wakeful.run(conn, wakeful.panic_company("acme", reason="smoke", actor="user:ann"))
    states = dict(conn.execute("SELECT id, state FROM wakeful.run").fetchall())
    assert states == {running: "stopping", queued: "queued"}
    assert conn.execute("SELECT stop_by, stop_reason FROM wakeful.run WHERE id = %s", (running,)).fetchone() == (
        "user:ann",
        "smoke",
    )
    assert [signal["r"] for signal in listener.heard()] == [str(running)]


# ── money ───────────────────────────────────────────────────────────────────────────────────────────────


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


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────

GONE = UUID("01a22bc2-c7a6-71ef-8435-a34d29d43db5")
REFUSED: list[tuple[Callable[[], Statement], type[Exception], str]] = [
    (lambda: wakeful.pause_company("nowhere"), NotFound, "company 'nowhere'"),
    (lambda: wakeful.resume_company("nowhere"), NotFound, "company 'nowhere'"),
    (lambda: wakeful.panic_company("nowhere"), NotFound, "company 'nowhere'"),
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


@pytest.mark.parametrize("payload", ["x" * 10_240, "é" * 4000, "x" * 65_534], ids=["10 kB", "4000 x é", "64 KiB"])
def test_a_large_payload_does_not_reach_the_notification(conn: Conn, company: str, listener: Any, payload: str) -> None:
    result = wakeful.run(conn, wakeful.request_wake("acme", "coder", payload=payload))
    assert wake_of(conn, result.wake).payload == payload
    assert len(listener.heard()) == 1


def test_the_longest_ids_fit_into_a_notification(conn: Conn, company: str, listener: Any) -> None:
    long = "\x01" * 200
    wakeful.run(conn, wakeful.add_company("\U0001f600" * 200))
    wakeful.run(conn, wakeful.signal_gate(long, long, long))
    assert [signal["k"] for signal in listener.heard()] == [long, long]


def test_six_hundred_wakes_in_one_transaction(conn: Conn, company: str, listener: Any) -> None:
    with conn.transaction():
        for _ in range(600):
            wakeful.run(conn, wakeful.request_wake("acme", "coder"))
    assert len(listener.heard()) == 600
