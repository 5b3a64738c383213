"""The interrupt: a person's command stops the run in the way, and what is saved goes on in that person's name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conftest import Listener
from tests.passes import Held, admission, admit, end, follow, parked, row, runs, start, together
from tests.rows import audits, request, say, wake_of

import wakeful
from wakeful import producers
from wakeful.crash_points import CrashPoint
from wakeful.errors import Conflict, InvalidInput, NotFound
from wakeful.executions import EndClass, Grade, RunKey
from wakeful.results import Conclusion
from wakeful.terminals import Ending, record
from wakeful.testing import Database, HoldAt, expect_blocked

Conn = psycopg.Connection[Any]
ACME, CODER, ANN = "acme", "coder", "user:ann"
GRACE = timedelta(seconds=30)

pytestmark = pytest.mark.usefixtures("assigned")


def save(conn: Conn, id: str = "c-1", author: str = ANN, **more: Any) -> UUID:
    made = wakeful.run(conn, wakeful.save_comment(ACME, "I-1", "words", author, id=id, **more)).wake
    assert made is not None
    return made


def interrupt(conn: Conn, *, actor: str | None = ANN, **more: Any) -> producers.ProducerResult:
    return wakeful.run(conn, wakeful.interrupt_issue(ACME, "I-1", actor=actor, **more))


def working(conn: Conn) -> RunKey:
    """A run that works on the issue."""
    admit(conn, request(conn, "I-1"))
    (key,) = start(conn)
    conn.execute("UPDATE wakeful.run SET state = 'running', started_at = wakeful.now() WHERE id = %s", (key.run,))
    return key


def stop(conn: Conn, key: RunKey, grade: Grade | None = Grade.CONTAINED) -> None:
    """The terminal of a run that was asked to stop."""
    ending = Ending(key, Conclusion("cancelled", EndClass.STOPPED, "run.stopped"), grade=grade, vanished=True)
    record(conn, key.company, [ending], crash=lambda point: None)


def of_run(conn: Conn, run: UUID, *columns: str) -> tuple[Any, ...]:
    found = conn.execute(f"SELECT {', '.join(columns)} FROM wakeful.run WHERE id = %s", (run,)).fetchone()  # noqa: S608 - column names of a test
    assert found is not None
    return found


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_marks_the_receipt_and_asks_the_run_to_stop(conn: Conn, listener: Listener) -> None:
    key, wake = working(conn), save(conn)
    listener.heard()
    made = interrupt(conn, reason="wrong way")
    assert made == producers.ProducerResult("merged", wake, "deferred", key.run)
    saved = wake_of(conn, wake)
    assert (saved.interrupt_by, saved.interrupted_run, saved.owner) == (ANN, key.run, "interrupt")
    assert saved.due_at == saved.interrupt_at + GRACE
    assert saved.grace_from == saved.interrupt_at
    assert (saved.wait_gate, saved.wait_key, saved.wait_reason) == ("execution", "I-1", "execution.live_run")
    [run] = conn.execute(
        "SELECT (state, stop_by, stop_reason, named_wake, teardowns)::text FROM wakeful.run WHERE id = %s", (key.run,)
    ).fetchone()
    assert run == f'(stopping,user:ann,"wrong way",{wake},1)'
    heard = listener.heard()
    assert {(s["t"], s.get("w") or s.get("r")) for s in heard} == {
        ("eligibility", str(wake)),
        ("dispatch", str(key.run)),
    }
    [audit] = conn.execute("SELECT before IS NULL, after FROM wakeful.audit WHERE verb = 'interrupt'").fetchone()[1:]
    assert (audit["wake"], audit["run"], audit["asked"]) == (str(wake), str(key.run), 1)


def test_each_command_asks_a_stopping_run_once_more_up_to_three_times(conn: Conn, listener: Listener) -> None:
    key, wake = working(conn), save(conn)
    outcomes = []
    for _ in range(4):
        listener.heard()
        before = (wake_of(conn, wake), audits(conn))
        outcomes.append(interrupt(conn).outcome)
        asked = [s for s in listener.heard() if s["t"] == "dispatch"]
        assert len(asked) == (outcomes[-1] == "merged")
        if len(outcomes) > 1:
            assert wake_of(conn, wake) == before[0]  # no second grace
    assert outcomes == ["merged", "merged", "merged", "existing"]
    assert (audits(conn), listener.heard()) == (before[1], [])
    assert of_run(conn, key.run, "teardowns") == (3,)


def test_no_look_and_no_signal_spends_an_attempt(conn: Conn, clock: Any, listener: Listener) -> None:
    key, wake = working(conn), save(conn)
    interrupt(conn)
    clock.advance(31)
    listener.heard()
    assert parked(admit(conn, wake), wake) == "execution.live_run"
    assert parked(admit(conn, wake, signalled=True), wake) == "execution.live_run"
    assert listener.heard() == []
    assert of_run(conn, key.run, "teardowns", "state") == (
        1,
        "stopping",
    )


def test_nothing_saved_is_a_conflict_that_names_the_run(conn: Conn) -> None:
    key = working(conn)
    with pytest.raises(Conflict, match="nothing is saved to deliver") as refused:
        interrupt(conn)
    assert str(key.run) in (refused.value.hint or "")
    wake = save(conn)
    conn.execute("UPDATE wakeful.comment SET deleted_at = wakeful.now()")
    with pytest.raises(Conflict, match="nothing is saved to deliver"):
        interrupt(conn)
    assert wake_of(conn, wake).interrupt_at is None
    assert of_run(conn, key.run, "state") == ("running",)


def test_only_the_person_in_whose_name_it_is_saved_may_interrupt(conn: Conn) -> None:
    key, wake = working(conn), save(conn)
    with pytest.raises(Conflict, match="in the name of user:ann; user:bob may not"):
        interrupt(conn, actor="user:bob")
    for nobody in ("agent:coder", None):
        with pytest.raises(Conflict, match="only a person"):
            interrupt(conn, actor=nobody)
    assert (wake_of(conn, wake).interrupt_at, wake_of(conn, wake).version) == (None, 1)
    assert of_run(conn, key.run, "state", "teardowns") == (
        "running",
        0,
    )


def test_the_author_may_interrupt_for_what_a_service_saved(conn: Conn) -> None:
    working(conn)
    wake = save(conn, actor="system:bridge")
    assert interrupt(conn).wake == wake
    with pytest.raises(Conflict, match="only a person"):
        interrupt(conn, actor="system:bridge")


def test_each_person_interrupts_for_their_own(conn: Conn, listener: Listener) -> None:
    key = working(conn)
    anns, bobs = save(conn), save(conn, "c-2", "user:bob")
    assert interrupt(conn, actor="user:bob") == producers.ProducerResult("merged", bobs, "deferred", key.run)
    assert interrupt(conn) == producers.ProducerResult("merged", anns, "deferred", key.run)
    listener.heard()
    stop(conn, key)
    released = {UUID(s["w"]) for s in listener.heard() if s.get("w")}
    assert released == {bobs}  # the first one is named; the gate tells of both
    result = admit(conn, anns, bobs, signalled=True)
    assert (list(result.runs), parked(result, anns)) == ([bobs], "execution.live_run")


def test_which_agents_messages_are_meant(conn: Conn) -> None:
    working(conn)
    wake = save(conn, agent="other")
    with pytest.raises(Conflict, match="agent 'coder'"):
        interrupt(conn)
    assert interrupt(conn, agent="other").wake == wake
    say(conn, producers.assign_issue(ACME, "I-1", "user:ann"))
    with pytest.raises(InvalidInput, match="no agent"):
        interrupt(conn)
    with pytest.raises(NotFound, match="nobody"):
        interrupt(conn, agent="nobody")
    with pytest.raises(NotFound, match="I-404"):
        wakeful.run(conn, wakeful.interrupt_issue(ACME, "I-404", actor=ANN))


def test_without_a_run_there_is_nothing_to_stop_and_it_is_due_now(conn: Conn, listener: Listener) -> None:
    wake = save(conn)
    listener.heard()
    assert interrupt(conn) == producers.ProducerResult("merged", wake, "deferred", None)
    assert row(conn, wake, "due_at <= wakeful.now()", "interrupted_run", "owner") == (True, None, "interrupt")
    assert [s["o"] for s in listener.heard()] == ["interrupt"]
    assert interrupt(conn).outcome == "existing"
    assert listener.heard() == []
    assert admit(conn, wake).runs[wake] == runs(conn)[0]


def test_a_queued_run_ends_at_once_and_hands_its_messages_over(conn: Conn) -> None:
    first = save(conn)
    gone, kept = save(conn, "c-2"), save(conn, "c-3")
    assert gone == kept == first
    queued = admit(conn, first).runs[first]
    wake = save(conn, "c-4")
    conn.execute("UPDATE wakeful.comment SET deleted_at = wakeful.now() WHERE id = 'c-2'")
    assert interrupt(conn) == producers.ProducerResult("merged", wake, "deferred", queued)
    assert of_run(conn, queued, "state", "teardowns") == (
        "cancelled",
        1,
    )
    assert row(conn, wake, "comments", "due_at <= wakeful.now()") == (["c-1", "c-3", "c-4"], True)
    run = admit(conn, wake).runs[wake]
    assert of_run(conn, run, "comments", "authority") == (
        ["c-1", "c-3", "c-4"],
        ANN,
    )


# ── no payload can claim one ────────────────────────────────────────────────────────────────────────────

KEPT = {"keep": {"interrupt": 1}}
CLAIM = {"interrupt": {"actorId": "eve"}, "interrupt_by": "user:eve", "queuedCommentInterrupt": 1} | KEPT


def test_a_marker_in_a_payload_is_stripped_at_every_door_and_said_so(conn: Conn, failed_run: UUID) -> None:
    warnings: list[str] = []
    conn.add_notice_handler(lambda diagnostic: warnings.append(diagnostic.message_primary or ""))
    doors = [
        producers.request_wake(ACME, CODER, "I-2", payload=CLAIM),
        producers.request_wake(ACME, CODER, "I-2", payload=CLAIM, kind="theirs", at=None, priority=3),
        producers.request_retry(ACME, failed_run, payload=CLAIM),
    ]
    for statement in doors:
        wake = wakeful.run(conn, statement).wake
        assert row(conn, wake, "payload", "interrupt_at", "owner <> 'interrupt'") == (KEPT, None, True)
        assert "claims an interrupt" in warnings.pop()
        [told] = conn.execute(
            "SELECT before FROM wakeful.audit WHERE verb = 'strip' AND target = %s", (f"wake:{wake}",)
        ).fetchone()
        assert sorted(told["payload keys"]) == ["interrupt", "interrupt_by", "queuedCommentInterrupt"]
    assert warnings == []


@pytest.mark.parametrize("payload", [["interrupt"], "interrupt", {"text": "interrupt"}, None])
def test_what_only_looks_like_a_marker_is_left_alone(conn: Conn, payload: Any) -> None:
    before = audits(conn)
    wake = request(conn, "I-2", payload=payload)
    assert row(conn, wake, "payload") == (payload,)
    assert audits(conn) == before + 1


def test_what_a_run_asks_for_next_cannot_claim_an_interrupt(conn: Conn) -> None:
    from wakeful.follow_ups import NextWake

    key = working(conn)
    conclusion = Conclusion("succeeded", EndClass.OK, "run.ok", next_wake=NextWake(at=key_time(conn), payload=CLAIM))
    record(conn, ACME, [Ending(key, conclusion, grade=Grade.CONTAINED)], crash=lambda point: None)
    assert conn.execute("SELECT payload FROM wakeful.wake WHERE source = 'timer'").fetchone() == (KEPT,)


def key_time(conn: Conn) -> Any:
    return conn.execute("SELECT wakeful.now()").fetchone()[0]


# ── how it goes on ──────────────────────────────────────────────────────────────────────────────────────


def test_it_waits_for_the_end_the_proof_and_the_cleanup_and_becomes_one_run(conn: Conn, listener: Listener) -> None:
    key, wake = working(conn), save(conn)
    say(conn, producers.open_lease(ACME, "sandbox", "I-1", run=key.run))
    interrupt(conn)
    listener.heard()
    stop(conn, key, grade=None)
    assert row(conn, wake, "due_at <= wakeful.now()") == (True,)
    assert parked(admit(conn, wake), wake) == "execution.unproven"
    conn.execute("UPDATE wakeful.issue SET execution_run = NULL, execution_locked_at = NULL")  # the proof
    say(conn, producers.signal_gate(ACME, "execution", "I-1"))
    assert follow(conn, listener.heard()) == [wake]
    assert parked(admit(conn, wake, signalled=True), wake) == "execution.environment"
    say(conn, producers.close_lease(ACME, "sandbox"))
    assert follow(conn, listener.heard()) == [wake]
    run = admit(conn, wake, signalled=True).runs[wake]
    assert runs(conn, "wake = %s", wake) == [run]
    ended = wake_of(conn, wake)
    assert (ended.interrupt_by, ended.interrupted_run, ended.state) == (ANN, key.run, "linked")


def test_after_its_grace_and_one_look_it_is_silent(conn: Conn, clock: Any) -> None:
    _, wake = working(conn), save(conn)
    interrupt(conn)
    clock.advance(29)
    admit(conn, wake)
    assert row(conn, wake, "due_at > wakeful.now()") == (True,)
    clock.advance(2)
    before = wake_of(conn, wake)
    assert parked(admit(conn, wake), wake) == "execution.live_run"
    after = wake_of(conn, wake)
    assert (after.due_at, after.grace_from, after.version) == (None, before.grace_from, before.version)


def test_what_nobody_has_looked_at_yet_has_the_one_grace_of_the_command(conn: Conn, clock: Any) -> None:
    """It was due when another run came first."""
    wake = save(conn)
    key = working(conn)
    interrupt(conn)
    assert row(conn, wake, "wait_gate", "wait_reason", "wait_since = interrupt_at") == (
        *("execution", "execution.live_run", True),
    )
    clock.advance(31)
    assert parked(admit(conn, wake), wake) == "execution.live_run"
    assert row(conn, wake, "due_at", "grace_from = interrupt_at") == (None, True)
    stop(conn, key)
    assert len(admit(conn, wake).runs) == 1


def test_messages_are_read_again_at_admission(conn: Conn) -> None:
    key, wake = working(conn), save(conn)
    save(conn, "c-2")
    interrupt(conn)
    conn.execute("UPDATE wakeful.comment SET deleted_at = wakeful.now() WHERE id = 'c-1'")
    stop(conn, key)
    run = admit(conn, wake).runs[wake]
    assert of_run(conn, run, "comments", "authority") == (
        ["c-2"],
        ANN,
    )


def test_edits_and_discards_between_the_command_and_the_delivery_count(conn: Conn) -> None:
    key, wake = working(conn), save(conn)
    save(conn, "c-2")
    interrupt(conn)
    say(
        conn,
        producers.discard_comment(ACME, "c-1", 1, actor=ANN),
        producers.edit_comment(ACME, "c-2", "new", 1, actor=ANN),
    )
    stop(conn, key)
    run = admit(conn, wake).runs[wake]
    assert of_run(conn, run, "comments", "authority") == (["c-2"], ANN)


def test_discarding_the_last_one_takes_the_interrupted_receipt_back(conn: Conn, listener: Listener) -> None:
    key, wake = working(conn), save(conn)
    interrupt(conn)
    say(conn, producers.discard_comment(ACME, "c-1", 1, actor=ANN))
    before = wake_of(conn, wake)
    assert (before.state, before.interrupt_by, before.interrupted_run) == ("cancelled", ANN, key.run)
    listener.heard()
    stop(conn, key)
    assert (wake_of(conn, wake), [s for s in listener.heard() if s.get("w")]) == (before, [])


def test_an_emptied_queue_is_cancelled(conn: Conn) -> None:
    key, wake = working(conn), save(conn)
    interrupt(conn)
    conn.execute("UPDATE wakeful.comment SET deleted_at = wakeful.now()")
    stop(conn, key)
    admit(conn, wake)
    assert row(conn, wake, "state", "interrupt_by") == ("cancelled", ANN)


def test_a_marker_of_somebody_who_is_no_longer_the_authority_gives_no_right(conn: Conn) -> None:
    """The service's receipt has two people's words by now; the last of them is the authority."""
    key = working(conn)
    wake = save(conn, actor="system:bridge")
    interrupt(conn)
    assert save(conn, "c-2", "user:bob", actor="system:bridge") == wake
    stop(conn, key)
    run = admit(conn, wake).runs[wake]
    assert of_run(conn, run, "comments", "authority") == (
        ["c-1", "c-2"],
        "user:bob",
    )


def test_the_new_authority_may_interrupt_anew(conn: Conn) -> None:
    key = working(conn)
    wake = save(conn, actor="system:bridge")
    interrupt(conn)
    save(conn, "c-2", "user:bob", actor="system:bridge")
    with pytest.raises(Conflict, match="user:bob"):
        interrupt(conn)
    assert interrupt(conn, actor="user:bob") == producers.ProducerResult("merged", wake, "deferred", key.run)
    assert row(conn, wake, "interrupt_by", "due_at = interrupt_at + interval '30 seconds'") == ("user:bob", True)


# ── several at once ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first_is", ["the interrupt", "the end"])
def test_an_interrupt_and_the_runs_end_meet_in_both_orders(conn: Conn, database: Database, first_is: str) -> None:
    key, wake = working(conn), save(conn)
    first, second = database.connect(), database.connect()

    def end_it(on: Conn) -> None:
        end(on, key)

    works = (interrupt, end_it) if first_is == "the interrupt" else (end_it, interrupt)
    with first.transaction():
        works[0](first)
        with expect_blocked(lambda: works[1](second), behind=first, watcher=conn) as blocked:
            first.execute("COMMIT")
            blocked.result()
    assert of_run(conn, key.run, "state") == ("failed",)
    assert row(conn, wake, "interrupt_by", "interrupted_run IS NULL") == (ANN, first_is == "the end")
    assert len(admit(conn, wake, signalled=True).runs) == 1


def test_a_run_that_is_admitted_while_the_issue_is_awaited_is_stopped_too(conn: Conn, database: Database) -> None:
    """It did not live when the command began; the command lets the issue go, and takes it up again."""
    plain = request(conn, "I-1")
    wake = save(conn)
    first, second, watcher = database.connect(), database.connect(), database.connect()
    with first.transaction():
        first.execute("SELECT FROM wakeful.issue WHERE id = 'I-1' FOR NO KEY UPDATE")
        with expect_blocked(lambda: interrupt(second), behind=first, watcher=watcher) as blocked:
            text = (
                "INSERT INTO wakeful.run (company, agent, issue, wake) VALUES ('acme', 'coder', 'I-1', %s) RETURNING id"
            )
            [run] = first.execute(text, (plain,)).fetchone()
            first.execute("COMMIT")
            assert blocked.result() == producers.ProducerResult("merged", wake, "deferred", run)
    assert of_run(conn, run, "state") == ("cancelled",)


def test_of_many_interrupts_at_once_three_ask(conn: Conn, database: Database) -> None:
    key, wake = working(conn), save(conn)
    sessions = [database.connect() for _ in range(6)]
    results = together(*(lambda on=on: interrupt(on) for on in sessions))  # type: ignore[misc]  # mypy cannot infer such a lambda
    assert sorted(result.outcome for result in results) == ["existing"] * 3 + ["merged"] * 3
    assert {(result.wake, result.run) for result in results} == {(wake, key.run)}
    assert (of_run(conn, key.run, "teardowns"), row(conn, wake, "version")) == ((3,), (2,))


def test_a_claim_and_an_interrupt_meet_in_both_orders(conn: Conn, database: Database) -> None:
    admit(conn, request(conn, "I-1"))
    wake = save(conn)
    hold, claimer, second = HoldAt(CrashPoint.CLAIM_BEFORE_COMMIT), database.connect(), database.connect()
    claim = Held(lambda: start(claimer, crash=hold))
    hold.wait_reached()
    with expect_blocked(lambda: interrupt(second), behind=claimer, watcher=conn) as blocked:
        hold.release()
        (key,) = claim.result()
        made = blocked.result()
    assert made == producers.ProducerResult("merged", wake, "deferred", key.run)
    assert of_run(conn, key.run, "state", "named_wake") == ("stopping", wake)
    stop(conn, key)
    # The other way round: the run of the messages is queued, and more messages interrupt it.
    queued = admit(conn, wake).runs[wake]
    more = save(conn, "c-2")
    with second.transaction():
        assert interrupt(second).run == queued
        assert start(claimer) == ()
    assert row(conn, more, "comments") == (["c-1", "c-2"],)


def test_an_admission_and_an_interrupt_meet_in_both_orders(conn: Conn, database: Database) -> None:
    wake = save(conn)
    first, second = database.connect(), database.connect()
    with first.transaction():
        assert interrupt(first).wake == wake
        with expect_blocked(lambda: admit(second, wake), behind=first, watcher=conn) as blocked:
            first.execute("COMMIT")
            [run] = blocked.result().runs.values()
    assert of_run(conn, run, "authority", "state") == (ANN, "queued")
    wakeful.run(conn, wakeful.stop_run(ACME, run))
    late = save(conn, "c-2")
    hold = HoldAt(CrashPoint.ADMISSION_BEFORE_COMMIT)
    admitting = Held(lambda: admit(first, late, by=admission(crash=hold)))
    hold.wait_reached()
    with expect_blocked(lambda: interrupt(second), behind=first, watcher=conn) as blocked:
        hold.release()
        assert len(admitting.result().runs) == 1
        with pytest.raises(Conflict, match="nothing is saved to deliver"):
            blocked.result()


def test_a_pass_says_whose_window_tells_of_a_marked_receipts_next_deadline(conn: Conn) -> None:
    working(conn)
    marked, plain = save(conn), request(conn, "I-1")
    interrupt(conn)
    assert admit(conn, marked, plain, signalled=True).timers == {marked: "interrupt"}


def test_what_a_limit_put_off_is_handed_over_by_the_run_that_was_to_stop(conn: Conn) -> None:
    say(conn, producers.add_agent(ACME, CODER, ["true"], provider="p"))
    first = save(conn, "c-1")
    admit(conn, first)
    (key,) = start(conn)
    conn.execute("UPDATE wakeful.run SET state = 'running', started_at = wakeful.now() WHERE id = %s", (key.run,))
    wake = save(conn, "c-2")
    interrupt(conn)
    [until] = conn.execute("SELECT wakeful.wall() + interval '1 hour'").fetchone()
    limited = Conclusion("failed", EndClass.PROVIDER_LIMITED, "run.provider_limited", limited_until=until)
    record(conn, ACME, [Ending(key, limited, grade=Grade.CONTAINED)], crash=lambda point: None)
    assert row(conn, wake, "comments") == (["c-1", "c-2"],)
    assert conn.execute("SELECT count(*) FROM wakeful.wake WHERE ended_at IS NULL").fetchone() == (1,)
    assert parked(admit(conn, wake, signalled=True), wake) == "provider.limited"


def test_so_is_a_cards_answer(conn: Conn) -> None:
    say(
        conn,
        producers.add_agent(ACME, CODER, ["true"], provider="p"),
        wakeful.create_card(ACME, "I-1", CODER, "?", id="k"),
    )
    answer = wakeful.run(conn, wakeful.answer_card(ACME, "k", "yes", actor=ANN)).wake
    assert answer is not None
    admit(conn, answer)
    (key,) = start(conn)
    conn.execute("UPDATE wakeful.run SET state = 'running', started_at = wakeful.now() WHERE id = %s", (key.run,))
    wake = save(conn)
    interrupt(conn)
    [until] = conn.execute("SELECT wakeful.wall() + interval '1 hour'").fetchone()
    limited = Conclusion("failed", EndClass.PROVIDER_LIMITED, "run.provider_limited", limited_until=until)
    record(conn, ACME, [Ending(key, limited, grade=Grade.CONTAINED)], crash=lambda point: None)
    left = conn.execute(
        "SELECT kind, rearm_of FROM wakeful.wake WHERE ended_at IS NULL AND id <> %s", (wake,)
    ).fetchall()
    assert left == [("card", answer)]
