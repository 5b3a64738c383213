from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from wakeful import explain, store
from wakeful.errors import InvalidInput, NotFound
from wakeful.explain import Explanation
from wakeful.producers import create_issue, request_wake, retire_wake, run, set_setting
from wakeful.standings import Standing
from wakeful.testing import Database

Conn = psycopg.Connection[Any]


def wake(conn: Conn, company: str, **columns: Any) -> UUID:
    made = run(conn, request_wake(company, "coder")).wake
    assert made is not None
    change(conn, "wake", made, **columns)
    return made


def change(conn: Conn, table: str, id: UUID, **columns: Any) -> None:
    if columns:
        parts = ", ".join(f"{name} = %({name})s" for name in columns)
        conn.execute(f"UPDATE wakeful.{table} SET {parts} WHERE id = %(id)s", {**columns, "id": id})  # noqa: S608 - a test's own words


def add_run(conn: Conn, company: str, state: str = "queued", **columns: Any) -> UUID:
    columns = {"company": company, "agent": "coder", "state": state, **columns}
    names, values = ", ".join(columns), ", ".join(f"%({name})s" for name in columns)
    row = conn.execute(f"INSERT INTO wakeful.run ({names}) VALUES ({values}) RETURNING id", columns).fetchone()  # noqa: S608 - a test's own words
    assert row is not None
    return UUID(str(row[0]))


def why(conn: Conn, id: UUID) -> Explanation:
    return explain.why(conn, None, id)


def now(conn: Conn) -> Any:
    row = conn.execute("SELECT wakeful.now()").fetchone()
    assert row is not None
    return row[0]


# ── wakes ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_parked_wake_names_its_gate_since_when_and_what_opens_it(conn: Conn, company: str) -> None:
    since, look = now(conn), now(conn) + timedelta(seconds=30)
    parked = wake(
        conn,
        company,
        wait_gate="budget",
        wait_key="project:alpha",
        wait_reason="budget.exhausted",
        wait_message="10.00 of 10.00 spent",
        wait_since=since,
        opens_on="wakeful budget raise project:alpha",
        reopens_at=look,
        due_at=look,
    )
    told = why(conn, parked)
    assert (told.kind, told.company, told.id, told.state) == ("wake", company, parked, "deferred")
    assert told.standing is Standing.WAITING
    assert told.because == "10.00 of 10.00 spent"
    assert (told.gate, told.key, told.reason) == ("budget", "project:alpha", "budget.exhausted")
    assert (told.since, told.next_look, told.reopens_at) == (since, look, look)
    assert told.opens_on == "wakeful budget raise project:alpha"


def test_a_wake_behind_a_run_names_the_one_that_runs_now(conn: Conn, company: str) -> None:
    run(conn, create_issue(company, "I-1"))
    saved = {"wait_message": "issue I-1 has a live run (another)", "wait_since": now(conn), "wait_key": "I-1"}
    gate = {"wait_gate": "execution", "wait_reason": "execution.live_run", "opens_on": "the end of that run"}
    parked = wake(conn, company, issue="I-1", due_at=None, **saved, **gate)
    first = add_run(conn, company, "running", issue="I-1")
    assert why(conn, parked).because == "issue I-1 has a live run (another)"
    conn.execute(
        "UPDATE wakeful.issue SET execution_run = %s, execution_locked_at = wakeful.now() WHERE id = 'I-1'", (first,)
    )
    assert why(conn, parked).because == f"issue I-1 has a live run ({first})"


def test_a_sleeping_wake_names_its_deadline(conn: Conn, company: str) -> None:
    at = now(conn) + timedelta(hours=1)
    told = why(conn, wake(conn, company, due_at=at))
    assert (told.standing, told.next_look) == (Standing.SLEEPING, at)


def test_a_due_wake_says_that_no_scheduler_is_at_work(conn: Conn, company: str, database: Database) -> None:
    due = wake(conn, company)
    told = why(conn, due)
    assert told.standing is Standing.DUE
    assert any("no scheduler is at work" in note for note in told.notes)
    with database.connect() as owner:
        assert store.run(owner, "control.try_owners_lock").fetchone().held
        assert why(conn, due).notes == ()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("draining", True, "drains"),
        ("panic", True, "panic"),
        ("scheduler_enabled", False, "scheduler_enabled true"),
        ("owners_enabled", False, "owners_enabled true"),
    ],
)
def test_settings_that_hold_everything_are_named(conn: Conn, company: str, name: str, value: bool, words: str) -> None:
    pending, ended = wake(conn, company), wake(conn, company)
    run(conn, retire_wake(company, ended))
    run(conn, set_setting(name, value))
    assert any(words in note for note in why(conn, pending).notes)
    assert why(conn, ended).notes == ()
    run(conn, set_setting(name, not value))
    assert not any(words in note for note in why(conn, pending).notes)


def test_a_wake_that_could_not_be_looked_at_shows_the_error(conn: Conn, company: str) -> None:
    told = why(conn, wake(conn, company, failures=2, error="ValueError: no"))
    assert "looking at it failed 2 times, last: ValueError: no" in told.notes


@pytest.mark.parametrize(
    ("state", "standing", "words"),
    [
        ("queued", Standing.QUEUED, "waits to be started"),
        ("running", Standing.RUNNING, "is running on host h1"),
        ("stopping", Standing.STOPPING, "is being stopped"),
        ("succeeded", Standing.RAN, "carried it and succeeded"),
        ("failed", Standing.RAN, "carried it and failed"),
    ],
)
def test_a_linked_wake_names_the_run_that_carries_it(
    conn: Conn, company: str, state: str, standing: Standing, words: str
) -> None:
    linked = wake(conn, company)
    ended = now(conn) if state in ("succeeded", "failed") else None
    carrier = add_run(conn, company, state, wake=linked, host="h1", ended_at=ended)
    change(conn, "wake", linked, state="linked", run=carrier, due_at=None, ended_at=now(conn))
    told = why(conn, linked)
    assert (told.standing, told.run, told.run_state) == (standing, carrier, state)
    assert words in told.because
    assert str(carrier) in told.because


def test_a_linked_wake_outlives_its_run(conn: Conn, company: str) -> None:
    told = why(conn, wake(conn, company, state="linked", run=uuid4(), due_at=None, ended_at=now(conn)))
    assert told.standing is Standing.RAN
    assert "retention" in told.because


def test_a_merged_wake_names_what_carries_it(conn: Conn, company: str) -> None:
    head = wake(conn, company)
    told = why(conn, wake(conn, company, state="coalesced", coalesced_into=head, due_at=None, ended_at=now(conn)))
    assert (told.standing, told.into) == (Standing.MERGED, head)
    assert str(head) in told.because


@pytest.mark.parametrize("state", ["retired", "cancelled", "failed"])
def test_a_wake_that_will_not_run_says_why(conn: Conn, company: str, state: str) -> None:
    ended = now(conn)
    gone = wake(conn, company, state=state, reason="issue.terminal", due_at=None, ended_at=ended)
    told = why(conn, gone)
    assert (told.standing, told.reason, told.ended_at) == (Standing.WILL_NOT_RUN, "issue.terminal", ended)


def test_a_re_armed_wake_names_its_successor(conn: Conn, company: str) -> None:
    old = wake(conn, company)
    run(conn, retire_wake(company, old, reason="not now"))
    row = conn.execute("SELECT wake FROM wakeful.rearm_wake(%s, %s)", (company, old)).fetchone()
    told = why(conn, old)
    assert (told.successor, told.because) == (row[0] if row else None, "not now")


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_run_names_its_gate(conn: Conn, company: str) -> None:
    since = now(conn)
    waits = {"wait_gate": "company", "wait_key": company, "wait_reason": "company.paused", "wait_since": since}
    told = why(conn, add_run(conn, company, **waits, opens_on="wakeful resume company acme"))
    assert (told.standing, told.gate, told.key, told.reason) == (Standing.WAITING, "company", company, "company.paused")
    assert (told.since, told.opens_on) == (since, "wakeful resume company acme")


def test_a_queued_run_says_which_host_must_start_it(conn: Conn, company: str) -> None:
    conn.execute("INSERT INTO wakeful.host (id, labels) VALUES ('gpu-1', '{gpu}'), ('gone', '{}')")
    conn.execute("UPDATE wakeful.host SET dead_at = now() WHERE id = 'gone'")
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "executor 'local'"),
        ({"labels": ["gpu"]}, "executor 'local'"),
        ({"labels": ["tpu", "arm"]}, "no host has the labels it needs: tpu, arm"),
        ({"host": "gpu-1"}, "a scheduler on host gpu-1 has to start it"),
        ({"host": "gone"}, "declared dead"),
        ({"host": "nowhere"}, "no scheduler has ever run"),
    ]
    for columns, words in cases:
        told = why(conn, add_run(conn, company, **columns))
        assert told.standing is Standing.QUEUED
        assert words in told.because, columns


def test_a_running_run_says_where_which_attempt_since_when(conn: Conn, company: str) -> None:
    started, renew = now(conn), now(conn) + timedelta(seconds=60)
    held = {"host": "h1", "attempt": 2, "generation": 3, "started_at": started, "renew_by": renew}
    told = why(conn, add_run(conn, company, "running", **held))
    assert (told.standing, told.because) == (Standing.RUNNING, "it runs on host h1, attempt 2 of 3")
    assert (told.host, told.attempt, told.generation, told.since) == ("h1", 2, 3, started)
    assert (told.next_look, told.notes) == (renew, ())


def test_a_run_whose_host_is_silent_says_so(conn: Conn, company: str) -> None:
    conn.execute("INSERT INTO wakeful.host (id) VALUES ('h1')")
    late = now(conn) - timedelta(seconds=1)
    stopping = {"stop_at": late, "stop_by": "user:ann", "stop_reason": "wrong branch", "host": "h1", "renew_by": late}
    told = why(conn, add_run(conn, company, "stopping", **stopping))
    assert told.standing is Standing.STOPPING
    assert told.because == "user:ann asked (wrong branch); no scheduler answers on host h1"
    assert any("has not renewed it in time" in note for note in told.notes)
    stopping |= {"renew_by": now(conn) + timedelta(seconds=60)}
    told = why(conn, add_run(conn, company, "stopping", **stopping))
    assert told.because == "user:ann asked (wrong branch); host h1 ends its processes"
    assert told.notes == ()


def test_an_uncertain_run_names_its_recovery_action(conn: Conn, company: str) -> None:
    lost = add_run(conn, company, "running", host="h1", uncertain_at=now(conn), renew_by=now(conn))
    conn.execute(
        "INSERT INTO wakeful.recovery_action (company, run, cause) VALUES (%s, %s, 'files out of reach')",
        (company, lost),
    )
    told = why(conn, lost)
    assert told.standing is Standing.UNCERTAIN
    assert "files out of reach" in told.because
    assert any("recovery action" in note for note in told.notes)


def test_an_ended_run_says_how(conn: Conn, company: str) -> None:
    end: dict[str, Any] = {"ended_at": now(conn), "attempt": 1, "end_class": "failed", "evidence": "contained"}
    failed = add_run(conn, company, "failed", exit_code=3, message="an answer is missing", **end)
    told = why(conn, failed)
    assert (told.standing, told.because) == (Standing.RAN, "it failed: exit code 3, an answer is missing")
    assert (told.end, told.exit_code, told.evidence) == ("failed", 3, "contained")
    killed = add_run(conn, company, "failed", exit_signal=9, **{**end, "end_class": "timed_out"})
    assert why(conn, killed).because == "it failed: timed_out, ended by signal 9"
    silent = add_run(conn, company, "failed", exit_code=4, message="exit code 4", **end)
    assert why(conn, silent).because == "it failed: exit code 4"
    asked = {"stop_at": now(conn), "stop_by": "user:ann", "stop_reason": "panic", "exit_signal": 15}
    stopped = add_run(conn, company, "cancelled", **{**end, "end_class": "stopped"}, **asked)
    assert why(conn, stopped).because == "it was cancelled: user:ann asked (panic), ended by signal 15"
    row = conn.execute("SELECT wake FROM wakeful.request_retry(%s, %s)", (company, failed)).fetchone()
    assert row is not None
    assert why(conn, failed).successor == row[0]
    retry = add_run(conn, company, retry_of=failed)
    assert why(conn, failed).successor == retry


def test_a_run_that_never_started_will_not_run(conn: Conn, company: str) -> None:
    gone = add_run(conn, company, "cancelled", ended_at=now(conn), stop_reason="not needed")
    told = why(conn, gone)
    assert (told.standing, told.because) == (Standing.WILL_NOT_RUN, "not needed")


# ── ids ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_id_may_be_shortened_while_it_is_clear(conn: Conn, company: str) -> None:
    first = UUID("0199aaaa-0000-7000-8000-000000000001")
    second = UUID("0199aaaa-0000-7000-8000-000000000002")
    other = UUID("0199bbbb-0000-7000-8000-000000000003")
    for id in (first, second, other):
        add_run(conn, company, id=id)
    assert explain.why(conn, company, "0199bb").id == other
    assert explain.why(conn, company, "0199BBBB-00").id == other
    assert explain.why(conn, company, str(second)).id == second
    assert explain.why(conn, company, "000002").id == second
    assert explain.why(conn, company, "8000-000000000003").id == other
    assert explain.find(conn, None, "000002", "run").id == second
    with pytest.raises(NotFound, match="no wake"):
        explain.find(conn, company, "000002", "wake")
    with pytest.raises(InvalidInput, match=f"names several: run {first}, run {second}"):
        explain.why(conn, company, "0199aaaa")
    with pytest.raises(InvalidInput, match="too short"):
        explain.why(conn, company, "0199b")
    with pytest.raises(NotFound, match="no wake or run"):
        explain.why(conn, company, "0199cc")
    for nonsense in ("", "zebra!", "0199bbbb" * 5, "' OR 1=1"):
        with pytest.raises(InvalidInput, match="not the id"):
            explain.why(conn, company, nonsense)


def test_wakes_and_runs_share_the_ids(conn: Conn, company: str) -> None:
    waked = wake(conn, company)
    ran = add_run(conn, company, id=UUID(int=waked.int ^ 1))
    assert explain.find(conn, company, str(waked)[:13], "wake").id == waked
    assert explain.find(conn, company, str(waked)[:13], "run").id == ran
    with pytest.raises(InvalidInput, match="names several: wake"):
        explain.find(conn, company, str(waked)[:13])


def test_only_the_named_company_is_looked_at(conn: Conn, company: str) -> None:
    conn.execute("SELECT wakeful.add_company(company => 'bolt')")
    id = add_run(conn, company)
    assert explain.why(conn, None, id).company == company
    for part in (str(id), str(id)[-12:]):
        with pytest.raises(NotFound, match="in company 'bolt'"):
            explain.why(conn, "bolt", part)


def test_a_search_uses_the_primary_keys(conn: Conn, company: str) -> None:
    run(conn, create_issue(company, "ISS-1"))
    conn.execute("SET enable_seqscan = off")
    low, high = explain.id_range("0199aaaa")
    plan = conn.execute(
        "EXPLAIN " + store.query("explain.find"), {"company": None, "low": low, "high": high, "limit": 10}
    ).fetchall()
    text = "\n".join(row[0] for row in plan)
    assert "wake_pkey" in text
    assert "run_pkey" in text
    assert text.count("(id >= ") == 2
