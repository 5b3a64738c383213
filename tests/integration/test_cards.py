"""Cards: an answer is a wake of its own, in the answerer's name, and stands while the card has its status."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.conftest import Listener
from tests.passes import admit, end, follow, parked, row, runs, start
from tests.rows import audits, say
from tests.saved import busy, given, save, started

import wakeful
from wakeful.errors import Conflict, InvalidInput, NotFound
from wakeful.producers import ProducerResult, Statement
from wakeful.testing import Database, expect_blocked

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("web")


def ask(conn: Conn, id: str = "k-1", **more: Any) -> ProducerResult:
    return wakeful.run(conn, wakeful.create_card("acme", "I-1", "coder", {"text": "Ship it?"}, id=id, **more))


def answer(status: str = "accepted", words: Any = "yes", card: str = "k-1", actor: str = "user:ann") -> Statement:
    return wakeful.answer_card("acme", card, words, status=status, actor=actor)


def card(conn: Conn, id: str = "k-1") -> Any:
    return conn.execute(
        "SELECT status, answer, answered_by, ended_at IS NOT NULL FROM wakeful.card WHERE id = %s", (id,)
    ).fetchone()


def test_an_answer_for_an_agent_that_lost_the_issue_waits_for_its_return_or_ends_with_the_assignees_run(
    conn: Conn, listener: Listener
) -> None:
    say(conn, wakeful.create_card("acme", "I-1", "other", {"text": "Ship it?"}, id="k-1"))
    say(conn, wakeful.assign_issue("acme", "I-1", "agent:coder"))
    conn.execute("UPDATE wakeful.wake SET due_at = NULL")
    wake = wakeful.run(conn, answer()).wake
    assert parked(admit(conn, wake), wake) == "issue.assignee"
    key = busy(conn)
    listener.heard()
    end(conn, key)
    assert wake in follow(conn, listener.heard())
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "state", "reason") == ("cancelled", "card.reassigned")


def test_a_card_waits_for_its_answer_and_wakes_nobody(conn: Conn, listener: Listener) -> None:
    assert ask(conn) == ProducerResult("inserted", None, "pending", None)
    assert card(conn) == ("pending", None, None, False)
    before = audits(conn)
    assert ask(conn) == ProducerResult("existing", None, "pending", None)
    assert (audits(conn), listener.heard()) == (before, [])


@pytest.mark.parametrize("status", ["answered", "accepted", "rejected"])
def test_an_answer_wakes_the_agent_that_asked_in_the_answerers_name(
    conn: Conn, listener: Listener, status: str
) -> None:
    ask(conn)
    answered = wakeful.run(conn, answer(status))
    assert (answered.outcome, answered.state) == ("inserted", "deferred")
    what = row(conn, answered.wake, "kind", "owner", "agent", "issue", "card", "card_status", "source", "comments")
    assert what == ("card", "saved_comments", "coder", "I-1", "k-1", status, "on_demand", [])
    [signal] = listener.heard()
    assert (signal["w"], signal["o"]) == (str(answered.wake), "saved_comments")
    assert card(conn) == (status, "yes", "user:ann", True)
    assert given(conn, admit(conn, answered.wake).runs[answered.wake]) == ([], "user:ann")


def test_the_same_answer_again_changes_nothing_and_another_is_a_conflict(conn: Conn, listener: Listener) -> None:
    ask(conn)
    first = wakeful.run(conn, answer())
    before = (audits(conn), row(conn, first.wake, "to_jsonb(wake)"))
    listener.heard()
    assert wakeful.run(conn, answer()) == ProducerResult("existing", first.wake, "deferred", None)
    for other in (answer("rejected"), answer(words="no")):
        with pytest.raises(Conflict, match="card 'k-1' is accepted by user:ann"):
            wakeful.run(conn, other)
    assert (audits(conn), row(conn, first.wake, "to_jsonb(wake)"), listener.heard()) == (*before, [])


def test_it_is_merged_neither_with_comments_nor_with_another_card(conn: Conn) -> None:
    ask(conn)
    ask(conn, "k-2")
    conn.execute("UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = 'coder' WHERE id = 'I-1'")
    wakes = [
        save(conn, "c-1").wake,
        wakeful.run(conn, answer()).wake,
        wakeful.run(conn, answer(card="k-2")).wake,
        save(conn, "c-2").wake,
    ]
    assert (len(set(wakes)), wakes[0] == wakes[3]) == (3, True)
    for wake in dict.fromkeys(wakes):
        key = started(conn, wake, signalled=True)
        end(conn, key, "succeeded")
    assert len(runs(conn)) == 3


def test_a_turn_that_is_running_does_not_swallow_it(conn: Conn, listener: Listener) -> None:
    key = busy(conn)
    ask(conn)
    listener.heard()
    wake = wakeful.run(conn, answer()).wake
    assert wake is not None
    assert row(conn, wake, "wait_reason", "due_at", "owner") == ("execution.live_run", None, "execution_wait")
    assert listener.heard() == []
    end(conn, key)
    assert follow(conn, listener.heard()) == [wake]
    assert admit(conn, wake, signalled=True).runs.keys() == {wake}


def test_an_interrupt_that_stops_its_queued_run_loses_no_answer(conn: Conn) -> None:
    ask(conn)
    first = wakeful.run(conn, answer()).wake
    assert first is not None
    run = admit(conn, first).runs[first]
    conn.execute("UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = 'coder' WHERE id = 'I-1'")
    words = save(conn, "c-1").wake
    wakeful.run(conn, wakeful.interrupt_issue("acme", "I-1", actor="user:ann"))
    assert conn.execute("SELECT state FROM wakeful.run WHERE id = %s", (run,)).fetchone() == ("cancelled",)
    ((again, root),) = conn.execute("SELECT id, effect_root FROM wakeful.wake WHERE rearm_of = %s", (first,)).fetchall()
    assert root == first
    end(conn, started(conn, words), "succeeded")
    key = started(conn, again)
    assert given(conn, key.run) == ([], "user:ann")


@pytest.mark.parametrize("to", ["withdrawn", "rejected"])
def test_an_answer_does_not_stand_when_the_card_changed(conn: Conn, to: str) -> None:
    ask(conn)
    wake = wakeful.run(conn, answer()).wake
    assert wake is not None
    conn.execute("UPDATE wakeful.card SET status = %s", (to,))
    assert admit(conn, wake).runs == {}
    assert row(conn, wake, "state", "reason") == ("cancelled", "card.changed")


def test_a_card_that_is_gone_makes_its_answer_unusable(conn: Conn) -> None:
    ask(conn)
    wake = wakeful.run(conn, answer()).wake
    assert wake is not None
    conn.execute("DELETE FROM wakeful.card")
    admit(conn, wake)
    assert row(conn, wake, "state", "reason") == ("failed", "card.gone")


def test_a_withdrawn_card_wakes_nobody(conn: Conn, listener: Listener) -> None:
    ask(conn)
    withdraw = wakeful.withdraw_card("acme", "k-1", actor="user:ann")
    assert wakeful.run(conn, withdraw) == ProducerResult("merged", None, "withdrawn", None)
    before = audits(conn)
    assert wakeful.run(conn, withdraw) == ProducerResult("existing", None, "withdrawn", None)
    assert (audits(conn), listener.heard()) == (before, [])
    with pytest.raises(Conflict, match="card 'k-1' is withdrawn"):
        wakeful.run(conn, answer())


def test_withdrawing_takes_back_an_answer_that_waits(conn: Conn) -> None:
    ask(conn)
    wake = wakeful.run(conn, answer()).wake
    assert wake is not None
    assert wakeful.run(conn, wakeful.withdraw_card("acme", "k-1")) == ProducerResult("merged", wake, "withdrawn", None)
    assert row(conn, wake, "state", "reason") == ("cancelled", "card.changed")


def test_withdrawing_ends_the_queued_run_and_comes_too_late_for_a_claimed_one(conn: Conn, listener: Listener) -> None:
    for id, claimed in (("k-1", False), ("k-2", True)):
        ask(conn, id)
        wake = wakeful.run(conn, answer(card=id)).wake
        assert wake is not None
        run = admit(conn, wake).runs[wake]
        keys = start(conn) if claimed else ()
        listener.heard()
        withdraw = wakeful.withdraw_card("acme", id)
        if claimed:
            with pytest.raises(Conflict, match="the answer of card k-2 is already dispatching"):
                wakeful.run(conn, withdraw)
            end(conn, keys[0])
            with pytest.raises(Conflict, match="its answer was given to run"):
                wakeful.run(conn, withdraw)
        else:
            assert wakeful.run(conn, withdraw).run == run
            state = conn.execute("SELECT state, reason FROM wakeful.run WHERE id = %s", (run,)).fetchone()
            assert state == ("cancelled", "card.changed")
    assert [status for (status,) in conn.execute("SELECT status FROM wakeful.card ORDER BY id")] == [
        "withdrawn",
        "accepted",
    ]


def test_a_newer_card_takes_the_place_of_an_older_one(conn: Conn) -> None:
    ask(conn)
    assert ask(conn, "k-2", supersedes="k-1").outcome == "inserted"
    assert card(conn)[0] == "superseded"
    for refused in (answer(), wakeful.withdraw_card("acme", "k-1")):
        with pytest.raises(Conflict, match="card 'k-1' is superseded"):
            wakeful.run(conn, refused)
    with pytest.raises(Conflict, match="'k-1' is no pending card"):
        ask(conn, "k-3", supersedes="k-1")
    assert conn.execute("SELECT count(*) FROM wakeful.card").fetchone() == (2,)


def test_two_answers_at_once_make_one_wake(database: Database, conn: Conn) -> None:
    ask(conn)
    first, second = database.connect(autocommit=False), database.connect()
    say(first, answer())
    with expect_blocked(lambda: wakeful.run(second, answer("rejected")), behind=first, watcher=conn) as blocked:
        first.commit()
        with pytest.raises(Conflict, match="is accepted by user:ann"):
            blocked.result()
    assert conn.execute("SELECT count(*) FROM wakeful.wake").fetchone() == (1,)


def test_a_retry_and_a_rearm_keep_the_answer_and_its_authority(conn: Conn) -> None:
    ask(conn)
    wake = wakeful.run(conn, answer()).wake
    assert wake is not None
    key = started(conn, wake)
    end(conn, key)
    retry = wakeful.run(conn, wakeful.request_retry("acme", key.run)).wake
    assert retry is not None
    assert row(conn, retry, "kind", "card", "card_status", "owner") == ("task_retry", "k-1", "accepted", "task_retry")
    say(conn, wakeful.retire_wake("acme", retry))
    again = wakeful.run(conn, wakeful.rearm_wake("acme", wake, actor="user:bob")).wake
    assert again is not None
    assert given(conn, admit(conn, again).runs[again]) == ([], "user:ann")


def test_a_rearmed_answer_is_signalled_to_its_owner(conn: Conn, listener: Listener) -> None:
    ask(conn)
    wake = wakeful.run(conn, answer()).wake
    assert wake is not None
    say(conn, wakeful.retire_wake("acme", wake))
    listener.heard()
    say(conn, wakeful.rearm_wake("acme", wake))
    assert [signal["o"] for signal in listener.heard()] == ["saved_comments"]


def test_what_cannot_be_asked_or_answered_is_refused(conn: Conn) -> None:
    for statement, words in (
        (wakeful.create_card("acme", "I-1", "nobody", {}), "agent 'nobody' does not exist"),
        (
            wakeful.create_card("acme", "I-1", "coder", {}, run="01970000-0000-7000-8000-000000000001"),
            "run .* does not",
        ),
        (answer(), "card 'k-1' does not exist"),
        (wakeful.withdraw_card("acme", "k-1"), "card 'k-1' does not exist"),
    ):
        with pytest.raises(NotFound, match=words):
            wakeful.run(conn, statement)
    ask(conn)
    with pytest.raises(Conflict, match="is on issue 'I-1'"):
        wakeful.run(conn, wakeful.create_card("acme", "I-2", "coder", {}, id="k-1"))
    with pytest.raises(InvalidInput):
        wakeful.answer_card("acme", "k-1", status="maybe")
    for call in ("answer_card('acme', 'k-1', 'null', 'maybe')", "create_card('acme', 'I-1', 'coder', '{}', id => '')"):
        with pytest.raises(psycopg.Error) as refused:
            conn.execute(f"SELECT wakeful.{call}")
        assert refused.value.sqlstate == "WK422"
    with pytest.raises(InvalidInput, match="65536 bytes"):
        wakeful.answer_card("acme", "k-1", "x" * 65536)
