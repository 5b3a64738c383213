"""The release of one receipt by name: a run, or an error that says whether this very call saved the wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.passes import admission, admit, row, runs
from tests.rows import request, say, wake_of

from wakeful import producers, release
from wakeful.errors import Conflict, NotFound, PersistedWaitRefusal, WaitRefusal, WakefulError
from wakeful.outcomes import Refusal
from wakeful.receipts import Fact
from wakeful.testing import Database, VirtualClock

Conn = psycopg.Connection[Any]
ACME, CODER = "acme", "coder"

pytestmark = pytest.mark.usefixtures("web")


def released(conn: Conn, wake: UUID, gate: Any = None) -> UUID:
    return release.release(admission(gates=[gate] if gate else []), conn, ACME, wake)


def recovered(conn: Conn, wake: UUID, gate: Any = None) -> Any:
    return release.recover(admission(gates=[gate] if gate else []), conn, ACME, wake)


@pytest.fixture
def closed(conn: Conn) -> UUID:
    """A wake behind a gate that nobody has looked at yet."""
    wake = request(conn)
    say(conn, producers.pause_agent(ACME, CODER))
    return wake


class Raising:
    """A host's gate that raises."""

    kind = "theirs"
    opens_on = "nothing"

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def judge(self, conn: Conn, facts: Sequence[Fact]) -> Sequence[Refusal | None]:
        raise self._error


def refusal(kind: type[WaitRefusal]) -> WaitRefusal:
    return kind("not now", gate="theirs", key="k", reason="theirs.no", opens_on="them")


# ── a run ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_receipt_becomes_its_run_whatever_its_deadline(conn: Conn) -> None:
    wake = request(conn, at=datetime.now(UTC) + timedelta(days=1))
    assert admit(conn, wake).runs == {}
    run = released(conn, wake)
    assert runs(conn, "wake = %s", wake) == [run]
    assert released(conn, wake) == run  # asked again after an answer that got lost
    assert runs(conn) == [run]


# ── a closed gate ───────────────────────────────────────────────────────────────────────────────────────


def test_a_closed_gate_is_refused_and_says_that_the_wait_was_saved(conn: Conn, closed: UUID) -> None:
    with pytest.raises(PersistedWaitRefusal, match="agent coder is paused") as refused:
        released(conn, closed)
    plain = refusal(WaitRefusal)
    assert (refused.value.code, refused.value.slug) == (plain.code, plain.slug) == (4, "refused")
    details = {
        "gate": "agent",
        "key": "coder",
        "reason": "agent.paused_manual",
        "opens_on": "wakeful resume agent coder",
    }
    assert refused.value.as_json().items() >= details.items()
    saved = wake_of(conn, closed)
    assert (saved.wait_gate, saved.wait_reason, saved.version, saved.failures) == ("agent", "agent.paused_manual", 2, 0)
    assert saved.due_at - saved.grace_from <= timedelta(seconds=30)


def test_the_same_reason_again_saves_nothing_and_says_so(conn: Conn, closed: UUID, clock: VirtualClock) -> None:
    with pytest.raises(PersistedWaitRefusal):
        released(conn, closed)
    before = wake_of(conn, closed)
    with pytest.raises(WaitRefusal, match="agent coder is paused") as refused:
        released(conn, closed)
    assert not isinstance(refused.value, PersistedWaitRefusal)
    assert wake_of(conn, closed) == before
    clock.advance(31)
    with pytest.raises(WaitRefusal) as refused:
        released(conn, closed)
    assert not isinstance(refused.value, PersistedWaitRefusal)
    assert row(conn, closed, "due_at", "version") == (None, before.version)
    say(conn, producers.pause_company(ACME))
    with pytest.raises(PersistedWaitRefusal, match="the company is paused"):
        released(conn, closed)


def test_a_wait_that_the_row_did_not_take_was_not_saved(conn: Conn, closed: UUID) -> None:
    on_the_wait(conn, "RETURN NULL")
    with pytest.raises(WaitRefusal, match="agent coder is paused") as refused:
        released(conn, closed)
    assert not isinstance(refused.value, PersistedWaitRefusal)
    assert row(conn, closed, "wait_reason", "version") == (None, 1)


# ── no gate's answer ────────────────────────────────────────────────────────────────────────────────────


def test_what_has_ended_is_a_conflict_with_its_state(conn: Conn) -> None:
    wake = request(conn)
    say(conn, producers.retire_wake(ACME, wake))
    with pytest.raises(Conflict, match="has ended, cancelled"):
        released(conn, wake)
    ends_now = request(conn)
    say(conn, producers.set_issue_status(ACME, "I-1", "done"))
    with pytest.raises(Conflict, match="has ended, retired"):
        released(conn, ends_now)
    with pytest.raises(NotFound):
        released(conn, uuid4())


def test_a_row_that_somebody_holds_is_a_named_conflict(conn: Conn, database: Database) -> None:
    wake, holder = request(conn), database.connect()
    with holder.transaction():
        holder.execute("SELECT FROM wakeful.wake WHERE id = %s FOR NO KEY UPDATE", (wake,))
        with pytest.raises(Conflict, match="somebody else is working on wake"):
            released(conn, wake)
        result = recovered(conn, wake)
    assert (result.busy, result.set_aside, row(conn, wake, "failures")) == ({wake}, {}, (0,))
    assert released(conn, wake) == runs(conn)[0]


def test_a_draining_instance_admits_nothing(conn: Conn) -> None:
    wake = request(conn)
    say(conn, producers.set_setting("draining", True))
    with pytest.raises(Conflict, match="drains"):
        released(conn, wake)
    assert runs(conn) == []


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("kind = 'native_status', state = 'queued'", "is an intent, queued"),
        ("kind = 'task_retry', chat_action = id::text", "waits for its chat action"),
    ],
)
def test_intents_and_chat_settlements_never_come_this_way(conn: Conn, columns: str, words: str) -> None:
    wake = request(conn)
    conn.execute("ALTER TABLE wakeful.wake DISABLE TRIGGER wake_step")
    conn.execute(f"UPDATE wakeful.wake SET {columns} WHERE id = %s", (wake,))  # noqa: S608 - this test's own
    before = wake_of(conn, wake)
    with pytest.raises(Conflict, match=words):
        released(conn, wake)
    assert wake_of(conn, wake) == before


@pytest.mark.parametrize("error", [refusal(WaitRefusal), Conflict("elsewhere"), refusal(PersistedWaitRefusal)])
def test_a_409_from_elsewhere_claims_no_saved_wait(conn: Conn, error: WakefulError) -> None:
    wake = request(conn)
    with pytest.raises((WaitRefusal, Conflict)) as refused:
        released(conn, wake, Raising(error))
    assert not isinstance(refused.value, PersistedWaitRefusal)
    assert row(conn, wake, "wait_reason", "version", "failures") == (None, 1, 0)


# ── on an owner's behalf ────────────────────────────────────────────────────────────────────────────────


def test_a_saved_wait_is_parked_quietly_and_is_no_failure(conn: Conn, closed: UUID, clock: VirtualClock) -> None:
    result = recovered(conn, closed)
    assert (result.set_aside, result.saved) == ({}, {closed})
    assert row(conn, closed, "failures", "error", "wait_reason") == (0, None, "agent.paused_manual")
    clock.advance(31)
    admit(conn, closed)  # the one look after the one grace
    assert row(conn, closed, "due_at", "failures", "version") == (None, 0, 2)


@pytest.mark.parametrize("error", [refusal(WaitRefusal), Conflict("elsewhere"), refusal(PersistedWaitRefusal)])
def test_any_other_409_is_a_failure_with_backoff(conn: Conn, error: WakefulError) -> None:
    wake = request(conn)
    result = recovered(conn, wake, Raising(error))
    failures, said, due, wait = row(conn, wake, "failures", "error", "due_at", "wait_reason")
    assert (failures, wait, result.set_aside) == (1, None, {wake: due})
    assert str(error) in said
    recovered(conn, wake, Raising(error))
    assert row(conn, wake, "failures") == (2,)


def test_an_unsaved_wait_is_a_failure_with_backoff(conn: Conn, closed: UUID) -> None:
    on_the_wait(conn, "RETURN NULL")
    recovered(conn, closed)
    assert row(conn, closed, "failures", "wait_reason", "due_at > wakeful.now()") == (1, None, True)


def test_a_wait_whose_write_fails_keeps_its_backoff(conn: Conn, closed: UUID) -> None:
    on_the_wait(conn, "RAISE EXCEPTION 'the disk of that row is gone'")
    with pytest.raises(psycopg.errors.RaiseException, match="gone"):
        released(conn, closed)
    for failures in (1, 2):
        recovered(conn, closed)
        assert row(conn, closed, "failures", "wait_reason", "due_at > wakeful.now()") == (failures, None, True)
        assert "the disk of that row is gone" in row(conn, closed, "error")[0]
    as_owner(conn, "DROP TRIGGER on_the_wait ON wakeful.wake")
    recovered(conn, closed)
    assert row(conn, closed, "failures", "error", "wait_reason") == (0, None, "agent.paused_manual")


def test_a_lost_connection_is_the_callers(conn: Conn) -> None:
    wake = request(conn)
    with pytest.raises(psycopg.OperationalError):
        recovered(conn, wake, Raising(psycopg.OperationalError("cut")))
    assert row(conn, wake, "failures") == (0,)


def test_a_release_that_ends_its_receipt_is_no_failure(conn: Conn) -> None:
    wake = request(conn)
    say(conn, producers.set_issue_status(ACME, "I-1", "done"))
    assert recovered(conn, wake).set_aside == {}
    assert row(conn, wake, "state", "failures") == ("retired", 0)


def test_a_gate_that_opens_while_the_wait_is_written_lets_it_through(
    conn: Conn, closed: UUID, database: Database
) -> None:
    other = database.connect()
    opened: list[Callable[[], None]] = [lambda: say(other, producers.resume_agent(ACME, CODER))]

    def crash(point: str) -> None:
        if opened:
            opened.pop()()

    run = release.release(admission(crash=crash), conn, ACME, closed)
    assert runs(conn, "wake = %s", closed) == [run]


def on_the_wait(conn: Conn, does: str) -> None:
    """A trigger that fires when a wait is written, and only then."""
    as_owner(
        conn,
        f"CREATE FUNCTION wakeful.on_the_wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does}; END $$",
        "CREATE TRIGGER on_the_wait BEFORE UPDATE ON wakeful.wake FOR EACH ROW"
        " WHEN (OLD.wait_reason IS DISTINCT FROM NEW.wait_reason) EXECUTE FUNCTION wakeful.on_the_wait()",
    )


def as_owner(conn: Conn, *statements: str) -> None:
    with conn.transaction():
        conn.execute("SET LOCAL ROLE wakeful_owner")
        for statement in statements:
            conn.execute(statement)  # type: ignore[call-overload]  # a test's own words
