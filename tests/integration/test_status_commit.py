"""The status committer: one transaction decides, changes the status, and saves whom that must wake."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import psycopg
import pytest
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.passes import Held
from tests.rows import audits, say

import wakeful
from wakeful.errors import Conflict, InvalidInput, NotFound
from wakeful.producers import ProducerResult
from wakeful.testing import Database, expect_blocked

Conn = psycopg.Connection[Any]
OPENS_ISSUE = [("eligibility", "issue", "I-1"), ("dispatch", "issue", "I-1")]


@pytest.fixture
def board(conn: Conn, company: str) -> None:
    """Issue I-1 of coder below P-1 of boss; agents who may review, or wait for it."""
    for agent in ("boss", "critic", "next"):
        say(conn, wakeful.add_agent("acme", agent, ["true"]))
    say(
        conn,
        wakeful.create_issue("acme", "P-1"),
        wakeful.create_issue("acme", "I-1", parent="P-1"),
        wakeful.create_issue("acme", "D-1"),
    )
    for issue, agent in (("P-1", "boss"), ("I-1", "coder"), ("D-1", "next")):
        conn.execute("UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = %s WHERE id = %s", (agent, issue))


def commit(conn: Conn, status: str, issue: str = "I-1", **given: Any) -> ProducerResult:
    return wakeful.run(conn, wakeful.commit_status("acme", issue, status, **given))


def intents(conn: Conn, where: str = "state IN ('queued', 'claimed', 'error')") -> list[tuple[Any, ...]]:
    """(agent, issue, review, reason) of the live intents."""
    return conn.execute(
        "SELECT agent, issue, review, payload ->> 'reason' FROM wakeful.wake"  # noqa: S608 - a test's own words
        f" WHERE kind = 'native_status' AND {where} ORDER BY id"
    ).fetchall()


def settle(conn: Conn) -> None:
    """Settle every live intent, as a dispatcher would."""
    conn.execute(
        "UPDATE wakeful.wake SET state = 'skipped', ended_at = wakeful.now(), due_at = NULL"
        " WHERE kind = 'native_status' AND ended_at IS NULL"
    )


def version(conn: Conn, issue: str = "I-1") -> int:
    return conn.execute("SELECT status_version FROM wakeful.issue WHERE id = %s", (issue,)).fetchone()[0]


def decisions(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT issue, former, status, version, key, reason, actor FROM wakeful.status_decision ORDER BY id"
    ).fetchall()


def test_one_transaction_saves_decision_status_and_intent(conn: Conn, board: None, listener: Listener) -> None:
    before = audits(conn)
    done = commit(conn, "in_progress", expected_version=1, key="k", reason="it starts", actor="user:ann")
    assert (done.outcome, done.state) == ("merged", "in_progress")
    assert decisions(conn) == [("I-1", "todo", "in_progress", 2, "k", "it starts", "user:ann")]
    assert version(conn) == 2
    assert audits(conn) == before + 1
    row = conn.execute(
        "SELECT kind, owner, state, agent, issue, review, source, actor_kind, actor, due_at = created_at,"
        " payload, decision FROM wakeful.wake WHERE id = %s",
        (done.wake,),
    ).fetchone()
    decision = conn.execute("SELECT id FROM wakeful.status_decision").fetchone()[0]
    payload = {
        "issue": "I-1",
        "former": "todo",
        "status": "in_progress",
        "version": 2,
        "decision": str(decision),
        "reason": "status",
    }
    assert row == (
        *("native_status", "native_status", "queued", "coder", "I-1", None, "automation", "system"),
        *("native-status-committer", True, payload, decision),
    )
    assert [(s["w"], s["o"]) for s in listener.heard()] == [(str(done.wake), "native_status")]


def test_nothing_is_kept_of_a_transaction_that_is_rolled_back(conn: Conn, board: None, listener: Listener) -> None:
    with conn.transaction(force_rollback=True):
        commit(conn, "in_progress")
    assert (decisions(conn), intents(conn), version(conn), listener.heard()) == ([], [], 1, [])


def test_another_version_is_a_race_to_be_decided_again(conn: Conn, board: None, listener: Listener) -> None:
    commit(conn, "in_progress")
    settle(conn)
    listener.heard()
    with pytest.raises(Conflict, match="version 2, not 1") as caught:
        commit(conn, "done", expected_version=1)
    assert "fresh facts" in str(caught.value.hint)
    assert (len(decisions(conn)), intents(conn), version(conn), listener.heard()) == (1, [], 2, [])


@pytest.mark.parametrize(
    "again",
    [
        {"status": "in_progress"},
        {"status": "in_progress", "key": "k"},
        {"status": "in_progress", "key": "k", "expected_version": 1},
        {"status": "done", "key": "k"},
    ],
)
def test_the_same_again_changes_nothing(conn: Conn, board: None, listener: Listener, again: dict[str, Any]) -> None:
    first = commit(conn, "in_progress", key="k", expected_version=1)
    listener.heard()
    before = audits(conn)
    second = commit(conn, **again)
    assert (second.outcome, second.state) == ("existing", "in_progress")
    assert second.wake == (first.wake if "key" in again else None)
    assert (len(decisions(conn)), len(intents(conn)), version(conn)) == (1, 1, 2)
    assert audits(conn) == before
    assert listener.heard() == []


def test_the_agent_that_decided_is_not_woken_by_its_own_words(conn: Conn, board: None) -> None:
    assert commit(conn, "in_progress", actor="agent:coder").wake is None
    assert commit(conn, "todo", actor="agent:critic").wake is not None


@pytest.mark.parametrize("status", ["backlog", "blocked"])
def test_a_status_that_calls_for_nothing_wakes_nobody(conn: Conn, board: None, status: str) -> None:
    assert commit(conn, status).wake is None
    assert intents(conn) == []


def test_a_review_wakes_the_reviewer(conn: Conn, board: None) -> None:
    assert commit(conn, "in_review").wake is None
    commit(conn, "blocked")
    made = wakeful.run(conn, wakeful.assign_review("acme", "I-1", "agent:critic"))
    assert (made.outcome, made.state, intents(conn)) == ("merged", "blocked", [])
    commit(conn, "in_review", review="R-7", actor="agent:coder")
    assert intents(conn) == [("critic", "I-1", "R-7", "review")]
    settle(conn)
    commit(conn, "in_progress", actor="agent:critic")
    assert intents(conn) == [("coder", "I-1", None, "status")]
    commit(conn, "in_review", agent="boss")
    assert intents(conn)[1:] == [("boss", "I-1", "I-1", "review")]
    assert conn.execute("SELECT reviewer FROM wakeful.issue WHERE id = 'I-1'").fetchone() == ("agent:boss",)


def test_a_review_assigned_wakes_nobody_and_is_checked(conn: Conn, board: None, listener: Listener) -> None:
    assert wakeful.run(conn, wakeful.assign_review("acme", "I-1", "user:ann")).outcome == "merged"
    assert wakeful.run(conn, wakeful.assign_review("acme", "I-1", "user:ann")).outcome == "existing"
    assert wakeful.run(conn, wakeful.assign_review("acme", "I-1", None)).outcome == "merged"
    with pytest.raises(NotFound):
        wakeful.run(conn, wakeful.assign_review("acme", "I-1", "agent:nobody"))
    with pytest.raises(InvalidInput):
        wakeful.assign_review("acme", "I-1", "system:x")
    with pytest.raises(psycopg.Error, match="is not agent:ID or user:ID"):
        conn.execute("SELECT wakeful.assign_review('acme', 'I-1', 'system:x')")
    assert listener.heard() == []


def test_an_end_wakes_the_parent_and_whom_it_blocked_once(conn: Conn, board: None, listener: Listener) -> None:
    say(conn, wakeful.add_dependency("acme", "D-1", "I-1"), wakeful.add_dependency("acme", "D-1", "X-1"))
    listener.heard()
    commit(conn, "done")
    assert intents(conn) == [("boss", "P-1", None, "child_ended")]
    owners = [s["o"] for s in listener.heard() if "w" in s]
    assert owners == ["native_status"]
    commit(conn, "done", issue="X-1")
    assert intents(conn)[1:] == [("next", "D-1", None, "unblocked")]
    listener.heard()
    # Reopened and ended again while the parent's is live: it says so already. Of this blocker nobody was told yet.
    for _ in range(2):
        commit(conn, "todo", actor="agent:coder")
        commit(conn, "done", actor="agent:coder")
        assert intents(conn)[2:] == [("next", "D-1", None, "unblocked")]
    assert len([s for s in listener.heard() if "w" in s]) == 1
    settle(conn)
    commit(conn, "todo", actor="agent:coder")
    commit(conn, "done", actor="agent:coder")
    assert intents(conn) == [("next", "D-1", None, "unblocked"), ("boss", "P-1", None, "child_ended")]


def test_a_cancelled_blocker_unblocks_nobody_but_tells_the_parent(conn: Conn, board: None) -> None:
    say(conn, wakeful.add_dependency("acme", "D-1", "I-1"))
    commit(conn, "cancelled")
    assert intents(conn) == [("boss", "P-1", None, "child_ended")]
    settle(conn)
    commit(conn, "done")
    assert intents(conn) == []  # it had ended before; the dependency's gate has its own signal


def test_ended_and_unassigned_neighbours_are_left_alone(conn: Conn, board: None) -> None:
    say(conn, wakeful.add_dependency("acme", "D-1", "I-1"), wakeful.assign_issue("acme", "D-1", "user:ann"))
    commit(conn, "done", issue="P-1")
    settle(conn)
    commit(conn, "done")
    assert intents(conn) == []


def test_an_end_under_a_cancel_hold_is_still_an_end(conn: Conn, board: None) -> None:
    say(conn, wakeful.hold_issue("acme", "P-1", mode="cancel"))
    commit(conn, "done")
    assert intents(conn) == [("boss", "P-1", None, "child_ended")]  # the parent is held, not over


def test_the_last_of_two_blockers_that_end_at_once_wakes_the_dependent(
    database: Database, conn: Conn, board: None
) -> None:
    say(conn, wakeful.add_dependency("acme", "D-1", "I-1"), wakeful.add_dependency("acme", "D-1", "X-1"))
    first, second = database.connect(autocommit=False), database.connect()
    commit(first, "done", issue="I-1")
    with expect_blocked(lambda: commit(second, "done", issue="X-1"), behind=first, watcher=conn) as blocked:
        first.commit()
        assert blocked.result().wake is not None
    assert ("next", "D-1", None, "unblocked") in intents(conn)


def test_whoever_becomes_a_neighbour_while_it_waits_is_woken_too(database: Database, conn: Conn, board: None) -> None:
    first, second = database.connect(autocommit=False), database.connect()
    say(first, wakeful.add_dependency("acme", "D-1", "I-1"))
    with expect_blocked(lambda: commit(second, "done"), behind=first, watcher=conn) as blocked:
        first.commit()
        blocked.result()
    assert ("next", "D-1", None, "unblocked") in intents(conn)


def test_a_new_neighbour_is_locked_in_order_with_all_others(database: Database, conn: Conn, board: None) -> None:
    """A dependent whose id comes first is not locked behind the others: they are let go, and all are taken anew."""
    say(conn, wakeful.create_issue("acme", "A-0"), wakeful.assign_issue("acme", "A-0", "agent:next"))
    first, second, third = (database.connect(autocommit=False) for _ in range(3))
    third.execute("SELECT FROM wakeful.issue WHERE id = 'A-0' FOR NO KEY UPDATE")
    first.execute("SELECT FROM wakeful.issue WHERE id = 'I-1' FOR NO KEY UPDATE")
    first.execute("INSERT INTO wakeful.issue_block (company, issue, blocker) VALUES ('acme', 'A-0', 'I-1')")
    with expect_blocked(lambda: commit(second, "done"), behind=first, watcher=conn) as blocked:
        first.commit()
        behind = "SELECT FROM pg_stat_activity WHERE pid = %s AND %s = ANY (pg_blocking_pids(pid))"
        pids = (second.info.backend_pid, third.info.backend_pid)
        wait_until(lambda: conn.execute(behind, pids).fetchone() is not None, what="the wait for A-0")
        conn.execute("SELECT FROM wakeful.issue WHERE id = 'I-1' FOR NO KEY UPDATE NOWAIT")
        third.rollback()
        blocked.result()
    second.commit()
    assert ("next", "A-0", None, "unblocked") in intents(conn)


@pytest.mark.parametrize("kept", [True, False], ids=["first commits", "first rolls back"])
def test_one_key_waits_for_the_fate_of_another_transaction(
    database: Database, conn: Conn, board: None, kept: bool
) -> None:
    first, second = database.connect(autocommit=False), database.connect()
    commit(first, "in_progress", key="k")
    with expect_blocked(
        lambda: commit(second, "in_progress", issue="D-1", key="k"), behind=first, watcher=conn, lock="transactionid"
    ) as blocked:
        first.commit() if kept else first.rollback()
        answer = blocked.result()
    assert (answer.outcome, version(conn, "D-1")) == (("existing", 1) if kept else ("merged", 2))


def test_of_many_at_once_on_one_version_one_wins(database: Database, conn: Conn, board: None) -> None:
    won: list[str] = []
    barrier = threading.Barrier(4)

    def decide(link: Conn, status: str) -> None:
        barrier.wait(20)
        try:
            won.append(commit(link, status, expected_version=1).outcome)
        except Conflict:
            won.append("race")

    statuses = ["in_progress", "blocked", "backlog", "done"]
    links = [database.connect() for _ in statuses]
    for work in [Held(partial(decide, link, status)) for link, status in zip(links, statuses, strict=True)]:
        work.result()
    assert sorted(won) == ["merged", "race", "race", "race"]
    assert version(conn) == 2


@pytest.mark.parametrize(
    "bad",
    [
        "status => 'finished'",
        "status => NULL",
        "status => 'done', key => ''",
        "status => 'done', review => ''",
        "status => 'done', reason => repeat('x', 70000)",
        "status => 'done', actor => 'nobody'",
    ],
)
def test_the_door_checks_what_comes_around_python_too(conn: Conn, board: None, bad: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(f"SELECT wakeful.commit_status('acme', 'I-1', {bad})")
    assert caught.value.sqlstate == "WK422"


def test_an_unknown_agent_is_refused_and_an_unknown_issue_is_made(conn: Conn, board: None) -> None:
    with pytest.raises(NotFound):
        commit(conn, "in_progress", agent="nobody")
    assert commit(conn, "done", issue="N-1").outcome == "merged"
    assert version(conn, "N-1") == 2


def test_a_decision_is_a_journal_whose_words_alone_can_be_erased(conn: Conn, board: None) -> None:
    commit(conn, "done", reason="private words", actor="user:ann")
    for change in ("UPDATE wakeful.status_decision SET status = 'todo'", "DELETE FROM wakeful.status_decision"):
        with pytest.raises(psycopg.Error) as caught:
            conn.execute(change)
        assert caught.value.sqlstate == "WK409"
    say(conn, wakeful.archive_company("acme"), wakeful.erase_company("acme"))
    [(reason,)] = conn.execute("SELECT reason FROM wakeful.status_decision").fetchall()
    assert reason.startswith("erased sha256:")


def test_a_host_application_decides_for_one_company_and_sees_no_decision(
    database: Database, conn: Conn, board: None
) -> None:
    say(conn, wakeful.add_company("other"))
    with psycopg.connect(database.login("wakeful_host"), autocommit=True) as host:
        assert commit(host, "in_progress").wake is not None
        assert wakeful.run(host, wakeful.assign_review("acme", "I-1", "agent:critic")).outcome == "merged"
        for forbidden in ("SELECT FROM wakeful.status_decision", "SELECT wakeful.lock_neighbours('acme', 'I-1')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                host.execute(forbidden)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            host.execute("SELECT wakeful.erase_company('acme')")
    with psycopg.connect(database.login("wakeful_viewer"), autocommit=True) as viewer:
        seen = []
        for company in ("other", "acme"):
            viewer.execute("SELECT set_config('wakeful.company', %s, false)", (company,))
            seen.append(viewer.execute("SELECT count(*) FROM wakeful.status_decision").fetchone())
        assert seen == [(0,), (1,)]
