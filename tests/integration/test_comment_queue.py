"""What waits can be edited, put in order and taken back, until the run that carries it is claimed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conftest import Listener
from tests.passes import WHO, Held, admit, end, row, start, together
from tests.rows import audits, say
from tests.saved import busy, given, save, started

import wakeful
from wakeful import claims
from wakeful.crash_points import CrashPoint
from wakeful.errors import Conflict, InvalidInput, NotFound
from wakeful.executions import RunKey
from wakeful.producers import ProducerResult, Statement
from wakeful.testing import Database, HoldAt, expect_blocked

Conn = psycopg.Connection[Any]
ANN = {"actor": "user:ann"}

pytestmark = pytest.mark.usefixtures("assigned")


def edit(id: str = "c-1", body: str = "new words", revision: int = 1, **more: Any) -> Statement:
    return wakeful.edit_comment("acme", id, body, revision, **{**ANN, **more})


def discard(id: str = "c-1", revision: int = 1, **more: Any) -> Statement:
    return wakeful.discard_comment("acme", id, revision, **{**ANN, **more})


def delete(id: str = "c-1", revision: int = 1, **more: Any) -> Statement:
    return wakeful.delete_comment("acme", id, revision, **{**ANN, **more})


def revision_of(conn: Conn, *ids: str) -> str:
    found = conn.execute("SELECT wakeful.queue_revision('acme', %s)", (list(ids),)).fetchone()
    assert found is not None
    return str(found[0])


def reorder(conn: Conn, queue: UUID, now: list[str], wanted: list[str], **more: Any) -> Statement:
    return wakeful.reorder_comments("acme", queue, wanted, revision_of(conn, *now), **{**ANN, **more})


def comment(conn: Conn, id: str = "c-1") -> Any:
    return conn.execute(
        "SELECT body, revision, edited_at IS NOT NULL, deleted_at IS NOT NULL FROM wakeful.comment WHERE id = %s", (id,)
    ).fetchone()


CHANGES: list[Callable[[Conn, UUID], Statement]] = [
    lambda conn, queue: edit(),
    lambda conn, queue: discard(),
    lambda conn, queue: delete(),
    lambda conn, queue: reorder(conn, queue, ["c-1", "c-2"], ["c-2", "c-1"]),
]
NAMES = ["edit", "discard", "delete", "reorder"]


# ── while the receipt waits ─────────────────────────────────────────────────────────────────────────────


def test_an_edit_is_what_the_run_will_be_given_and_the_receipt_waits_anew(conn: Conn, listener: Listener) -> None:
    say(conn, wakeful.pause_agent("acme", "coder"))
    wake = save(conn, "c-1").wake
    admit(conn, wake)
    conn.execute("UPDATE wakeful.wake SET due_at = NULL")
    listener.heard()
    assert wakeful.run(conn, edit()) == ProducerResult("merged", wake, "deferred", None)
    assert comment(conn) == ("new words", 2, True, False)
    waits, grace, version = row(conn, wake, "grace_from > wait_since", "due_at - grace_from", "version")
    assert (waits, grace, version) == (True, timedelta(seconds=30), 3)
    assert [(s["w"], s["o"]) for s in listener.heard()] == [(str(wake), "execution_wait")]

    before = (row(conn, wake, "to_jsonb(wake)"), audits(conn))
    assert wakeful.run(conn, edit(revision=2)) == ProducerResult("existing", wake, "deferred", None)
    assert (row(conn, wake, "to_jsonb(wake)"), audits(conn), listener.heard()) == (*before, [])


def test_an_order_is_changed_without_a_new_grace(conn: Conn, listener: Listener) -> None:
    say(conn, wakeful.pause_agent("acme", "coder"))
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    admit(conn, wake)
    clocks = row(conn, wake, "grace_from", "due_at")
    listener.heard()
    changed = wakeful.run(conn, reorder(conn, wake, ["c-1", "c-2"], ["c-2", "c-1"]))
    assert changed == ProducerResult("merged", wake, "deferred", None)
    assert (row(conn, wake, "comments", "version"), row(conn, wake, "grace_from", "due_at")) == (
        (["c-2", "c-1"], 4),
        clocks,
    )
    before = (row(conn, wake, "to_jsonb(wake)"), audits(conn))
    same = wakeful.run(conn, reorder(conn, wake, ["c-2", "c-1"], ["c-2", "c-1"]))
    assert same == ProducerResult("existing", wake, "deferred", None)
    assert (row(conn, wake, "to_jsonb(wake)"), audits(conn), listener.heard()) == (*before, [])


@pytest.mark.parametrize("take_back", [discard, delete])
def test_what_is_taken_back_leaves_the_queue_and_the_last_one_ends_it(
    conn: Conn, listener: Listener, take_back: Callable[..., Statement]
) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    listener.heard()
    assert wakeful.run(conn, take_back("c-1")).outcome == "merged"
    assert row(conn, wake, "state", "comments", "version") == ("deferred", ["c-2"], 3)
    assert wakeful.run(conn, take_back("c-2")) == ProducerResult("merged", wake, "cancelled", None)
    assert row(conn, wake, "state", "reason", "due_at", "comments") == ("cancelled", "comments.none_live", None, [])
    assert listener.heard() == []
    assert comment(conn)[3] is (take_back is delete)
    again = take_back("c-1", 2) if take_back is delete else take_back("c-1")
    assert wakeful.run(conn, again).outcome == "existing"
    assert save(conn, "c-1").outcome == "existing"  # and does not come back


def test_what_is_taken_back_before_anybody_has_the_issue_wakes_nobody(conn: Conn) -> None:
    save(conn, "c-1", issue="I-9")
    save(conn, "c-2", issue="I-9")
    say(conn, discard("c-1"), delete("c-2"), wakeful.assign_issue("acme", "I-9", "agent:coder"))
    assert conn.execute("SELECT kind FROM wakeful.wake").fetchall() == [("request",)]


def test_a_retry_stands_without_the_words_that_were_taken_back(conn: Conn) -> None:
    key = started(conn, save(conn, "c-1").wake)
    end(conn, key)
    retry = wakeful.run(conn, wakeful.request_retry("acme", key.run)).wake
    assert retry is not None
    say(conn, discard())
    assert row(conn, retry, "state", "comments") == ("deferred", [])


# ── while its run is queued ─────────────────────────────────────────────────────────────────────────────


def test_until_its_run_is_claimed_a_change_still_takes_effect(conn: Conn) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    run = admit(conn, wake).runs[wake]
    final = row(conn, wake, "to_jsonb(wake)")
    say(conn, edit())
    say(conn, reorder(conn, wake, ["c-1", "c-2"], ["c-2", "c-1"]))
    assert (given(conn, run)[0], comment(conn)[0]) == (["c-2", "c-1"], "new words")
    assert wakeful.run(conn, discard("c-2")) == ProducerResult("merged", wake, "queued", run)
    assert given(conn, run)[0] == ["c-1"]
    assert row(conn, wake, "to_jsonb(wake)") == final


def test_a_queued_run_acts_for_the_last_person_whose_words_are_left(conn: Conn) -> None:
    wake = save(conn, "c-1", actor="system:relay").wake
    for id, author in (("c-2", "user:bob"), ("c-3", "agent:other")):
        save(conn, id, author=author, actor="system:relay")
    run = admit(conn, wake).runs[wake]
    assert given(conn, run)[1] == "user:bob"
    desk = {"actor": "system:desk"}
    say(conn, reorder(conn, wake, ["c-1", "c-2", "c-3"], ["c-2", "c-1", "c-3"], **desk))
    assert given(conn, run) == (["c-2", "c-1", "c-3"], "user:ann")
    say(conn, discard("c-1"))
    assert given(conn, run) == (["c-2", "c-3"], "user:bob")
    say(conn, delete("c-2", actor="user:bob"))
    assert given(conn, run) == (["c-3"], "system:relay")


@pytest.mark.parametrize("take_back", [discard, delete])
def test_with_its_last_comment_the_queued_run_ends_and_the_issue_is_free(
    conn: Conn, listener: Listener, take_back: Callable[..., Statement]
) -> None:
    say(conn, wakeful.set_budget("acme", "company", 10), wakeful.add_agent("acme", "coder", ["true"], estimate=2))
    wake = save(conn, "c-1").wake
    run = admit(conn, wake).runs[wake]
    behind = save(conn, "c-2", author="user:bob").wake
    listener.heard()
    assert wakeful.run(conn, take_back()) == ProducerResult("merged", wake, "cancelled", run)
    ended = conn.execute("SELECT state, reason, evidence FROM wakeful.run WHERE id = %s", (run,)).fetchone()
    assert ended == ("cancelled", "comments.none_live", "contained")
    assert conn.execute("SELECT state FROM wakeful.reservation").fetchall() == [("released",)]
    assert ("execution", "I-1") in [(s.get("g"), s.get("k")) for s in listener.heard()]
    assert given(conn, admit(conn, behind, signalled=True).runs[behind])[0] == ["c-2"]


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_once_it_is_claimed_it_is_too_late(conn: Conn, listener: Listener, change: Any) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    run = admit(conn, wake).runs[wake]
    start(conn)
    listener.heard()
    before = audits(conn)
    with pytest.raises(Conflict, match="already dispatching"):
        wakeful.run(conn, change(conn, wake))
    assert (given(conn, run)[0], comment(conn), audits(conn)) == (["c-1", "c-2"], ("words", 1, False, False), before)
    assert listener.heard() == []


def test_after_its_run_a_comment_is_a_record_that_may_be_corrected(conn: Conn) -> None:
    wake = save(conn, "c-1").wake
    key = started(conn, wake)
    end(conn, key)
    assert wakeful.run(conn, edit()) == ProducerResult("merged", wake, "linked", key.run)
    assert wakeful.run(conn, discard(revision=2)).outcome == "existing"
    assert wakeful.run(conn, delete(revision=2)).outcome == "merged"
    with pytest.raises(Conflict, match="given away: it is linked"):
        wakeful.run(conn, reorder(conn, wake, ["c-1"], ["c-1"]))
    with pytest.raises(Conflict, match="is deleted"):
        wakeful.run(conn, edit(body="once more", revision=3))


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_a_change_waits_for_a_claim_under_way_and_comes_too_late(database: Database, conn: Conn, change: Any) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    admit(conn, wake)
    claiming, changing = database.connect(purpose="claim"), database.connect(purpose="change")
    statement = change(conn, wake)
    point = HoldAt(CrashPoint.CLAIM_BEFORE_COMMIT)
    held = Held(lambda: start(claiming, crash=point))
    point.wait_reached()
    with expect_blocked(lambda: wakeful.run(changing, statement), behind=claiming, watcher=conn) as blocked:
        point.release()
        held.result()
        with pytest.raises(Conflict, match="already dispatching"):
            blocked.result()


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_a_claim_passes_a_run_that_somebody_is_changing(database: Database, conn: Conn, change: Any) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    run = admit(conn, wake).runs[wake]
    changing = database.connect(autocommit=False)
    say(changing, change(conn, wake))
    done = claims.claim(conn, "acme", WHO, limit=10, gate=None, crash=lambda point: None)
    assert (done.started, done.left) == ((), True)
    changing.commit()
    (key,) = start(conn)
    assert key.run == run


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_a_change_waits_for_whoever_only_looks_at_the_queued_run(database: Database, conn: Conn, change: Any) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    run = admit(conn, wake).runs[wake]
    looking, changing = database.connect(autocommit=False), database.connect()
    looking.execute("SELECT FROM wakeful.run WHERE id = %s FOR NO KEY UPDATE", (run,))
    statement = change(conn, wake)
    with expect_blocked(lambda: wakeful.run(changing, statement), behind=looking, watcher=conn) as blocked:
        # It holds no issue meanwhile, which whoever holds the run may want next.
        looking.execute("SELECT FROM wakeful.issue WHERE id = 'I-1' FOR NO KEY UPDATE NOWAIT")
        looking.commit()
        assert blocked.result().outcome == "merged"


def test_a_run_that_came_meanwhile_is_not_waited_for(database: Database, conn: Conn) -> None:
    """The change holds the issue by then, which whoever holds the run may want."""
    wake = save(conn, "c-1").wake
    admitting, claiming, other = (database.connect(autocommit=False) for _ in range(3))
    admitting.execute("SELECT FROM wakeful.issue WHERE id = 'I-1' FOR NO KEY UPDATE")
    with expect_blocked(lambda: wakeful.run(other, edit()), behind=admitting, watcher=conn) as blocked:
        # Behind its back the receipt gets a run, which a dispatcher holds before the change can.
        conn.execute(
            "INSERT INTO wakeful.run (company, agent, issue, wake, comments)"
            " VALUES ('acme', 'coder', 'I-1', %s, '{c-1}')",
            (wake,),
        )
        assert claiming.execute("SELECT id FROM wakeful.run FOR NO KEY UPDATE").fetchall() != []
        admitting.commit()
        with pytest.raises(Conflict, match="already dispatching"):
            blocked.result()
    other.rollback()
    claiming.rollback()


# ── who, and which revision ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_authors_and_operators_only(conn: Conn, change: Any) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    statement = change(conn, wake)

    def by(**who: Any) -> Statement:
        rest = tuple(argument for argument in statement.arguments if argument[0] not in ("actor", "force"))
        return Statement(statement.function, (*rest, *who.items()))

    for actor in ("user:bob", "agent:coder"):
        with pytest.raises(Conflict, match=f"user:ann; {actor} may not change it"):
            wakeful.run(conn, by(actor=actor))
    for who in ({"actor": "user:bob", "force": True}, {"actor": "system:desk"}, {}, {"actor": "user:ann"}):
        with conn.transaction(force_rollback=True):
            assert wakeful.run(conn, by(**who)).outcome == "merged"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda queue: edit(revision=7), "is at revision 1, not 7"),
        (lambda queue: discard(revision=7), "is at revision 1, not 7"),
        (lambda queue: delete(revision=7), "is at revision 1, not 7"),
        (
            lambda queue: wakeful.reorder_comments("acme", queue, ["c-2", "c-1"], "0" * 16, **ANN),
            "holds other comments",
        ),
    ],
    ids=NAMES,
)
def test_another_revision_is_a_conflict(conn: Conn, make: Any, words: str) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    with pytest.raises(Conflict, match=words):
        wakeful.run(conn, make(wake))
    assert (row(conn, wake, "comments")[0], comment(conn)) == (["c-1", "c-2"], ("words", 1, False, False))


@pytest.mark.parametrize("ids", [["c-1"], ["c-1", "c-1"], ["c-2", "c-1", "c-3"], []])
def test_an_order_names_every_comment_once(conn: Conn, ids: list[str]) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    with pytest.raises(Conflict, match="holds other comments than these"):
        wakeful.run(conn, reorder(conn, wake, ["c-1", "c-2"], ids))


def test_an_edit_elsewhere_changes_the_queues_revision(conn: Conn) -> None:
    wake = save(conn, "c-1").wake
    save(conn, "c-2")
    statement = reorder(conn, wake, ["c-1", "c-2"], ["c-2", "c-1"])
    say(conn, edit())
    with pytest.raises(Conflict, match="their revision changed"):
        wakeful.run(conn, statement)


def test_what_is_not_there_is_said_so(conn: Conn) -> None:
    request = wakeful.run(conn, wakeful.request_wake("acme", "coder", "I-1")).wake
    assert request is not None
    for statement in (edit("c-9"), discard("c-9"), delete("c-9")):
        with pytest.raises(NotFound, match="comment 'c-9' does not exist"):
            wakeful.run(conn, statement)
    with pytest.raises(NotFound, match="no queue of comments"):
        wakeful.run(conn, wakeful.reorder_comments("acme", request, [], "x"))
    save(conn, "c-1")
    for call in ("edit_comment('acme', 'c-1', 'x', NULL)", "discard_comment('acme', 'c-1', NULL)"):
        with pytest.raises(psycopg.Error, match="which revision of the comment you have seen"):
            conn.execute(f"SELECT wakeful.{call}")
    with pytest.raises(InvalidInput):
        edit(body="")


def test_an_edit_keeps_the_words_of_a_queue_within_their_limit(conn: Conn) -> None:
    for n in range(17):
        save(conn, f"c-{n}", body="x" * (1 if n in (0, 16) else 65536))
    with pytest.raises(InvalidInput, match="more than 1048576 bytes"):
        wakeful.run(conn, edit("c-0", "y" * 65536))
    assert wakeful.run(conn, edit("c-0", "y" * 65535)).outcome == "merged"


def test_nothing_deadlocks_and_nothing_is_lost(database: Database, conn: Conn) -> None:
    """In each round a save, an edit, an admission, a claim and the end of the run before meet."""
    sessions = [database.connect() for _ in range(5)]

    def edited(id: str) -> None:
        with contextlib.suppress(Conflict):  # it came too late
            wakeful.run(sessions[0], edit(id))

    def round(n: int, key: RunKey, wake: UUID) -> None:
        together(
            lambda: edited(f"c-{n}"),
            lambda: end(sessions[1], key, "succeeded"),
            lambda: ignored(admit(sessions[2], wake, signalled=True)),
            lambda: ignored(start(sessions[3])),
            lambda: ignored(save(sessions[4], f"d-{n}")),
        )

    for n in range(6):
        key = busy(conn)
        round(n, key, save(conn, f"c-{n}").wake)
        for _ in range(4):
            finish(conn)
            admit(
                conn,
                *[w for (w,) in conn.execute("SELECT id FROM wakeful.wake WHERE state = 'deferred'")],
                signalled=True,
            )
    delivered = conn.execute("SELECT unnest(comments) FROM wakeful.run ORDER BY 1").fetchall()
    assert [id for (id,) in delivered] == sorted(f"{letter}-{n}" for letter in "cd" for n in range(6))


def finish(conn: Conn) -> None:
    """Every run that lives has run, and ends."""
    start(conn)
    conn.execute("UPDATE wakeful.run SET state = 'running', started_at = now() WHERE state = 'starting'")
    for run, generation in conn.execute("SELECT id, generation FROM wakeful.run WHERE state = 'running'").fetchall():
        end(conn, RunKey("acme", run, generation), "succeeded")  # as failures they would open the circuit


def ignored(result: object) -> None:
    """Somebody else's answer."""
