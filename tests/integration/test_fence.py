"""The generation fence, against real transactions that overtake each other."""

from __future__ import annotations

import contextvars
import threading
from typing import Any
from uuid import UUID

import psycopg
import pytest

from wakeful import fence
from wakeful.errors import InvalidInput, RunSuperseded
from wakeful.fence import NO_CLAIM, Claim
from wakeful.testing import Database, expect_blocked

BUMP = "UPDATE wakeful.run SET generation = generation + 1 WHERE id = %s"
WRITE = "UPDATE wakeful.run SET message = 'written' WHERE id = %s"

Conn = psycopg.Connection[Any]


@pytest.fixture
def claim(conn: Conn, company: str) -> Claim:
    """The authority over a running run."""
    row = conn.execute("INSERT INTO wakeful.run (company, agent) VALUES ('acme', 'coder') RETURNING id").fetchone()
    assert row is not None
    conn.execute("UPDATE wakeful.run SET state = 'starting' WHERE id = %s", row)
    conn.execute("UPDATE wakeful.run SET state = 'running' WHERE id = %s", row)
    return Claim(company, row[0], 1)


@pytest.fixture
def writer(database: Database) -> Conn:
    return database.connect()


def message(conn: Conn, run: UUID) -> str | None:
    row = conn.execute("SELECT message FROM wakeful.run WHERE id = %s", (run,)).fetchone()
    assert row is not None
    return row[0]


# ── the lock ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_bump_waits_for_a_writer_past_its_fence(database: Database, conn: Conn, writer: Conn, claim: Claim) -> None:
    bumper = database.connect()
    with (
        fence.commit_under_claim(writer, claim),
        expect_blocked(lambda: bumper.execute(BUMP, (claim.run,)), behind=writer, watcher=conn) as blocked,
    ):
        writer.execute(WRITE, (claim.run,))
        writer.execute("COMMIT")
        blocked.result()
        writer.execute("BEGIN")
    assert message(conn, claim.run) == "written"


def test_a_late_writer_is_refused_and_writes_nothing(conn: Conn, writer: Conn, claim: Claim) -> None:
    conn.execute(BUMP, (claim.run,))
    with pytest.raises(RunSuperseded) as refusal, fence.commit_under_claim(writer, claim):
        writer.execute(WRITE, (claim.run,))
    assert (refusal.value.company, refusal.value.run, refusal.value.generation) == ("acme", claim.run, 1)
    assert message(conn, claim.run) is None
    assert writer.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_writer_that_waited_behind_a_bump_is_refused(
    database: Database, conn: Conn, writer: Conn, claim: Claim
) -> None:
    bumper = database.connect()

    def write() -> None:
        with fence.commit_under_claim(writer, claim):
            writer.execute(WRITE, (claim.run,))

    with bumper.transaction():
        bumper.execute(BUMP, (claim.run,))
        with expect_blocked(write, behind=bumper, watcher=conn) as blocked:
            bumper.execute("COMMIT")
            with pytest.raises(RunSuperseded):
                blocked.result()
            bumper.execute("BEGIN")
    assert message(conn, claim.run) is None


def test_two_writers_of_one_generation_take_turns(database: Database, conn: Conn, writer: Conn, claim: Claim) -> None:
    other = database.connect()

    def write() -> None:
        with fence.commit_under_claim(other, claim):
            other.execute(WRITE, (claim.run,))

    with fence.commit_under_claim(writer, claim), expect_blocked(write, behind=writer, watcher=conn) as blocked:
        writer.execute("COMMIT")
        blocked.result()
        writer.execute("BEGIN")


def test_the_fence_holds_up_no_foreign_key(database: Database, writer: Conn, claim: Claim) -> None:
    """Whoever refers to the run, as a reservation does, need not wait for a writer of it."""
    other = database.connect()
    other.execute("SET lock_timeout = '2s'")
    with fence.commit_under_claim(writer, claim):
        other.execute(
            "INSERT INTO wakeful.reservation (company, run, policy, amount) VALUES ('acme', %s, 'company', 1)",
            (claim.run,),
        )


def test_an_ended_run_refuses_its_own_generation(conn: Conn, writer: Conn, claim: Claim) -> None:
    conn.execute("UPDATE wakeful.run SET state = 'failed', ended_at = now() WHERE id = %s", (claim.run,))
    with pytest.raises(RunSuperseded), fence.commit_under_claim(writer, claim):
        pytest.fail("entered")


@pytest.mark.parametrize("change", [{"company": "other"}, {"run": UUID(int=1)}, {"generation": 2}])
def test_only_the_very_run_and_generation_pass(writer: Conn, claim: Claim, change: dict[str, Any]) -> None:
    fields = {"company": claim.company, "run": claim.run, "generation": claim.generation}
    with pytest.raises(RunSuperseded), fence.commit_under_claim(writer, Claim(**fields | change)):
        pytest.fail("entered")


def test_superseded_is_no_exception_that_a_broad_handler_takes() -> None:
    assert not issubclass(RunSuperseded, Exception)


# ── the transaction ─────────────────────────────────────────────────────────────────────────────────────


def test_outside_a_transaction_it_is_refused(writer: Conn, claim: Claim) -> None:
    with pytest.raises(InvalidInput, match="only inside a transaction"):
        fence.enter(writer, claim)


def test_a_connection_that_opens_transactions_by_itself_is_in_one(database: Database, claim: Claim) -> None:
    implicit = database.connect(autocommit=False)
    fence.enter(implicit, claim)
    assert implicit.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    implicit.rollback()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_another_isolation_level_is_refused(writer: Conn, claim: Claim, level: str) -> None:
    with writer.transaction():
        writer.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        with pytest.raises(InvalidInput, match=level.lower()):
            fence.enter(writer, claim)


def test_an_opened_transaction_is_read_committed_whatever_the_default(conn: Conn, writer: Conn, claim: Claim) -> None:
    writer.execute("SET default_transaction_isolation = 'serializable'")
    writer.isolation_level = None
    with fence.commit_under_claim(writer, claim):
        conn.execute("UPDATE wakeful.company SET name = 'seen'")
        assert writer.execute("SELECT name FROM wakeful.company").fetchone() == ("seen",)


def test_a_joined_transaction_stays_the_callers_to_commit(conn: Conn, writer: Conn, claim: Claim) -> None:
    with writer.transaction():
        with fence.commit_under_claim(writer, claim):
            writer.execute(WRITE, (claim.run,))
        assert message(conn, claim.run) is None
    assert message(conn, claim.run) == "written"


def test_a_failing_block_keeps_nothing(conn: Conn, writer: Conn, claim: Claim) -> None:
    def write() -> None:
        with fence.commit_under_claim(writer, claim):
            writer.execute(WRITE, (claim.run,))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert message(conn, claim.run) is None


def test_no_claim_is_said_aloud_and_fences_nothing(database: Database, conn: Conn, writer: Conn, claim: Claim) -> None:
    conn.execute(BUMP, (claim.run,))
    with fence.commit_under_claim(writer, NO_CLAIM):
        writer.execute(WRITE, (claim.run,))
    assert message(conn, claim.run) == "written"
    with writer.transaction(), pytest.raises(InvalidInput, match="is no claim"):
        fence.enter(writer, None)  # type: ignore[arg-type]  # what a caller without types may do


# ── the walk ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_is_visible_for_its_own_run_only(claim: Claim) -> None:
    assert fence.held("acme", claim.run) is None
    with fence.walking(claim):
        assert fence.held("acme", claim.run) == claim
        assert fence.held("acme", UUID(int=1)) is None
        assert fence.held("other", claim.run) is None
    assert fence.held("acme", claim.run) is None


def test_a_nested_claim_gives_way_to_the_outer_one(claim: Claim) -> None:
    inner = Claim("acme", UUID(int=1), 4)

    def nested() -> None:
        with fence.walking(inner):
            assert fence.held("acme", inner.run) == inner
            assert fence.held("acme", claim.run) is None
            raise ZeroDivisionError

    with fence.walking(claim):
        with pytest.raises(ZeroDivisionError):
            nested()
        assert fence.held("acme", claim.run) == claim


def in_thread(function: Any) -> Any:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(function()), daemon=True)
    contextvars.Context().run(thread.start)
    thread.join(10)
    return answers[0]


def test_a_thread_sees_a_claim_only_if_it_is_handed_over(claim: Claim) -> None:
    def look() -> Claim | None:
        return fence.held("acme", claim.run)

    with fence.walking(claim):
        handed = fence.handed_over(look)
        assert in_thread(look) is None
    assert in_thread(handed) == claim


def test_a_walk_has_one_fenced_transaction_at_a_time(database: Database, writer: Conn, claim: Claim) -> None:
    other = database.connect()
    with fence.walking(claim):
        with writer.transaction():
            fence.enter(writer, claim)
            fence.enter(writer, claim)
            with other.transaction(), pytest.raises(InvalidInput, match="another connection"):
                fence.enter(other, claim)
            handed = fence.handed_over(lambda: refuses(other, claim))
            assert in_thread(handed) is True
        with fence.commit_under_claim(other, claim):
            pass


def refuses(conn: Conn, claim: Claim) -> bool:
    with conn.transaction():
        try:
            fence.enter(conn, claim)
        except InvalidInput:
            return True
    return False


def test_a_lost_connection_does_not_block_the_walk(database: Database, writer: Conn, claim: Claim) -> None:
    lost = database.connect()
    with fence.walking(claim):
        lost.execute("BEGIN")
        fence.enter(lost, claim)
        lost.close()
        with fence.commit_under_claim(writer, claim):
            pass


def test_each_of_several_is_fenced_by_its_own_generation(database: Database, conn: Conn, claim: Claim) -> None:
    rows = conn.execute(
        "INSERT INTO wakeful.run (company, agent) VALUES ('acme', 'coder'), ('acme', 'coder') RETURNING id"
    )
    first, second = (row[0] for row in rows.fetchall())
    conn.execute(BUMP, (second,))
    claims = [Claim("acme", second, 1), Claim("acme", second, 2), claim, Claim("acme", first, 7)]
    with conn.transaction():
        held = fence.enter_each(conn, "acme", claims)
    assert {run: row.generation for run, row in held.items()} == {second: 2, claim.run: 1}
