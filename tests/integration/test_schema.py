"""What the schema itself enforces, whoever writes: constraints, steps, finals, journals, keys."""

# ruff: noqa: S608 - table and column names are this file's own

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors

import wakeful

Conn = psycopg.Connection[Any]

PENDING = {"deferred", "queued", "claimed", "error"}
WAKE_STEPS = {
    "deferred": {"linked", "coalesced", "retired", "settled", "cancelled", "failed"},
    "queued": {"claimed", "linked", "coalesced", "skipped", "retired", "cancelled", "failed"},
    "claimed": {"linked", "coalesced", "skipped", "retired", "queued", "error", "failed"},
    "error": {"claimed", "retired", "failed", "cancelled"},
}
WAKE_FINALS = {"linked", "coalesced", "skipped", "retired", "settled", "cancelled", "failed"}
RUN_FINALS = {"succeeded", "failed", "cancelled", "lost"}
RUN_STEPS = {
    "queued": {"starting", "cancelled", "failed"},
    "starting": {"queued", "running", "stopping", *RUN_FINALS},
    "running": {"queued", "suspended", "stopping", *RUN_FINALS},
    "suspended": {"queued", "running", "cancelled", "failed"},
    "stopping": RUN_FINALS,
}
INSTANCE_TABLES = {"host", "setting", "clock", "epoch", "migration", "instance_audit"}


@pytest.fixture(scope="module")
def shared(server: Any) -> Any:
    """One database for tests that roll everything back."""
    with server.database() as made:
        conn = made.connect(autocommit=False)
        wakeful.run(conn, wakeful.add_company("acme"))
        wakeful.run(conn, wakeful.add_agent("acme", "coder", ["true"]))
        wakeful.run(conn, wakeful.create_issue("acme", "I-1"))
        conn.commit()
        yield conn


@pytest.fixture
def tx(shared: Conn) -> Any:
    """A transaction that leaves nothing."""
    yield shared
    shared.rollback()


def add(conn: Conn, table: str, **columns: Any) -> UUID:
    columns = {"company": "acme", "agent": "coder"} | columns
    if table == "wake":
        columns = {"kind": "request", "actor_kind": "user", "actor": "ann", "effect_root": UUID(int=1)} | columns
    names = ", ".join(columns)
    marks = ", ".join(["%s"] * len(columns))
    query = f"INSERT INTO wakeful.{table} ({names}) VALUES ({marks}) RETURNING id"
    return conn.execute(query, list(columns.values())).fetchone()[0]


def step(conn: Conn, table: str, id: UUID, finals: set[str], state: str, **columns: Any) -> None:
    columns |= {"state": state, "ended_at": datetime.now(UTC) if state in finals else None}
    sets = ", ".join(f"{name} = %s" for name in columns)
    conn.execute(f"UPDATE wakeful.{table} SET {sets} WHERE id = %s", [*columns.values(), id])


# ── steps ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("old", sorted(PENDING | WAKE_FINALS))
def test_wakes_take_legal_steps_only(tx: Conn, old: str) -> None:
    for new in sorted((PENDING | WAKE_FINALS) - {old}):
        with tx.transaction(force_rollback=True):
            id = add(tx, "wake", state=old, ended_at=datetime.now(UTC) if old in WAKE_FINALS else None)
            if new in WAKE_STEPS.get(old, set()):
                step(tx, "wake", id, WAKE_FINALS, new)
            else:
                with pytest.raises(psycopg.DatabaseError) as raised, tx.transaction():
                    step(tx, "wake", id, WAKE_FINALS, new)
                assert raised.value.sqlstate == "WK409", (old, new)


@pytest.mark.parametrize("kind", ["agent", "supervisor"])
@pytest.mark.parametrize("old", sorted({*RUN_STEPS, *RUN_FINALS}))
def test_runs_take_legal_steps_only(tx: Conn, old: str, kind: str) -> None:
    for new, bump in itertools.product(sorted({*RUN_STEPS, *RUN_FINALS} - {old}), (0, 1, 2)):
        continued = kind == "supervisor" and old in ("failed", "cancelled") and new == "queued"
        legal = (new in RUN_STEPS.get(old, set()) or continued) and (new != "queued" or bump == 1)
        with tx.transaction(force_rollback=True):
            id = add(tx, "run", kind=kind, state=old, ended_at=datetime.now(UTC) if old in RUN_FINALS else None)
            if legal:
                step(tx, "run", id, RUN_FINALS, new, generation=1 + bump)
            else:
                with pytest.raises(psycopg.DatabaseError) as raised, tx.transaction():
                    step(tx, "run", id, RUN_FINALS, new, generation=1 + bump)
                assert raised.value.sqlstate == "WK409", (old, new, bump)


@pytest.mark.parametrize(("table", "finals"), [("wake", WAKE_FINALS), ("run", RUN_FINALS)])
def test_finals_never_change_and_what_lives_is_kept(tx: Conn, table: str, finals: set[str]) -> None:
    for state in sorted(finals):
        id = add(tx, table, state=state, ended_at=datetime.now(UTC))
        for change in ("priority = 5", "ended_at = ended_at + interval '1 s'", f"state = '{state}', reason = 'x'"):
            with pytest.raises(psycopg.DatabaseError, match="is final"), tx.transaction():
                tx.execute(f"UPDATE wakeful.{table} SET {change} WHERE id = %s", (id,))
        assert tx.execute(f"DELETE FROM wakeful.{table} WHERE id = %s", (id,)).rowcount == 1
    alive = add(tx, table)
    with pytest.raises(psycopg.DatabaseError, match="has not ended"), tx.transaction():
        tx.execute(f"DELETE FROM wakeful.{table} WHERE id = %s", (alive,))


@pytest.mark.parametrize("table", ["audit", "instance_audit", "refused_report", "spend"])
@pytest.mark.parametrize("how", ["UPDATE wakeful.{} SET id = wakeful.uuid7()", "DELETE FROM wakeful.{}"])
def test_journals_only_grow(tx: Conn, table: str, how: str) -> None:
    wakeful.run(tx, wakeful.add_spend("acme", 1))
    wakeful.run(tx, wakeful.set_setting("draining", True))
    tx.execute(
        "INSERT INTO wakeful.refused_report (company, run, generation, report)"
        " VALUES ('acme', wakeful.uuid7(), 1, '{}')"
    )
    # Nobody but the owner may even try, and the owner is stopped by the guard.
    tx.execute("SET LOCAL ROLE wakeful_owner; SET LOCAL wakeful.company = 'acme'")
    with pytest.raises(psycopg.DatabaseError, match="is a journal"), tx.transaction():
        tx.execute(how.format(table))


# ── one of a kind ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["queued", "starting", "running", "suspended", "stopping"])
def test_an_issue_has_one_live_run(tx: Conn, state: str) -> None:
    first = add(tx, "run", issue="I-1", state=state)
    with pytest.raises(errors.UniqueViolation), tx.transaction():
        add(tx, "run", issue="I-1")
    add(tx, "run", issue="I-1", wave_slot="1")
    add(tx, "run")
    add(tx, "run")
    if state == "suspended":
        step(tx, "run", first, RUN_FINALS, "cancelled")
    elif state == "queued":
        step(tx, "run", first, RUN_FINALS, "failed")
    else:
        step(tx, "run", first, RUN_FINALS, "lost")
    add(tx, "run", issue="I-1")


def test_a_wake_has_one_run(tx: Conn) -> None:
    wake = add(tx, "wake")
    add(tx, "run", wake=wake, state="failed", ended_at=datetime.now(UTC))
    with pytest.raises(errors.UniqueViolation), tx.transaction():
        add(tx, "run", wake=wake)


def test_a_run_is_retried_by_one_wake_at_a_time(tx: Conn) -> None:
    run = add(tx, "run", state="failed", ended_at=datetime.now(UTC))
    certified = {"kind": "task_retry", "certified_run": run, "certified_generation": 1}
    first = add(tx, "wake", **certified)
    with pytest.raises(errors.UniqueViolation), tx.transaction():
        add(tx, "wake", **certified)
    step(tx, "wake", first, WAKE_FINALS, "retired")
    second = add(tx, "wake", **certified)
    step(tx, "wake", second, WAKE_FINALS, "linked", run=add(tx, "run"))
    with pytest.raises(errors.UniqueViolation), tx.transaction():
        add(tx, "wake", **certified)


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("wake", {"due_at": "infinity"}),
    ("wake", {"due_at": "12000-01-01"}),
    ("wake", {"due_at": "1999-12-31"}),
    ("wake", {"requested_at": "-infinity"}),
    ("wake", {"estimate": "NaN"}),
    ("wake", {"estimate": -1}),
    ("wake", {"priority": 1001}),
    ("wake", {"state": "asleep"}),
    ("wake", {"state": "linked"}),
    ("wake", {"ended_at": datetime.now(UTC)}),
    ("wake", {"kind": ""}),
    ("wake", {"actor_kind": "robot"}),
    ("wake", {"wait_gate": "agent"}),
    ("wake", {"wait_gate": "agent", "wait_reason": "agent.paused"}),
    ("wake", {"certified_run": UUID(int=5)}),
    ("wake", {"payload": f'"{"x" * 65_536}"'}),
    ("run", {"state": "asleep"}),
    ("run", {"state": "failed"}),
    ("run", {"generation": 0}),
    ("run", {"evidence": "rumour"}),
    ("run", {"state": "running", "wait_gate": "agent", "wait_reason": "agent.paused"}),
]


@pytest.mark.parametrize(("table", "columns"), BROKEN, ids=[f"{t} {next(iter(c))}" for t, c in BROKEN])
def test_nonsense_is_not_stored(tx: Conn, table: str, columns: dict[str, Any]) -> None:
    with pytest.raises((errors.CheckViolation, errors.NumericValueOutOfRange)):
        add(tx, table, **columns)


def test_a_project_is_paused_for_a_reason_or_not_at_all(tx: Conn) -> None:
    wakeful.run(tx, wakeful.add_project("acme", "p"))
    for half in ("paused_at = now()", "pause_reason = 'budget'"):
        with pytest.raises(errors.CheckViolation), tx.transaction():
            tx.execute(f"UPDATE wakeful.project SET {half}")


# ── who times a wake ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["request", "task_retry", "card", "dispatch", "native_status", "supervisor", "theirs"])
@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("chat", [None, "open", "folded"])
@pytest.mark.parametrize("waits", [False, True])
def test_each_pending_wake_has_the_one_owner_its_columns_say(
    tx: Conn, kind: str, interrupted: bool, chat: str | None, waits: bool
) -> None:
    wake = add(
        tx, "wake", kind=kind,
        interrupt_at=datetime.now(UTC) if interrupted else None, interrupt_by="user:ann" if interrupted else None,
        chat_action="c" if chat else None, chat_outcome="processed" if chat == "folded" else None,
        wait_gate="agent" if waits else None, wait_key="coder" if waits else None,
        wait_reason="agent.paused" if waits else None,
    )  # fmt: skip
    by_kind = {"card": "saved_comments", "dispatch": "native_status"}.get(kind, kind)
    order = [(interrupted, "interrupt"), (chat == "open", "settlement"), (waits, "execution_wait"), (True, by_kind)]
    expected = next(owner for applies, owner in order if applies)
    [owner, shard] = tx.execute("SELECT owner, shard FROM wakeful.wake WHERE id = %s", (wake,)).fetchone()
    assert (owner, 0 <= shard < 16) == (expected, True)


# ── keys, ids, time ─────────────────────────────────────────────────────────────────────────────────────


def tables(conn: Conn) -> set[str]:
    rows = conn.execute("SELECT relname FROM pg_class WHERE relnamespace = 'wakeful'::regnamespace AND relkind = 'r'")
    return {name for (name,) in rows}


def test_every_key_of_a_tenants_table_leads_with_company(tx: Conn) -> None:
    tenants = tables(tx) - INSTANCE_TABLES
    columns = tx.execute(
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'wakeful' AND column_name = 'company'"
        " AND is_nullable = 'NO' AND domain_name = 'id'"
    ).fetchall()
    assert {name for (name,) in columns} >= tenants
    keyed = tx.execute(
        "SELECT c.relname, i.relname, a.attname FROM pg_index x"
        " JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.indkey[0]"
        " WHERE c.relnamespace = 'wakeful'::regnamespace AND x.indisunique"
    ).fetchall()
    assert {table for table, _, _ in keyed} >= tenants
    assert [(table, index) for table, index, first in keyed if table in tenants and first != "company"] == []
    foreign = tx.execute(
        "SELECT c.relname, k.conname, r.relname, a.attname, b.attname FROM pg_constraint k"
        " JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class r ON r.oid = k.confrelid"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.conkey[1]"
        " JOIN pg_attribute b ON b.attrelid = r.oid AND b.attnum = k.confkey[1]"
        " WHERE k.contype = 'f' AND c.relnamespace = 'wakeful'::regnamespace"
    ).fetchall()
    assert len(foreign) > 15
    assert [row for row in foreign if row[3:] != ("company", "company") or row[2] in INSTANCE_TABLES] == []


def test_sequences_are_none_so_that_no_key_is_global(tx: Conn) -> None:
    query = "SELECT count(*) FROM pg_class WHERE relnamespace = 'wakeful'::regnamespace AND relkind = 'S'"
    assert tx.execute(query).fetchone() == (0,)


def test_uuids_are_of_version_7_and_ordered_by_time(tx: Conn) -> None:
    ids = [id for (id,) in tx.execute("SELECT wakeful.uuid7() FROM generate_series(1, 2000)")]
    assert len(set(ids)) == 2000
    assert {(id.version, id.variant) for id in ids} == {(7, "specified in RFC 4122")}
    now = datetime.now(UTC).timestamp() * 1000
    assert all(abs((id.int >> 80) - now) < 60_000 for id in ids)
    times = [id.int >> 64 for id in ids]
    assert times == sorted(times)


def test_statement_time_is_an_index_condition(tx: Conn) -> None:
    tx.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
    plan = tx.execute(
        "EXPLAIN SELECT id FROM wakeful.wake WHERE owner = 'request' AND shard = 1 AND due_at <= wakeful.now()"
        " AND state IN ('deferred', 'queued', 'claimed', 'error')"
    ).fetchall()
    condition = next(line for (line,) in plan if "Index Cond" in line)
    assert re.search(r"due_at\S*( with time zone|::timestamp with time zone)* <= statement_timestamp", condition)


def test_wall_time_runs_within_a_statement_and_now_does_not(tx: Conn) -> None:
    rows = tx.execute("SELECT wakeful.now(), wakeful.wall() FROM generate_series(1, 2000)").fetchall()
    assert len({now for now, _ in rows}) == 1
    assert rows[0][1] < rows[-1][1]
    assert timedelta() <= rows[0][1] - rows[0][0] < timedelta(seconds=30)
