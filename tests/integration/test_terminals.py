"""The one funnel of ends: under the fence, once, and what it frees."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.conftest import Listener
from tests.integration.runs import DATA, claimant, queued, report, row, value

from wakeful import claims, store, terminals
from wakeful.crash_points import no_crash
from wakeful.executions import Grade, RunKey
from wakeful.results import conclude
from wakeful.terminals import Death, Ending, Settled
from wakeful.testing import Database, expect_blocked

Conn = psycopg.Connection[Any]


def claimed(conn: Conn, issue: str | None = None, **columns: Any) -> RunKey:
    queued(conn, issue, **columns)
    (key,) = claims.claim(conn, "acme", claimant(), limit=10, gate=None, crash=no_crash).started
    return key


def ending(key: RunKey, **changes: Any) -> Ending:
    found = report(key, **changes)
    return Ending(key, conclude(found), found, directory="/data/runs/x")


def record(conn: Conn, *ends: Ending | Death) -> Settled:
    endings = [end for end in ends if isinstance(end, Ending)]
    deaths = [end for end in ends if isinstance(end, Death)]
    return terminals.record(conn, "acme", endings, deaths, crash=no_crash)


def refused(conn: Conn) -> list[tuple[int, int]]:
    rows = conn.execute("SELECT generation, (report->>'exit_code')::integer FROM wakeful.refused_report ORDER BY 1")
    return rows.fetchall()


def doubt(conn: Conn, key: RunKey) -> RunKey:
    parameters = {"company": "acme", "run": key.run, "generation": key.generation, "reason": "silence", "overdue": None}
    assert store.run(conn, "recovery.declare_uncertain", parameters).fetchone() is not None
    return RunKey("acme", key.run, key.generation + 1)


def test_an_end_is_written_once_and_frees_what_the_run_held(conn: Conn, company: str, listener: Listener) -> None:
    conn.execute("SELECT wakeful.set_budget('acme', 'company', 10)")
    key = claimed(conn, "issue")
    conn.execute(
        "INSERT INTO wakeful.reservation (company, run, policy, amount) VALUES ('acme', %s, 'company', 4)", (key.run,)
    )
    conn.execute("SELECT wakeful.request_wake('acme', 'coder', 'issue')")
    listener.heard()
    assert record(conn, ending(key)).ended == {key}
    found = row(conn, key.run)
    assert (found["state"], found["exit_code"], found["stdout_tail"], found["evidence"]) == (
        "succeeded", 0, "said", "contained",
    )  # fmt: skip
    assert found["renew_by"] is None
    assert value(conn, "SELECT execution_run FROM wakeful.issue") is None
    assert value(conn, "SELECT state FROM wakeful.reservation") == "settled"
    assert value(conn, "SELECT sum(amount) FROM wakeful.spend") == 4
    heard = listener.heard()
    assert {"t": "eligibility", "c": "acme", "g": "execution", "k": "issue"} in heard
    # The same report again is no news, and no late report either: that generation is not overtaken.
    assert record(conn, ending(key)).refused == {key}
    assert row(conn, key.run)["version"] == found["version"]
    assert refused(conn) == []
    assert listener.heard() == []


def test_a_late_report_is_refused_and_kept_once(conn: Conn, company: str) -> None:
    key = claimed(conn, "issue")
    assert record(conn, Death(key, Grade.CONTAINED, "gone")).requeued == {key}
    late = ending(key, exit_code=5)
    for _ in range(2):
        assert record(conn, late).refused == {key}
    assert refused(conn) == [(1, 5)]
    found = row(conn, key.run)
    assert (found["state"], found["generation"]) == ("queued", 2)


def test_a_death_sends_the_run_back(conn: Conn, company: str, listener: Listener) -> None:
    conn.execute("SELECT wakeful.set_budget('acme', 'company', 10)")
    key = claimed(conn, "issue")
    conn.execute(
        "INSERT INTO wakeful.reservation (company, run, policy, amount) VALUES ('acme', %s, 'company', 4)", (key.run,)
    )
    listener.heard()
    record(conn, Death(key, Grade.CONTAINED, "its runner\0 was killed"))
    found = row(conn, key.run)
    assert (found["state"], found["generation"], found["attempt"], found["host"]) == ("queued", 2, 1, None)
    assert (found["claimed_by"], found["error"]) == (None, "its runner\ufffd was killed")
    # Never stamped when queued; still reserved, though.
    assert value(conn, "SELECT execution_run FROM wakeful.issue") is None
    assert value(conn, "SELECT state FROM wakeful.reservation") == "reserved"
    assert {"t": "dispatch", "c": "acme", "g": None, "k": None} in listener.heard()


def test_a_run_bound_to_a_host_goes_back_to_it(conn: Conn, company: str) -> None:
    key = claimed(conn, host="here", host_fixed=True)
    record(conn, Death(key, Grade.WAITED, "gone"))
    assert row(conn, key.run)["host"] == "here"


def test_whoever_was_asked_to_stop_is_not_tried_again(conn: Conn, company: str) -> None:
    key = claimed(conn, "issue")
    conn.execute("SELECT wakeful.stop_run('acme', %s)", (key.run,))
    assert record(conn, Death(key, Grade.CONTAINED, "gone")).ended == {key}
    found = row(conn, key.run)
    assert (found["state"], found["end_class"], found["error"]) == ("cancelled", "stopped", "gone")


def test_one_transaction_ends_requeues_and_refuses(conn: Conn, company: str) -> None:
    keys = []
    for _ in range(3):
        keys.append(claimed(conn))
    record(conn, Death(keys[2], Grade.CONTAINED, "gone"))
    done = record(conn, ending(keys[0], exit_code=1), Death(keys[1], Grade.CONTAINED, "gone"), ending(keys[2]))
    assert (done.ended, done.requeued, done.refused) == ({keys[0]}, {keys[1]}, {keys[2]})
    assert [row(conn, key.run)["state"] for key in keys] == ["failed", "queued", "queued"]


def test_a_doubted_run_is_freed_by_proof_and_its_report_refused(conn: Conn, company: str) -> None:
    key = claimed(conn, "issue")
    doubted = doubt(conn, key)
    assert record(conn, ending(key)).refused == {key}
    assert value(conn, "SELECT state FROM wakeful.recovery_action") == "open"
    done = record(conn, ending(key), Death(doubted, Grade.CONTAINED, "proven"))
    assert (done.requeued, done.refused) == ({doubted}, {key})
    found = row(conn, key.run)
    assert (found["state"], found["generation"], found["uncertain_at"]) == ("queued", 3, None)
    assert refused(conn) == [(1, 0)]
    assert (
        value(conn, "SELECT state || ' by ' || resolved_by FROM wakeful.recovery_action")
        == "resolved by system:evidence"
    )


def test_hearsay_leaves_the_issue_closed(conn: Conn, company: str) -> None:
    key = claimed(conn, "issue")
    record(conn, ending(key, grade=Grade.REPORTED))
    assert row(conn, key.run)["state"] == "succeeded"
    assert value(conn, "SELECT execution_run FROM wakeful.issue") == key.run


def test_a_terminal_waits_for_a_bump_and_is_refused(database: Database, conn: Conn, company: str) -> None:
    key = claimed(conn)
    bumper, writer = database.connect(), database.connect()
    with bumper.transaction():
        bumper.execute("UPDATE wakeful.run SET generation = generation + 1")
        with expect_blocked(lambda: record(writer, ending(key)), behind=bumper, watcher=conn) as blocked:
            bumper.execute("COMMIT")
            assert blocked.result().refused == {key}
            bumper.execute("BEGIN")
    assert row(conn, key.run)["state"] == "starting"
    assert refused(conn) == [(1, 0)]


def test_a_bump_waits_for_a_terminal_and_finds_the_run_ended(database: Database, conn: Conn, company: str) -> None:
    key = claimed(conn)
    bumper, writer = database.connect(), database.connect()
    bump = "UPDATE wakeful.run SET generation = generation + 1 WHERE ended_at IS NULL"

    def write(point: str) -> None:
        if point.endswith("before_commit"):
            with expect_blocked(lambda: bumper.execute(bump).rowcount, behind=writer, watcher=conn) as blocked:
                waits.append(blocked)
                writer.execute("COMMIT")
                assert blocked.result() == 0
                writer.execute("BEGIN")

    waits: list[Any] = []
    terminals.record(writer, "acme", [ending(key)], crash=write)
    assert waits
    found = row(conn, key.run)
    assert (found["state"], found["generation"]) == ("succeeded", 1)


def test_a_stop_and_a_terminal_meet_in_both_orders(database: Database, conn: Conn, company: str) -> None:
    stopper, writer = database.connect(), database.connect()
    first = claimed(conn, "first")
    with stopper.transaction():
        stopper.execute("SELECT wakeful.stop_run('acme', %s)", (first.run,))
        with expect_blocked(lambda: record(writer, ending(first)), behind=stopper, watcher=conn) as blocked:
            stopper.execute("COMMIT")
            assert blocked.result().ended == {first}
            stopper.execute("BEGIN")
    # It finished before the stop could reach it.
    assert row(conn, first.run)["state"] == "succeeded"
    assert value(stopper, "SELECT state FROM wakeful.stop_run('acme', %s)", first.run) == "succeeded"


def test_panic_locks_runs_in_the_terminals_order(database: Database, conn: Conn, company: str) -> None:
    low, high = sorted((claimed(conn), claimed(conn)), key=lambda key: key.run)
    conn.execute("UPDATE wakeful.run SET message = 'moved' WHERE id = %s", (low.run,))  # now behind the other
    holder, panic = database.connect(), database.connect()
    with holder.transaction():
        holder.execute("SELECT FROM wakeful.run WHERE id = %s FOR UPDATE", (low.run,))
        with expect_blocked(lambda: panic.execute("SELECT wakeful.panic_company('acme')"), behind=holder, watcher=conn):
            conn.execute("SELECT FROM wakeful.run WHERE id = %s FOR UPDATE NOWAIT", (high.run,))
            holder.execute("COMMIT")
            holder.execute("BEGIN")


def test_a_renewal_waits_for_nobody(database: Database, conn: Conn, company: str) -> None:
    held, free = claimed(conn), claimed(conn)
    before = {key: row(conn, key.run)["renew_by"] for key in (held, free)}
    holder = database.connect()
    with holder.transaction(force_rollback=True):
        holder.execute("SELECT FROM wakeful.run WHERE id = %s FOR UPDATE", (held.run,))
        conn.execute("SET lock_timeout = '2s'")
        store.run(conn, "recovery.renew", {"host": "here", "claimer": claimant().claimer, "lease": 600.0})
    assert row(conn, held.run)["renew_by"] == before[held]
    assert row(conn, free.run)["renew_by"] > before[free]


def test_only_one_successor_adopts(conn: Conn, company: str) -> None:
    key = claimed(conn)
    former = claimant().claimer
    columns = {"companies": ["acme"], "runs": [key.run], "generations": [1], "formers": [former]}
    won = []
    for name in ("two", "three"):
        adopting = {"claimer": f"{DATA}/{name}", "host": "there", "lease": 60.0}
        won.append(len(store.run(conn, "recovery.adopt", adopting | columns).fetchall()))
    assert won == [1, 0]
    assert row(conn, key.run)["claimed_by"] == f"{DATA}/two"


def test_nobody_is_doubted_who_renewed_meanwhile(conn: Conn, company: str) -> None:
    key = claimed(conn)
    parameters = {"company": "acme", "run": key.run, "generation": 1, "reason": "silence", "overdue": 20.0}
    assert store.run(conn, "recovery.declare_uncertain", parameters).fetchone() is None
    assert row(conn, key.run)["generation"] == 1


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 100_000])
def test_any_text_can_be_stored(conn: Conn, company: str, text: str) -> None:
    key = claimed(conn)
    record(conn, ending(key, exit_code=None, error=text))
    assert row(conn, key.run)["state"] == "failed"
