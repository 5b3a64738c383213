"""Comments saved for an agent: one receipt waits for each (agent, issue, actor), and every word reaches one run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.passes import admission, admit, end, follow, parked, row, runs, start
from tests.rows import audits, say
from tests.saved import busy, given, save, started
from tests.schedulers import InstantExecutor, schedulers

import wakeful
from wakeful import producers
from wakeful.errors import Conflict, InvalidInput, NotFound
from wakeful.outcomes import End
from wakeful.producers import ProducerResult
from wakeful.testing import Database, VirtualClock, expect_blocked

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("assigned")
GRACE = timedelta(seconds=30)


# ── saving ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_comment_wakes_the_assignee_at_once(conn: Conn, listener: Listener) -> None:
    saved = save(conn, "c-1")
    assert (saved.outcome, saved.state, saved.run) == ("inserted", "deferred", None)
    what = row(conn, saved.wake, "kind", "owner", "agent", "source", "actor_kind || ':' || actor", "comments")
    assert what == ("saved_comments", "saved_comments", "coder", "on_demand", "user:ann", ["c-1"])
    assert row(conn, saved.wake, "due_at <= wakeful.now()", "wait_reason", "project") == (True, None, "web")
    [signal] = listener.heard()
    assert (signal["t"], signal["w"], signal["o"]) == ("eligibility", str(saved.wake), "saved_comments")


def test_new_ids_join_the_receipt_in_order_and_known_ones_change_nothing(conn: Conn, listener: Listener) -> None:
    first = save(conn, "c-2")
    assert save(conn, "c-1") == ProducerResult("merged", first.wake, "deferred", None)
    assert row(conn, first.wake, "comments", "version") == (["c-2", "c-1"], 2)
    before = (row(conn, first.wake, "to_jsonb(wake)"), audits(conn))
    listener.heard()
    assert save(conn, "c-2", body="other words") == ProducerResult("existing", first.wake, "deferred", None)
    assert (row(conn, first.wake, "to_jsonb(wake)"), audits(conn)) == before
    assert listener.heard() == []
    assert conn.execute("SELECT body FROM wakeful.comment WHERE id = 'c-2'").fetchone() == ("words",)


def test_a_key_makes_saving_idempotent_without_an_id(conn: Conn) -> None:
    statement = wakeful.save_comment("acme", "I-1", "words", "user:ann", key="k")
    first = wakeful.run(conn, statement)
    assert wakeful.run(conn, statement) == ProducerResult("existing", first.wake, "deferred", None)
    assert conn.execute("SELECT count(*), max(length(id)) FROM wakeful.comment").fetchone() == (1, 36)


def test_each_agent_issue_and_actor_has_a_receipt_of_its_own(conn: Conn) -> None:
    wakes = {
        save(conn, "c-1").wake,
        save(conn, "c-2", author="user:bob").wake,
        save(conn, "c-3", agent="other").wake,
        save(conn, "c-4", issue="I-2", agent="coder").wake,
        save(conn, "c-5", actor="system:relay").wake,
    }
    assert len(wakes) == 5
    assert save(conn, "c-6", author="user:bob", actor="system:relay").outcome == "merged"


@pytest.mark.parametrize("how", ["its words", "its run"])
def test_an_agents_own_comment_does_not_wake_it(conn: Conn, listener: Listener, how: str) -> None:
    key = busy(conn)
    listener.heard()
    mine = {"author": "agent:coder"} if how == "its words" else {"author": "system:log", "run": key.run}
    assert save(conn, "c-1", **mine) == ProducerResult("inserted", None, "saved", None)
    assert listener.heard() == []
    other = save(conn, "c-2", author="agent:other")
    assert (other.outcome, row(conn, other.wake, "agent", "source")) == ("inserted", ("coder", "automation"))


def test_first_mention_creates_the_issue_for_the_agent(conn: Conn) -> None:
    saved = save(conn, "c-1", issue="I-9", agent="coder")
    assert conn.execute("SELECT assignee FROM wakeful.issue WHERE id = 'I-9'").fetchone() == ("coder",)
    assert admit(conn, saved.wake).runs.keys() == {saved.wake}


def test_what_is_saved_while_no_agent_has_the_issue_waits_for_one(conn: Conn, listener: Listener) -> None:
    assert save(conn, "c-1", issue="I-9") == ProducerResult("inserted", None, "saved", None)
    save(conn, "c-2", issue="I-9")
    save(conn, "c-3", issue="I-9", author="agent:coder")
    say(conn, wakeful.assign_issue("acme", "I-9", "user:ann"))
    assert conn.execute("SELECT count(*) FROM wakeful.wake WHERE issue = 'I-9'").fetchone() == (0,)
    listener.heard()
    say(conn, wakeful.assign_issue("acme", "I-9", "agent:coder"))
    saved = conn.execute("SELECT actor, comments FROM wakeful.wake WHERE kind = 'saved_comments'").fetchall()
    assert saved == [("ann", ["c-1", "c-2"])]
    assert "saved_comments" in [signal.get("o") for signal in listener.heard()]
    say(conn, wakeful.assign_issue("acme", "I-9", "agent:other"))
    assert conn.execute("SELECT count(*) FROM wakeful.wake WHERE kind = 'saved_comments'").fetchone() == (1,)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"id": "c-0", "issue": "I-2", "agent": "coder"}, Conflict, "is on issue 'I-1'"),
        ({"agent": "nobody"}, NotFound, "agent 'nobody' does not exist"),
        ({"run": uuid4()}, NotFound, "run .* does not exist"),
    ],
)
def test_what_cannot_be_saved_is_refused(conn: Conn, arguments: Any, error: type[Exception], words: str) -> None:
    save(conn, "c-0")
    with pytest.raises(error, match=words):
        save(conn, **{"id": "c-1", **arguments})
    assert conn.execute("SELECT count(*) FROM wakeful.comment").fetchone() == (1,)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("body => '', author => 'user:ann'", "has 0 bytes"),
        ("body => repeat('é', 32769), author => 'user:ann'", "has 65538 bytes"),
        ("body => 'x', author => NULL", "a comment has an author"),
        ("body => 'x', author => 'ann'", "is not user:ID"),
        ("body => 'x', author => 'user:ann', id => ''", "1 to 200 characters"),
        ("body => 'x', author => 'user:ann', key => repeat('k', 201)", "1 to 200 characters"),
    ],
)
def test_the_database_checks_everything_itself(conn: Conn, call: str, words: str) -> None:
    with pytest.raises(psycopg.Error, match=words) as refused:
        conn.execute(f"SELECT wakeful.save_comment(company => 'acme', issue => 'I-1', {call})")
    assert refused.value.sqlstate == "WK422"


def test_the_python_face_checks_before_anything_is_sent() -> None:
    for body, author in (("", "user:ann"), ("x" * 65537, "user:ann"), ("x", "ann"), ("a\0b", "user:ann")):
        with pytest.raises(InvalidInput):
            wakeful.save_comment("acme", "I-1", body, author)


def test_a_full_receipt_makes_room_for_the_next_one(conn: Conn) -> None:
    large = "x" * 65536
    receipts = [save(conn, f"c-{n:02}", body=large) for n in range(17)]
    assert [made.outcome for made in receipts] == ["inserted", *["merged"] * 15, "inserted"]
    many = [save(conn, f"d-{n:03}", author="user:bob") for n in range(101)]
    assert [n for n, made in enumerate(many) if made.outcome == "inserted"] == [0, 100]
    first = admit(conn, receipts[0].wake, receipts[-1].wake)
    assert given(conn, first.runs[receipts[0].wake])[0] == [f"c-{n:02}" for n in range(16)]
    assert parked(first, receipts[-1].wake) == "execution.live_run"


# ── behind a live run, and other gates ──────────────────────────────────────────────────────────────────


def test_behind_a_live_run_it_is_saved_parked_and_in_silence(conn: Conn, listener: Listener) -> None:
    key = busy(conn)
    listener.heard()
    saved = save(conn, "c-1")
    gate = row(conn, saved.wake, "wait_gate", "wait_key", "wait_reason", "owner", "due_at", "version")
    assert gate == ("execution", "I-1", "execution.live_run", "execution_wait", None, 1)
    assert row(conn, saved.wake, "wait_since IS NOT NULL", "grace_from = wait_since") == (True, True)
    save(conn, "c-2")
    assert row(conn, saved.wake, "comments", "due_at", "version", "grace_from > wait_since") == (
        *(["c-1", "c-2"], None, 2, True),
    )
    assert listener.heard() == []

    end(conn, key)
    signals = listener.heard()
    assert ("execution", "I-1") in [(s.get("g"), s.get("k")) for s in signals]
    assert follow(conn, signals) == [saved.wake]
    result = admit(conn, saved.wake, signalled=True)
    assert given(conn, result.runs[saved.wake]) == (["c-1", "c-2"], "user:ann")


def test_a_saved_comment_waits_for_the_end_of_a_run_that_is_just_ending(database: Database, conn: Conn) -> None:
    key = busy(conn)
    ending = database.connect(autocommit=False)
    ending.execute("SELECT FROM wakeful.run WHERE id = %s FOR NO KEY UPDATE", (key.run,))
    ending.execute("SELECT FROM wakeful.issue WHERE id = 'I-1' FOR NO KEY UPDATE")
    ending.execute(
        "UPDATE wakeful.run SET state = 'failed', ended_at = wakeful.now(), evidence = 'contained' WHERE id = %s",
        (key.run,),
    )
    ending.execute("SELECT wakeful.settle_runs('acme', %s)", ([key.run],))
    other = database.connect()
    with expect_blocked(lambda: save(other, "c-1"), behind=ending, watcher=conn) as blocked:
        ending.commit()
        saved = blocked.result()
    assert row(conn, saved.wake, "wait_reason", "due_at <= wakeful.now()") == (None, True)


def test_a_new_id_restarts_the_grace_of_a_receipt_that_waits_once(conn: Conn, listener: Listener) -> None:
    say(conn, wakeful.pause_agent("acme", "coder"))
    saved = save(conn, "c-1")
    assert parked(admit(conn, saved.wake), saved.wake) == "agent.paused_manual"
    conn.execute("UPDATE wakeful.wake SET due_at = NULL WHERE id = %s", (saved.wake,))  # its grace is over
    listener.heard()
    save(conn, "c-2")
    waits, grace, version = row(conn, saved.wake, "grace_from > wait_since", "due_at - grace_from", "version")
    assert (waits, grace, version) == (True, GRACE, 3)
    [signal] = listener.heard()
    assert (signal["w"], signal["o"]) == (str(saved.wake), "execution_wait")
    before = row(conn, saved.wake, "to_jsonb(wake)")
    save(conn, "c-2")
    assert row(conn, saved.wake, "to_jsonb(wake)") == before


def test_behind_a_run_that_was_interrupted_for_it_a_new_id_restarts_the_grace(conn: Conn) -> None:
    busy(conn)
    saved = save(conn, "c-1")
    say(conn, wakeful.interrupt_issue("acme", "I-1", actor="user:ann"))
    save(conn, "c-2")
    assert row(conn, saved.wake, "owner", "comments", "due_at - grace_from") == ("interrupt", ["c-1", "c-2"], GRACE)


@pytest.mark.parametrize(
    ("closes", "opens"),
    [
        (wakeful.pause_company("acme"), wakeful.resume_company("acme")),
        (wakeful.pause_project("acme", "web"), wakeful.resume_project("acme", "web")),
        (wakeful.hold_issue("acme", "I-1"), wakeful.release_hold("acme", "I-1")),
        (wakeful.hold_issue("acme", "I-1", mode="cancel"), wakeful.restore_hold("acme", "I-1")),
        (wakeful.set_budget("acme", "agent:coder", 0), wakeful.raise_budget("acme", "agent:coder", amount=1)),
    ],
    ids=["pause", "project", "hold", "cancel hold", "budget"],
)
def test_saved_words_survive_whatever_closes_and_run_once_when_it_opens(conn: Conn, closes: Any, opens: Any) -> None:
    say(conn, closes)
    saved = save(conn, "c-1")
    parked(admit(conn, saved.wake), saved.wake)
    assert row(conn, saved.wake, "state", "comments") == ("deferred", ["c-1"])
    say(conn, opens)
    result = admit(conn, saved.wake, signalled=True)
    assert given(conn, result.runs[saved.wake])[0] == ["c-1"]
    assert len(runs(conn)) == 1


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (wakeful.terminate_agent("acme", "coder"), "agent.terminated"),
        (wakeful.archive_agent("acme", "coder"), "agent.archived"),
        (wakeful.set_issue_status("acme", "I-1", "done"), "issue.terminal"),
    ],
)
def test_an_end_for_good_retires_it(conn: Conn, statement: Any, reason: str) -> None:
    saved = save(conn, "c-1")
    say(conn, statement)
    assert admit(conn, saved.wake).runs == {}
    assert row(conn, saved.wake, "state", "reason") == ("retired", reason)


# ── release ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_last_person_who_wrote_is_the_authority(conn: Conn) -> None:
    relay = {"actor": "system:relay"}
    saved = save(conn, "c-1", author="user:ann", **relay)
    save(conn, "c-2", author="user:bob", **relay)
    save(conn, "c-3", author="agent:other", **relay)
    assert given(conn, admit(conn, saved.wake).runs[saved.wake]) == (["c-1", "c-2", "c-3"], "user:bob")


def test_without_a_person_the_receipts_actor_is_the_authority(conn: Conn) -> None:
    saved = save(conn, "c-1", author="agent:other")
    assert given(conn, admit(conn, saved.wake).runs[saved.wake]) == (["c-1"], "agent:other")


def test_only_what_is_live_at_the_release_is_given(conn: Conn) -> None:
    key = busy(conn)
    saved = save(conn, "c-1")
    save(conn, "c-2")
    save(conn, "c-3")
    conn.execute("UPDATE wakeful.comment SET run = %s WHERE id = 'c-2'", (key.run,))  # the ending run wrote it
    conn.execute("UPDATE wakeful.comment SET deleted_at = now() WHERE id = 'c-1'")
    end(conn, key)
    assert given(conn, admit(conn, saved.wake, signalled=True).runs[saved.wake])[0] == ["c-3"]


def test_what_a_started_run_was_given_is_not_given_again(conn: Conn) -> None:
    key = started(conn, save(conn, "c-1").wake)
    conn.execute(
        "INSERT INTO wakeful.wake (company, kind, agent, issue, actor_kind, actor, comments, due_at, effect_root)"
        " SELECT company, kind, agent, issue, 'user', 'bob', comments, now(), id FROM wakeful.wake"
    )
    [again] = conn.execute("SELECT id FROM wakeful.wake WHERE state = 'deferred'").fetchone()
    end(conn, key, "succeeded")
    assert admit(conn, again).outcomes[again] == End(
        "cancelled", "comments.none_live", "every comment was taken back or given to a run already"
    )


def test_a_known_comment_names_the_run_that_was_given_it(conn: Conn) -> None:
    saved = save(conn, "c-1")
    key = started(conn, saved.wake)
    end(conn, key)
    assert save(conn, "c-1") == ProducerResult("existing", saved.wake, "linked", key.run)


def test_a_dead_head_blocks_nobody_behind_it(conn: Conn) -> None:
    key = busy(conn)
    head, behind = save(conn, "c-1"), save(conn, "c-2", author="user:bob")
    conn.execute("UPDATE wakeful.comment SET deleted_at = now() WHERE id = 'c-1'")
    end(conn, key)
    result = admit(conn, head.wake, behind.wake, signalled=True)
    assert row(conn, head.wake, "state", "reason") == ("cancelled", "comments.none_live")
    assert given(conn, result.runs[behind.wake])[0] == ["c-2"]


def test_two_agents_receipts_on_one_issue_both_get_their_run(conn: Conn) -> None:
    say(conn, wakeful.assign_issue("acme", "I-1", None))
    one, two = save(conn, "c-1", agent="coder"), save(conn, "c-2", agent="other")
    first = admit(conn, one.wake, two.wake)
    assert (first.runs.keys(), parked(first, two.wake)) == ({one.wake}, "execution.live_run")
    (key,) = start(conn)
    end(conn, key)
    second = admit(conn, two.wake, signalled=True)
    assert given(conn, second.runs[two.wake])[0] == ["c-2"]


def test_comments_for_another_agent_wait_for_the_hand_off(conn: Conn, listener: Listener) -> None:
    saved = save(conn, "c-1", agent="other")
    assert parked(admit(conn, saved.wake), saved.wake) == "issue.assignee"
    listener.heard()
    say(conn, wakeful.assign_issue("acme", "I-1", "agent:other"))
    assert saved.wake in follow(conn, listener.heard())
    assert given(conn, admit(conn, saved.wake, signalled=True).runs[saved.wake])[0] == ["c-1"]


def test_or_end_with_the_assignees_own_run(conn: Conn, listener: Listener) -> None:
    saved = save(conn, "c-1", agent="other")
    admit(conn, saved.wake)
    key = busy(conn)
    listener.heard()
    end(conn, key)
    assert saved.wake in follow(conn, listener.heard())
    admit(conn, saved.wake, signalled=True)
    assert row(conn, saved.wake, "state", "reason") == ("cancelled", "comments.reassigned")


def test_a_run_that_ended_before_does_not_end_it(conn: Conn) -> None:
    end(conn, busy(conn))
    saved = save(conn, "c-1", agent="other")
    assert parked(admit(conn, saved.wake), saved.wake) == "issue.assignee"


def test_the_admission_and_a_new_comment_wait_for_each_other(database: Database, conn: Conn) -> None:
    saved = save(conn, "c-1")
    saving = database.connect(autocommit=False)
    save(saving, "c-2")
    other = database.connect(purpose="admission")
    with expect_blocked(
        lambda: admission().admit(other, "acme", {saved.wake: False}), behind=saving, watcher=conn
    ) as blocked:
        saving.commit()
        result = blocked.result()
    assert given(conn, result.runs[saved.wake])[0] == ["c-1", "c-2"]


def test_many_at_once_join_one_receipt(database: Database, conn: Conn) -> None:
    from tests.passes import together

    def one(number: int) -> Any:
        return lambda: save(database.connect(), f"c-{number % 10}")

    made = together(*[one(number) for number in range(20)])
    assert sorted(result.outcome for result in made) == ["existing"] * 10 + ["inserted"] + ["merged"] * 9
    [(comments,)] = conn.execute("SELECT comments FROM wakeful.wake").fetchall()
    assert sorted(comments) == [f"c-{number}" for number in range(10)]


# ── retries, re-arms, limits ────────────────────────────────────────────────────────────────────────────


def test_a_retry_carries_what_its_source_was_given(conn: Conn) -> None:
    key = started(conn, save(conn, "c-1").wake)
    conn.execute("UPDATE wakeful.run SET comments = '{c-1,c-2}' WHERE id = %s", (key.run,))
    conn.execute(
        "INSERT INTO wakeful.comment (company, id, issue, author_kind, author, body, deleted_at)"
        " VALUES ('acme', 'c-2', 'I-1', 'user', 'ann', 'x', now())"
    )
    end(conn, key)
    wake = wakeful.run(conn, wakeful.request_retry("acme", key.run)).wake
    assert wake is not None
    run = admit(conn, wake).runs[wake]
    assert (given(conn, run)[0], runs(conn, "retry_of = %s", key.run)) == (["c-1"], [run])


def test_a_rearmed_wake_carries_what_no_run_was_given(conn: Conn) -> None:
    saved = save(conn, "c-1")
    save(conn, "c-2")
    say(conn, wakeful.retire_wake("acme", saved.wake))
    conn.execute("UPDATE wakeful.comment SET deleted_at = now() WHERE id = 'c-2'")
    again = wakeful.run(conn, wakeful.rearm_wake("acme", saved.wake)).wake
    assert again is not None
    assert row(conn, again, "comments") == (["c-1"],)
    end(conn, started(conn, again))
    with pytest.raises(Conflict, match="has no comment left that no run was given"):
        wakeful.run(conn, wakeful.rearm_wake("acme", again))


def test_what_met_a_providers_limit_counts_as_undelivered(conn: Conn) -> None:
    from wakeful import terminals
    from wakeful.crash_points import no_crash
    from wakeful.executions import EndClass, Grade
    from wakeful.results import Conclusion

    say(conn, producers.add_agent("acme", "coder", ["true"], provider="p"))
    saved = save(conn, "c-1")
    save(conn, "c-2")
    key = started(conn, saved.wake)
    conn.execute("UPDATE wakeful.comment SET deleted_at = now() WHERE id = 'c-1'")
    [until] = conn.execute("SELECT now() + interval '1 hour'").fetchone()
    limited = Conclusion("failed", EndClass.PROVIDER_LIMITED, "run.provider_limited", limited_until=until)
    terminals.record(conn, "acme", [terminals.Ending(key, limited, grade=Grade.CONTAINED)], crash=no_crash)
    [(again, comments, kind)] = conn.execute(
        "SELECT id, comments, kind FROM wakeful.wake WHERE rearm_of = %s", (saved.wake,)
    ).fetchall()
    assert (comments, kind) == (["c-2"], "saved_comments")
    say(conn, wakeful.clear_account("acme", "p/default"))
    assert given(conn, admit(conn, again, signalled=True).runs[again])[0] == ["c-2"]


def test_a_retry_keeps_words_that_no_run_was_given_whatever_came_after(conn: Conn) -> None:
    saved = save(conn, "c-1")
    run = admit(conn, saved.wake).runs[saved.wake]
    (key,) = start(conn)
    end(conn, key)  # its command could not be started
    newer = save(conn, "c-2")
    retry = wakeful.run(conn, wakeful.request_retry("acme", run)).wake
    assert retry is not None
    end(conn, started(conn, newer.wake))
    assert given(conn, admit(conn, retry).runs[retry])[0] == ["c-1"]


# ── a whole scheduler ───────────────────────────────────────────────────────────────────────────────────


def test_what_is_said_while_a_run_works_is_given_to_the_next_one(
    database: Database, conn: Conn, tmp_path: Path
) -> None:
    executor = InstantExecutor()
    executor.holding = True
    with schedulers(database, tmp_path) as fleet:
        fleet.start(executor=executor)
        say(conn, wakeful.request_wake("acme", "coder", "I-1"))
        wait_until(lambda: executor.submitted, what="the first run")
        say(conn, wakeful.create_card("acme", "I-1", "coder", "Ship?", id="k-1"))
        for id in ("c-1", "c-2"):
            save(conn, id)
        say(conn, wakeful.answer_card("acme", "k-1", "yes", actor="user:bob"))
        executor.let_go()
        wait_until(lambda: len(runs(conn, "ended_at IS NOT NULL")) == 3, what="three runs")
    words = conn.execute("SELECT comments, authority FROM wakeful.run ORDER BY created_at OFFSET 1").fetchall()
    assert sorted(words) == [([], "user:bob"), (["c-1", "c-2"], "user:ann")]
    assert conn.execute("SELECT DISTINCT state FROM wakeful.wake").fetchall() == [("linked",)]


def test_what_was_delivered_is_the_same_asked_of_one_or_of_many(conn: Conn) -> None:
    """Given to a run; to one that met a limit, or never started; still waiting; and asked about twice."""
    first = started(conn, save(conn, "given").wake)
    end(conn, first, "succeeded")
    second = started(conn, save(conn, "limited").wake)
    end(conn, second)
    conn.execute("INSERT INTO wakeful.run (company, agent, issue, state, started_at, ended_at, end_class, comments)"
                 " VALUES ('acme', 'coder', 'I-1', 'failed', now(), now(), 'provider_limited', '{off}'),"
                 " ('acme', 'coder', 'I-1', 'failed', NULL, now(), 'stopped', '{never}')")  # fmt: skip
    for id in ("off", "never", "waits"):
        save(conn, id)
    asked = ["waits", "given", "off", "never", "limited", "given"]
    rows = conn.execute(
        "SELECT id, place, delivered FROM wakeful.each_delivered('acme', 'I-1', %s)", (asked,)
    ).fetchall()
    assert sorted(rows, key=lambda row: row[1]) == [
        (id, place, conn.execute("SELECT wakeful.delivered('acme', 'I-1', %s)", (id,)).fetchone()[0])
        for place, id in enumerate(asked[:-1], start=1)
    ]
    assert {row[0] for row in rows if row[2]} == {"given", "limited"}


def test_that_a_comment_was_delivered_outlives_the_run_it_was_given_to(
    database: Database, conn: Conn, clock: VirtualClock
) -> None:
    first = started(conn, save(conn, "c-1").wake)
    end(conn, first, "succeeded")
    clock.advance(timedelta(days=40))

    def another_end() -> bool:
        """Whether the first run is still kept after the end of another."""
        end(conn, busy(conn), "succeeded")
        return runs(conn, "id = %s", first.run) != []

    other = database.connect(autocommit=False)
    other.execute("SELECT FROM wakeful.comment WHERE id = 'c-1' FOR NO KEY UPDATE")
    assert another_end()  # nobody waits for whoever is at the comment
    other.rollback()
    assert not another_end()
    assert conn.execute("SELECT wakeful.delivered('acme', 'I-1', 'c-1')").fetchone() == (True,)
    assert conn.execute("SELECT delivered FROM wakeful.each_delivered('acme', 'I-1', '{c-1}')").fetchone() == (True,)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_hosts_old_snapshot_keeps_nothing_silent(
    database: Database, conn: Conn, listener: Listener, level: str
) -> None:
    """Either half of the silence behind a run, the saving and the end, in a transaction that began before the other."""
    wake = save(conn, "c-1").wake
    assert wake is not None
    run = admit(conn, wake).runs[wake]
    host = database.connect(autocommit=False)
    host.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    host.execute("SELECT FROM wakeful.issue")
    listener.heard()
    say(conn, wakeful.stop_run("acme", run))
    saved = save(host, "c-2", author="user:bob").wake
    host.commit()
    assert saved in {UUID(heard["w"]) for heard in listener.heard() if heard.get("w")}
    run = admit(conn, saved).runs[saved]
    host.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
    host.execute("SELECT FROM wakeful.issue")
    silent = save(conn, "c-3").wake
    listener.heard()
    say(host, wakeful.stop_run("acme", run))
    host.commit()
    assert silent in follow(conn, listener.heard())
