"""Wakes as requested, retried, re-armed and taken back; runs as stopped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.rows import audits, end_run, linked_run, wake_of

import wakeful
from wakeful.errors import Conflict
from wakeful.producers import ProducerResult

Conn = psycopg.Connection[Any]

OPENS_BUDGET = [("eligibility", "budget", "company"), ("dispatch", "budget", "company")]
OPENS_SLOTS = [("eligibility", "concurrency", "agent:coder")]  # no queued run ever waits on it

ISSUE = wakeful.create_issue("acme", "I-1")
BUDGET = wakeful.set_budget("acme", "company", 10)


def test_what_is_queued_goes_where_its_agent_goes(conn: Conn, company: str) -> None:
    queued, claimed = (
        linked_run(conn, wakeful.run(conn, wakeful.request_wake("acme", "coder", issue)).wake, state)
        for issue, state in (("I-1", "queued"), ("I-2", "starting"))
    )
    places = "SELECT host, host_fixed, labels FROM wakeful.run WHERE id = %s"
    wakeful.run(conn, wakeful.add_agent("acme", "coder", ["true"], labels=["gpu"]))
    assert conn.execute(places, (queued,)).fetchone() == (None, False, ["gpu"])
    wakeful.run(conn, wakeful.add_agent("acme", "coder", ["true"], host="here"))
    assert conn.execute(places, (queued,)).fetchone() == ("here", True, [])
    assert conn.execute(places, (claimed,)).fetchone() == (None, False, [])


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
