"""Holds over trees of every shape, their ends, and a hold committed at any point of an admission or a claim."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conftest import Listener
from tests.passes import WHO, Held, admission, admit, end, follow, parked, row, runs, start

from wakeful import claims
from wakeful.crash_points import CrashPoint, no_crash
from wakeful.explain import why
from wakeful.testing import Database, HoldAt, expect_blocked

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("company")


def issue(conn: Conn, name: str, parent: str | None = None) -> None:
    conn.execute("SELECT wakeful.create_issue('acme', %s, parent => %s)", (name, parent))


def request(conn: Conn, name: str | None) -> UUID:
    return conn.execute("SELECT wake FROM wakeful.request_wake('acme', 'coder', %s)", (name,)).fetchone()[0]


def hold(conn: Conn, name: str, mode: str = "pause") -> str:
    return conn.execute("SELECT outcome FROM wakeful.hold_issue('acme', %s, %s)", (name, mode)).fetchone()[0]


def release(conn: Conn, name: str) -> str:
    return conn.execute("SELECT outcome FROM wakeful.release_hold('acme', %s)", (name,)).fetchone()[0]


def restore(conn: Conn, name: str) -> str:
    return conn.execute("SELECT outcome FROM wakeful.restore_hold('acme', %s)", (name,)).fetchone()[0]


def status(conn: Conn, name: str) -> str:
    return conn.execute("SELECT status FROM wakeful.issue WHERE id = %s", (name,)).fetchone()[0]


def behind(conn: Conn, wake: UUID) -> tuple[Any, ...]:
    return row(conn, wake, "wait_gate", "wait_key", "wait_reason")


# ── trees ───────────────────────────────────────────────────────────────────────────────────────────────


def chain(conn: Conn, length: int) -> list[str]:
    """Issues, each the parent of the next."""
    names = [f"D-{number:03}" for number in range(length)]
    for parent, name in zip([None, *names], names, strict=False):
        issue(conn, name, parent)
    return names


@pytest.mark.parametrize("mode", ["pause", "cancel"])
def test_a_hold_reaches_a_hundred_deep_and_no_further(conn: Conn, listener: Listener, mode: str) -> None:
    names = chain(conn, 101)
    deepest, beyond = request(conn, names[99]), request(conn, names[100])
    hold(conn, names[0], mode)
    result = admit(conn, deepest, beyond)
    assert parked(result, deepest) == f"hold.{mode}"
    assert behind(conn, deepest) == ("hold", names[0], f"hold.{mode}")
    assert set(result.runs) == {beyond}
    listener.heard()
    restore(conn, names[0])
    assert deepest in follow(conn, listener.heard())
    assert admit(conn, deepest, signalled=True).runs
    assert {status(conn, name) for name in names[:100]} == {"todo"}


@pytest.mark.parametrize("mode", ["pause", "cancel"])
def test_a_tree_that_bites_its_tail_is_held_and_freed_like_any_other(conn: Conn, listener: Listener, mode: str) -> None:
    for name, parent in (("A", None), ("B", "A"), ("C", "B"), ("OUT", "C")):
        issue(conn, name, parent)
    conn.execute("UPDATE wakeful.issue SET parent = 'C' WHERE id = 'A'")
    wakes = {name: request(conn, name) for name in ("A", "B", "C", "OUT")}
    hold(conn, "B", mode)
    admit(conn, *wakes.values())
    assert {behind(conn, wake) for wake in wakes.values()} == {("hold", "B", f"hold.{mode}")}
    listener.heard()
    assert restore(conn, "B") == "merged"
    woken = follow(conn, listener.heard())
    assert sorted(wakes.values()) == woken
    assert len(admit(conn, *woken, signalled=True).runs) == 4


def test_the_nearest_hold_answers_and_after_its_release_the_next(conn: Conn, listener: Listener) -> None:
    for name, parent in (("ROOT", None), ("MID", "ROOT"), ("LEAF", "MID")):
        issue(conn, name, parent)
    wake = request(conn, "LEAF")
    hold(conn, "ROOT")
    hold(conn, "MID", "cancel")
    admit(conn, wake)
    assert behind(conn, wake) == ("hold", "MID", "hold.cancel")
    listener.heard()
    restore(conn, "MID")
    admit(conn, *follow(conn, listener.heard()), signalled=True)
    assert behind(conn, wake) == ("hold", "ROOT", "hold.pause")
    release(conn, "ROOT")
    assert admit(conn, *follow(conn, listener.heard()), signalled=True).runs


def test_brothers_and_parents_of_a_held_issue_go_on(conn: Conn) -> None:
    for name, parent in (("ROOT", None), ("HELD", "ROOT"), ("BROTHER", "ROOT")):
        issue(conn, name, parent)
    hold(conn, "HELD")
    free = [request(conn, name) for name in ("ROOT", "BROTHER", None)]
    assert len(admit(conn, *free).runs) == 3


# ── ends ────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_saved_under_a_hold_waits_and_is_never_cancelled(conn: Conn) -> None:
    issue(conn, "I-1")
    wake = request(conn, "I-1")
    hold(conn, "I-1", "cancel")
    admit(conn, wake)
    assert row(conn, wake, "state", "due_at IS NOT NULL") == ("deferred", True)
    assert status(conn, "I-1") == "cancelled"
    told = why(conn, "acme", wake)
    assert told.opens_on == "wakeful release I-1, or wakeful restore"
    assert told.because == "issue I-1 and all below it are held (cancel)"
    assert told.since is not None


def test_a_release_without_restore_makes_its_members_terminal_and_says_so(conn: Conn, listener: Listener) -> None:
    issue(conn, "ROOT")
    issue(conn, "LEAF", "ROOT")
    wakes = [request(conn, "ROOT"), request(conn, "LEAF")]
    hold(conn, "ROOT", "cancel")
    admit(conn, *wakes)
    listener.heard()
    assert release(conn, "ROOT") == "merged"
    signals = listener.heard()
    gates = [(signal["g"], signal["k"]) for signal in signals if signal["t"] == "eligibility"]
    assert gates == [("hold", "ROOT"), ("issue", "LEAF"), ("issue", "ROOT")]
    admit(conn, *follow(conn, signals), signalled=True)
    assert {row(conn, wake, "state", "reason") for wake in wakes} == {("retired", "issue.terminal")}
    assert (status(conn, "ROOT"), status(conn, "LEAF")) == ("cancelled", "cancelled")
    assert release(conn, "ROOT") == "existing"
    assert restore(conn, "ROOT") == "existing"
    assert listener.heard() == []


def test_a_restore_puts_back_only_what_nobody_changed_since(conn: Conn) -> None:
    for name in ("ROOT", "WORKING", "DONE", "CHANGED"):
        issue(conn, name, None if name == "ROOT" else "ROOT")
    conn.execute("SELECT wakeful.set_issue_status('acme', 'WORKING', 'in_progress')")
    conn.execute("SELECT wakeful.set_issue_status('acme', 'DONE', 'done')")
    hold(conn, "ROOT", "cancel")
    conn.execute("SELECT wakeful.set_issue_status('acme', 'CHANGED', 'blocked')")
    conn.execute("SELECT wakeful.set_issue_status('acme', 'CHANGED', 'cancelled')")
    restore(conn, "ROOT")
    found = {name: status(conn, name) for name in ("ROOT", "WORKING", "DONE", "CHANGED")}
    assert found == {"ROOT": "todo", "WORKING": "in_progress", "DONE": "done", "CHANGED": "cancelled"}


def test_what_a_person_cancelled_under_the_hold_is_terminal_and_not_held(conn: Conn, listener: Listener) -> None:
    issue(conn, "ROOT")
    wake = request(conn, "ROOT")
    hold(conn, "ROOT", "cancel")
    conn.execute("SELECT wakeful.set_issue_status('acme', 'ROOT', 'todo')")
    conn.execute("SELECT wakeful.set_issue_status('acme', 'ROOT', 'cancelled')")
    admit(conn, wake)
    assert behind(conn, wake) == ("hold", "ROOT", "hold.cancel")  # the hold answers first
    listener.heard()
    restore(conn, "ROOT")
    admit(conn, *follow(conn, listener.heard()), signalled=True)
    assert row(conn, wake, "state", "reason") == ("retired", "issue.terminal")


# ── races ───────────────────────────────────────────────────────────────────────────────────────────────


def assert_held_back(conn: Conn, run: UUID) -> None:
    """A run admitted before the hold is not claimed under it, says so, and goes on after the release."""
    assert start(conn) == ()
    told = why(conn, "acme", run)
    assert (told.gate, told.key, told.reason, told.state) == ("hold", "ROOT", "hold.pause", "queued")
    release(conn, "ROOT")
    assert claims.claim(conn, "acme", WHO, limit=9, gate=("hold", "ROOT"), crash=no_crash).started


@pytest.fixture
def leaf(conn: Conn) -> UUID:
    """A wake of the issue LEAF below ROOT."""
    issue(conn, "ROOT")
    issue(conn, "LEAF", "ROOT")
    return request(conn, "LEAF")


def test_a_hold_that_comes_while_an_admission_is_written_waits_for_it(
    conn: Conn, database: Database, leaf: UUID
) -> None:
    point, own = HoldAt(CrashPoint.ADMISSION_BEFORE_COMMIT), database.connect()
    pass_ = Held(lambda: admit(own, leaf, by=admission(crash=point)))
    point.wait_reached()
    with expect_blocked(lambda: hold(database.connect(), "ROOT"), behind=own, watcher=conn) as holding:
        point.release()
        run = pass_.result().runs[leaf]
        assert holding.result() == "inserted"
    assert_held_back(conn, run)


def test_an_admission_that_comes_while_a_hold_is_written_waits_for_it(
    conn: Conn, database: Database, leaf: UUID
) -> None:
    holding = database.connect()
    holding.autocommit = False
    hold(holding, "ROOT")
    with expect_blocked(lambda: admit(database.connect(), leaf), behind=holding, watcher=conn) as pass_:
        holding.commit()
        assert parked(pass_.result(), leaf) == "hold.pause"
    assert runs(conn) == []


def test_a_hold_between_commit_and_second_look(conn: Conn, database: Database, leaf: UUID) -> None:
    point = HoldAt(CrashPoint.ADMISSION_AFTER_COMMIT)
    pass_ = Held(lambda: admit(database.connect(), leaf, by=admission(crash=point)))
    point.wait_reached()
    hold(conn, "ROOT")
    point.release()
    assert_held_back(conn, pass_.result().runs[leaf])


def test_an_issue_born_beside_the_hold_is_held_back_at_its_claim(conn: Conn, database: Database) -> None:
    issue(conn, "ROOT")
    holding = database.connect()
    holding.autocommit = False
    hold(holding, "ROOT")
    # The hold has not seen this child, so it could not lock it.
    conn.execute("INSERT INTO wakeful.issue (company, id, parent) VALUES ('acme', 'BORN', NULL)")
    wake = request(conn, "BORN")
    run = admit(conn, wake).runs[wake]
    holding.commit()
    conn.execute("UPDATE wakeful.issue SET parent = 'ROOT' WHERE id = 'BORN'")
    assert_held_back(conn, run)


def test_a_hold_that_comes_while_a_claim_is_written_waits_and_leaves_the_run_alone(
    conn: Conn, database: Database, leaf: UUID
) -> None:
    admit(conn, leaf)
    point, own = HoldAt(CrashPoint.CLAIM_BEFORE_COMMIT), database.connect()
    claim = Held(lambda: start(own, crash=point))
    point.wait_reached()
    with expect_blocked(lambda: hold(database.connect(), "ROOT"), behind=own, watcher=conn) as holding:
        point.release()
        (key,) = claim.result()
        holding.result()
    assert conn.execute("SELECT state FROM wakeful.run").fetchone() == ("starting",)
    end(conn, key)
    later = request(conn, "LEAF")
    assert parked(admit(conn, later), later) == "hold.pause"


@pytest.mark.parametrize("place", [CrashPoint.ADMISSION_BEFORE_COMMIT, CrashPoint.ADMISSION_AFTER_COMMIT])
def test_a_release_at_any_point_of_a_parking_pass_is_not_missed(
    conn: Conn, database: Database, leaf: UUID, place: CrashPoint
) -> None:
    hold(conn, "ROOT")
    point = HoldAt(place)
    pass_ = Held(lambda: admit(database.connect(), leaf, by=admission(crash=point)))
    point.wait_reached()
    assert release(conn, "ROOT") == "merged"
    point.release()
    assert leaf in pass_.result().reopened
