"""Words into a run and out of it: what its input carries, and what its result posts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psycopg
import pytest
from tests.conftest import Listener
from tests.passes import admit, end, follow, row, start
from tests.rows import say
from tests.saved import busy, given, save, started

import wakeful
import wakeful.errors
from wakeful import terminals, work
from wakeful.crash_points import no_crash
from wakeful.executions import EndClass, Grade, RunKey
from wakeful.follow_ups import Question
from wakeful.results import BadResult, Conclusion, read_result
from wakeful.terminals import Death, Ending

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("assigned")


def given_to(conn: Conn, key: RunKey) -> Any:
    """The run's input.json."""
    return work.read(conn, "acme", [key])[key].spec.input


def ends(conn: Conn, *keys: RunKey, comment: str = "done") -> terminals.Settled:
    said = Conclusion("succeeded", EndClass.OK, "run.ok", result={"comment": comment})
    endings = [Ending(key, said, grade=Grade.CONTAINED) for key in keys]
    return terminals.record(conn, "acme", endings, crash=no_crash)


def posted(conn: Conn) -> list[Any]:
    return conn.execute(
        "SELECT id, issue, author_kind || ':' || author, body, run FROM wakeful.comment"
        " WHERE run IS NOT NULL ORDER BY id"
    ).fetchall()


# ── in ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_input_has_the_live_words_in_order_and_the_authority(conn: Conn) -> None:
    wake = save(conn, "c-2", body="first").wake
    save(conn, "c-1", body="second", author="user:bob", actor="user:ann")
    save(conn, "c-3", body="third", actor="user:ann")
    run = admit(conn, wake).runs[wake]
    say(conn, wakeful.edit_comment("acme", "c-2", "first, edited", 1), wakeful.delete_comment("acme", "c-3", 1))
    (key,) = start(conn)
    found = given_to(conn, key)
    assert [(one["id"], one["author"], one["body"]) for one in found["comments"]] == [
        ("c-2", "user:ann", "first, edited"),
        ("c-1", "user:bob", "second"),
    ]
    [at] = conn.execute("SELECT created_at FROM wakeful.comment WHERE id = 'c-2'").fetchone()
    assert datetime.fromisoformat(found["comments"][0]["created_at"]) == at
    assert (found["run"], found["authority"], found["cards"], found["wake"]["kind"]) == (
        *(str(run), "user:bob", [], "saved_comments"),
    )


def test_what_was_deleted_around_the_producers_is_not_given(conn: Conn) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    key = started(conn, wake)
    conn.execute("UPDATE wakeful.comment SET deleted_at = now() WHERE id = 'c-1'")
    assert [one["id"] for one in given_to(conn, key)["comments"]] == ["c-2"]


def test_the_input_has_a_cards_answer_and_a_retry_of_it_too(conn: Conn) -> None:
    say(conn, wakeful.create_card("acme", "I-1", "coder", {"text": "Ship?"}, id="k-1", kind="confirm"))
    answered = wakeful.run(conn, wakeful.answer_card("acme", "k-1", [1, "é"], status="accepted", actor="user:ann"))
    assert answered.wake is not None
    key = started(conn, answered.wake)
    told = {"id": "k-1", "kind": "confirm", "question": {"text": "Ship?"}, "status": "accepted"}
    found = given_to(conn, key)
    assert found["cards"] == [{**told, "answer": [1, "é"], "answered_by": "user:ann"}]
    assert (found["comments"], found["authority"]) == ([], "user:ann")
    end(conn, key)
    retry = wakeful.run(conn, wakeful.request_retry("acme", key.run)).wake
    assert retry is not None
    assert given_to(conn, started(conn, retry))["cards"] == found["cards"]


def test_a_retry_is_given_the_same_words(conn: Conn) -> None:
    key = started(conn, save(conn, "c-1").wake)
    end(conn, key)
    retry = wakeful.run(conn, wakeful.request_retry("acme", key.run)).wake
    assert retry is not None
    assert [one["body"] for one in given_to(conn, started(conn, retry))["comments"]] == ["words"]


def test_a_plain_run_is_given_no_words(conn: Conn) -> None:
    found = given_to(conn, busy(conn))
    assert (found["comments"], found["cards"]) == ([], [])


# ── out ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_results_comment_is_posted_as_the_agents_and_wakes_it_not(conn: Conn, listener: Listener) -> None:
    key = busy(conn)
    listener.heard()
    ends(conn, key, comment="done é")
    assert posted(conn) == [(f"run:{key.run}:1", "I-1", "agent:coder", "done é", key.run)]
    assert conn.execute("SELECT count(*) FROM wakeful.wake WHERE state = 'deferred'").fetchone() == (0,)


def test_the_same_report_again_posts_nothing_more(conn: Conn) -> None:
    key = busy(conn)
    ends(conn, key)
    assert ends(conn, key).refused == {key}
    assert len(posted(conn)) == 1


def test_an_overtaken_generation_posts_nothing(conn: Conn) -> None:
    key = busy(conn)
    terminals.record(conn, "acme", [], [Death(key, Grade.CONTAINED, "gone")], crash=no_crash)
    assert ends(conn, key).refused == {key}
    assert posted(conn) == []
    (again,) = start(conn)
    ends(conn, again)
    assert [id for id, *_ in posted(conn)] == [f"run:{key.run}:2"]


def test_another_agent_that_has_the_issue_is_woken_for_it(conn: Conn, listener: Listener) -> None:
    key = busy(conn)
    say(conn, wakeful.assign_issue("acme", "I-1", "agent:other"))
    conn.execute("UPDATE wakeful.wake SET state = 'cancelled', ended_at = now() WHERE state = 'deferred'")
    listener.heard()
    ends(conn, key)
    [(wake, agent, actor, source, comments)] = conn.execute(
        "SELECT id, agent, actor_kind || ':' || actor, source, comments FROM wakeful.wake WHERE state = 'deferred'"
    ).fetchall()
    assert (agent, actor, source, comments) == ("other", "agent:coder", "automation", [f"run:{key.run}:1"])
    assert row(conn, wake, "wait_reason", "due_at IS NOT NULL") == (None, True)
    assert str(wake) in [signal.get("w") for signal in listener.heard()]
    assert given(conn, admit(conn, wake).runs[wake]) == ([f"run:{key.run}:1"], "agent:coder")


def test_a_run_without_an_issue_posts_nothing(conn: Conn) -> None:
    wake = wakeful.run(conn, wakeful.request_wake("acme", "coder")).wake
    assert wake is not None
    key = started(conn, wake)
    assert ends(conn, key).ended == {key}
    assert posted(conn) == []


def test_words_that_are_empty_or_no_text(conn: Conn) -> None:
    ends(conn, busy(conn), comment="")
    assert posted(conn) == []
    with pytest.raises(BadResult, match="comment is not text"):
        read_result(b'{"comment": 1}')
    assert read_result(b'{"comment": "a\\u0000b"}')["comment"] == "a\ufffdb"


# ── further issues ──────────────────────────────────────────────────────────────────────────────────────


def take(conn: Conn, key: RunKey, issue: str = "I-2", generation: int | None = None) -> Any:
    return wakeful.run(conn, wakeful.take_issue("acme", key.run, generation or key.generation, issue))


def holder(conn: Conn, issue: str = "I-2") -> Any:
    return conn.execute("SELECT execution_run FROM wakeful.issue WHERE id = %s", (issue,)).fetchone()


@pytest.fixture
def second(conn: Conn, web: None) -> None:
    """A second issue of the agent's."""
    say(conn, wakeful.create_issue("acme", "I-2"))
    conn.execute("UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = 'coder' WHERE id = 'I-2'")


@pytest.mark.usefixtures("second")
def test_every_issue_that_a_run_held_is_released(conn: Conn, listener: Listener) -> None:
    key = busy(conn)
    assert take(conn, key).outcome == "merged"
    assert (take(conn, key).outcome, holder(conn)) == ("existing", (key.run,))
    listener.heard()
    first, other = save(conn, "c-1").wake, save(conn, "c-2", issue="I-2").wake
    request = wakeful.run(conn, wakeful.request_wake("acme", "coder", "I-2")).wake
    assert request is not None
    assert row(conn, other, "wait_key", "wait_reason") == ("I-2", "execution.live_run")
    assert [signal.get("w") for signal in listener.heard()] == [str(request)]
    outcomes = admit(conn, request).outcomes
    assert outcomes[request].refusal.reason == "execution.live_run"  # type: ignore[union-attr]
    listener.heard()

    end(conn, key)
    signals = listener.heard()
    assert [s["k"] for s in signals if s.get("g") == "execution"] == ["I-1", "I-2"]
    assert set(follow(conn, signals)) == {first, other, request}
    assert (holder(conn), holder(conn, "I-1")) == ((None,), (None,))
    assert admit(conn, first, other, signalled=True).runs.keys() == {first, other}


@pytest.mark.usefixtures("second")
def test_a_run_that_goes_back_to_its_queue_keeps_its_own_issue_only(conn: Conn, listener: Listener) -> None:
    key = busy(conn)
    take(conn, key)
    other = save(conn, "c-2", issue="I-2").wake
    listener.heard()
    terminals.record(conn, "acme", [], [Death(key, Grade.CONTAINED, "gone")], crash=no_crash)
    assert [s["k"] for s in listener.heard() if s.get("g") == "execution"] == ["I-2"]
    assert holder(conn) == (None,)
    assert admit(conn, other, signalled=True).runs.keys() == {other}
    with pytest.raises(wakeful.errors.Conflict, match="at generation 2"):
        take(conn, key)


@pytest.mark.usefixtures("second")
def test_a_person_who_resolves_the_doubt_frees_it_too(conn: Conn, listener: Listener) -> None:
    from wakeful.doubt import declare_uncertain

    key = busy(conn)
    take(conn, key)
    other = save(conn, "c-2", issue="I-2").wake
    assert declare_uncertain(conn, key, "silent", overdue=None)
    [action] = conn.execute("SELECT id FROM wakeful.recovery_action").fetchone()
    listener.heard()
    say(conn, wakeful.resolve_recovery("acme", action, outcome="dead"))
    assert "I-2" in [s["k"] for s in listener.heard() if s.get("g") == "execution"]
    assert admit(conn, other, signalled=True).runs.keys() == {other}


@pytest.mark.usefixtures("second")
def test_what_may_not_be_taken(conn: Conn) -> None:
    key = busy(conn)
    missing = "01970000-0000-7000-8000-000000000001"
    with pytest.raises(wakeful.errors.NotFound, match="issue 'I-9' does not exist"):
        take(conn, key, "I-9")
    with pytest.raises(wakeful.errors.NotFound, match=f"run {missing} does not exist"):
        wakeful.run(conn, wakeful.take_issue("acme", missing, 1, "I-2"))
    with pytest.raises(wakeful.errors.Conflict, match="may take nothing at generation 7"):
        take(conn, key, generation=7)
    wake = wakeful.run(conn, wakeful.request_wake("acme", "coder", "I-2")).wake
    assert wake is not None
    theirs = admit(conn, wake).runs[wake]
    with pytest.raises(wakeful.errors.Conflict, match=f"issue 'I-2' is worked on by run {theirs}"):
        take(conn, key)
    end(conn, key)
    with pytest.raises(wakeful.errors.Conflict, match="is failed at generation 1"):
        take(conn, key)


@pytest.mark.usefixtures("second")
def test_an_unproven_death_keeps_what_it_held_closed(conn: Conn) -> None:
    key = busy(conn)
    take(conn, key)
    said = Conclusion("succeeded", EndClass.OK, "run.ok")
    terminals.record(conn, "acme", [Ending(key, said, grade=Grade.REPORTED)], crash=no_crash)
    other = save(conn, "c-2", issue="I-2").wake
    outcome = admit(conn, other).outcomes[other]
    assert outcome.refusal.reason == "execution.unproven"  # type: ignore[union-attr]


def test_a_question_in_a_result_is_a_card_whose_answer_wakes_its_agent(conn: Conn, listener: Listener) -> None:
    key = busy(conn)
    asked = Conclusion(
        "failed", EndClass.NEEDS_INPUT, "run.needs_input", next_wake=Question({"text": "Ship?"}, "choice")
    )
    listener.heard()
    for _ in range(2):  # the same end reported again asks nothing again
        terminals.record(conn, "acme", [Ending(key, asked, grade=Grade.CONTAINED)], crash=no_crash)
    assert listener.heard() == []
    cards = conn.execute("SELECT id, issue, agent, run, kind, question, status FROM wakeful.card").fetchall()
    [(id, *rest)] = cards
    assert rest == ["I-1", "coder", key.run, "choice", {"text": "Ship?"}, "pending"]
    wake = wakeful.run(conn, wakeful.answer_card("acme", id, "yes", actor="user:ann")).wake
    assert wake is not None
    assert admit(conn, wake).runs
    (again,) = start(conn)
    [card] = given_to(conn, again)["cards"]
    assert (card["id"], card["question"], card["answer"]) == (id, {"text": "Ship?"}, "yes")


def test_a_question_of_a_run_without_an_issue_has_no_place(conn: Conn) -> None:
    wake = wakeful.run(conn, wakeful.request_wake("acme", "coder")).wake
    assert wake is not None
    admit(conn, wake)
    (key,) = start(conn)
    asked = Conclusion("succeeded", EndClass.OK, "run.ok", next_wake=Question("Ship?", "question"))
    terminals.record(conn, "acme", [Ending(key, asked, grade=Grade.CONTAINED)], crash=no_crash)
    assert conn.execute("SELECT count(*) FROM wakeful.card").fetchone() == (0,)
