"""Producers side by side: each waits for the fate of the other's open transaction, and answers by it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest

import wakeful
from wakeful.producers import ProducerResult, Statement
from wakeful.testing import Database, expect_blocked

Conn = psycopg.Connection[Any]
T = TypeVar("T")


def at_once(database: Database, calls: list[Callable[[Conn], T]]) -> list[T]:
    """Run each call in a thread and session of its own, all let go by one barrier."""
    barrier = threading.Barrier(len(calls))
    results: dict[int, T] = {}
    errors: list[BaseException] = []
    sessions = [database.connect() for _ in calls]

    def one(at: int) -> None:
        barrier.wait(30)
        try:
            results[at] = calls[at](sessions[at])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for session in sessions:
        session.close()
    if errors:
        raise errors[0]
    return [results[at] for at in range(len(calls))]


def runs(statement: Statement) -> Callable[[Conn], ProducerResult]:
    return lambda conn: wakeful.run(conn, statement)


@pytest.fixture
def failed_run(conn: Conn, company: str) -> UUID:
    [run] = conn.execute(
        "INSERT INTO wakeful.run (company, agent, state, ended_at)"
        " VALUES ('acme', 'coder', 'failed', now()) RETURNING id"
    ).fetchone()
    return run


def test_twenty_retry_clicks_save_one_wake(database: Database, conn: Conn, failed_run: UUID, listener: Any) -> None:
    clicks = [
        runs(wakeful.request_retry("acme", failed_run, key=f"click {n % 4}" if n % 2 else None)) for n in range(20)
    ]
    results = at_once(database, clicks)
    assert Counter(result.outcome for result in results) == {"inserted": 1, "existing": 19}
    assert len({result.wake for result in results}) == 1
    assert conn.execute("SELECT count(*) FROM wakeful.wake").fetchone() == (1,)
    assert len(listener.heard()) == 1


def test_twenty_requests_under_one_key_make_one_wake(
    database: Database, conn: Conn, company: str, listener: Any
) -> None:
    results = at_once(database, [runs(wakeful.request_wake("acme", "coder", "I-1", key="k"))] * 20)
    assert Counter(result.outcome for result in results) == {"inserted": 1, "existing": 19}
    assert len({result.wake for result in results}) == 1
    assert len(listener.heard()) == 1


@pytest.mark.parametrize("kept", [True, False], ids=["first commits", "first rolls back"])
def test_the_same_key_waits_for_the_others_fate(database: Database, conn: Conn, company: str, kept: bool) -> None:
    first, second = database.connect(autocommit=False), database.connect()
    request = wakeful.request_wake("acme", "coder", key="k")
    one = wakeful.run(first, request)
    with expect_blocked(
        lambda: wakeful.run(second, request), behind=first, watcher=conn, lock="transactionid"
    ) as blocked:
        first.commit() if kept else first.rollback()
        two = blocked.result()
    assert one.outcome == "inserted"
    assert (two.outcome, two.wake == one.wake) == (("existing", True) if kept else ("inserted", False))
    assert conn.execute("SELECT count(*) FROM wakeful.wake").fetchone() == (1,)


@pytest.mark.parametrize("kept", [True, False], ids=["first commits", "first rolls back"])
def test_a_second_retry_waits_for_the_firsts_fate(database: Database, conn: Conn, failed_run: UUID, kept: bool) -> None:
    first, second = database.connect(autocommit=False), database.connect()
    one = wakeful.run(first, wakeful.request_retry("acme", failed_run, key="a"))
    with expect_blocked(
        lambda: wakeful.run(second, wakeful.request_retry("acme", failed_run, key="b")), behind=first, watcher=conn
    ) as blocked:
        first.commit() if kept else first.rollback()
        two = blocked.result()
    assert (two.outcome, two.wake == one.wake) == (("existing", True) if kept else ("inserted", False))
    # The key of a click that lost is not left behind for a wake that is not there.
    keys = conn.execute("SELECT key, wake = %s FROM wakeful.wake_key", (two.wake,)).fetchall()
    assert keys == [("a" if kept else "b", True)]


@pytest.mark.parametrize(
    "again",
    [
        wakeful.add_company("acme2"),
        wakeful.add_project("acme", "p"),
        wakeful.add_agent("acme", "second", ["true"]),
        wakeful.create_issue("acme", "I-1"),
        wakeful.add_spend("acme", 1, key="k"),
        wakeful.set_setting("draining", True),
        wakeful.set_budget("acme", "company", 5),
        wakeful.pause_company("acme"),
        wakeful.pause_agent("acme", "coder"),
    ],
    ids=lambda call: call.function,
)
def test_twins_answer_once_each_way(database: Database, company: str, again: Statement) -> None:
    outcomes = Counter(result.outcome for result in at_once(database, [runs(again)] * 6))
    assert outcomes["existing"] == 5
    assert outcomes["inserted"] + outcomes["merged"] == 1


def test_the_later_contract_of_two_is_the_one_kept(database: Database, conn: Conn, company: str) -> None:
    first, second = database.connect(autocommit=False), database.connect()
    wakeful.run(first, wakeful.add_agent("acme", "new", ["one"]))
    later = wakeful.add_agent("acme", "new", ["two"])
    with expect_blocked(lambda: wakeful.run(second, later), behind=first, watcher=conn) as blocked:
        first.commit()
        assert blocked.result().outcome == "merged"
    assert conn.execute("SELECT command FROM wakeful.agent WHERE id = 'new'").fetchone() == (["two"],)


def test_a_wake_beside_its_issues_first_mention_learns_the_project(
    database: Database, conn: Conn, company: str
) -> None:
    wakeful.run(conn, wakeful.add_project("acme", "p"))
    first, second = database.connect(autocommit=False), database.connect()
    wakeful.run(first, wakeful.create_issue("acme", "I-1", project="p"))
    request = wakeful.request_wake("acme", "coder", "I-1")
    with expect_blocked(lambda: wakeful.run(second, request), behind=first, watcher=conn) as blocked:
        first.commit()
        wake = blocked.result().wake
    assert conn.execute("SELECT project FROM wakeful.wake WHERE id = %s", (wake,)).fetchone() == ("p",)


def test_of_ten_concurrent_spends_past_the_limit_one_pauses_and_signals(
    database: Database, conn: Conn, company: str, listener: Any
) -> None:
    wakeful.run(conn, wakeful.add_project("acme", "p"))
    wakeful.run(conn, wakeful.set_budget("acme", "project:p", 10))
    listener.heard()
    at_once(database, [runs(wakeful.add_spend("acme", Decimal("3.5"), project="p"))] * 10)
    assert listener.gates() == [("eligibility", "project", "p"), ("dispatch", "project", "p")]
    assert conn.execute("SELECT pause_reason FROM wakeful.project").fetchone() == ("budget",)
    assert conn.execute("SELECT sum(amount) FROM wakeful.spend").fetchone() == (Decimal(35),)


def test_a_spend_that_finds_another_open_waits_and_counts_it(database: Database, conn: Conn, company: str) -> None:
    wakeful.run(conn, wakeful.add_project("acme", "p"))
    wakeful.run(conn, wakeful.set_budget("acme", "project:p", 10))
    first, second = database.connect(autocommit=False), database.connect()
    spend = wakeful.add_spend("acme", 6, project="p")
    wakeful.run(first, spend)
    with expect_blocked(lambda: wakeful.run(second, spend), behind=first, watcher=conn) as blocked:
        first.commit()
        blocked.result()
    assert conn.execute("SELECT pause_reason FROM wakeful.project").fetchone() == ("budget",)


def test_raises_and_spends_at_once_leave_the_pause_that_fits_the_sums(
    database: Database, conn: Conn, company: str, listener: Any
) -> None:
    wakeful.run(conn, wakeful.add_project("acme", "p"))
    wakeful.run(conn, wakeful.set_budget("acme", "project:p", 1))
    calls = [wakeful.add_spend("acme", 2, project="p"), wakeful.raise_budget("acme", "project:p", by_amount=2)] * 6
    at_once(database, [runs(call) for call in calls])
    # 12 spent of 13.
    assert conn.execute("SELECT pause_reason FROM wakeful.project").fetchone() == (None,)
    changes = [gate for gate in listener.gates() if gate[1] == "project"]
    assert len(changes) % 4 == 0  # each pause was followed by one resume, two topics each


def test_a_panic_waits_for_a_claim_under_way_and_stops_its_run(database: Database, conn: Conn, company: str) -> None:
    [run] = conn.execute("INSERT INTO wakeful.run (company, agent) VALUES ('acme', 'coder') RETURNING id").fetchone()
    claim, panic = database.connect(autocommit=False), database.connect()
    claim.execute("UPDATE wakeful.run SET state = 'starting', attempt = 1 WHERE id = %s", (run,))
    with expect_blocked(
        lambda: wakeful.run(panic, wakeful.panic_company("acme")), behind=claim, watcher=conn
    ) as blocked:
        claim.commit()
        blocked.result()
    assert conn.execute("SELECT state FROM wakeful.run").fetchone() == ("stopping",)


def test_at_higher_isolation_a_collision_is_the_hosts_to_retry(database: Database, conn: Conn, company: str) -> None:
    from wakeful.database_errors import is_transient
    from wakeful.errors import Conflict

    second = database.connect(autocommit=False)
    second.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    second.execute("SELECT 1 FROM wakeful.company")
    wakeful.run(conn, wakeful.request_wake("acme", "coder", key="k"))
    with pytest.raises(Conflict) as raised:
        wakeful.run(second, wakeful.request_wake("acme", "coder", key="k"))
    assert is_transient(raised.value)
    assert isinstance(raised.value.__cause__, psycopg.errors.SerializationFailure)
    second.rollback()
    assert wakeful.run(second, wakeful.request_wake("acme", "coder", key="k")).outcome == "existing"
