"""A chat's retry waits for the action, whose outcome a settlement pass folds into it; and when it is judged before."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.chats import ACME, ANN, CODER, DELETE, FAILED, PROCESSED, SET, asked, failed, image, settle, settled, tamper
from tests.conftest import Listener
from tests.passes import Held, admission, admit, follow, parked, row, runs
from tests.rows import request, say

from wakeful import explain, producers
from wakeful.admission import PassResult
from wakeful.errors import Conflict
from wakeful.outcomes import Admit, End, Park
from wakeful.producers import Statement
from wakeful.testing import Database, HoldAt, VirtualClock, expect_blocked

Conn = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("web")


# ── the settlement pass ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("begun", [False, True])
def test_a_settlement_pass_writes_nothing_while_the_action_is_not_settled(
    conn: Conn, listener: Listener, begun: bool
) -> None:
    wake = asked(conn, failed(conn))
    if begun:
        producers.run(conn, producers.begin_chat_action(ACME, wake))
    before = image(conn, wake)
    listener.heard()
    for _ in range(3):
        assert settle(conn, wake) == PassResult()
    assert image(conn, wake) == before
    assert listener.heard() == []
    assert runs(conn, "state = 'queued'") == []


def test_an_action_that_led_to_a_run_settles_its_retry_into_that_run(conn: Conn, listener: Listener) -> None:
    source = failed(conn)
    wake = asked(conn, source)
    led = failed(conn, "I-2")
    settled(conn, wake, run=led)
    assert row(conn, wake, "state", "owner", "due_at <= wakeful.wall()") == ("deferred", "settlement", True)
    listener.heard()
    result = settle(conn, wake)
    assert result.outcomes == {wake: End("settled", "chat.processed", f"the chat led to run {led}", into=led)}
    assert row(conn, wake, "state", "chat_outcome", "reason", "coalesced_into", "run", "due_at") == (
        *("settled", PROCESSED, "chat.processed", led, led, None),
    )
    assert listener.heard() == []
    assert runs(conn, "state = 'queued'") == []
    again = producers.run(conn, producers.request_retry(ACME, source, key="another"))
    assert (again.outcome, again.wake, again.run) == ("existing", wake, led)


def test_a_failed_action_settles_its_retry_without_a_run(conn: Conn) -> None:
    source = failed(conn)
    wake = asked(conn, source)
    settled(conn, wake, FAILED, error="nobody  there")
    settle(conn, wake)
    assert row(conn, wake, "state", "chat_outcome", "reason", "wait_message", "run") == (
        *("settled", FAILED, "chat.failed", "the chat could not process it: nobody  there", None),
    )
    assert explain.why(conn, ACME, wake).because == "the chat could not process it: nobody  there"
    assert runs(conn, "state = 'queued'") == []
    # It ended without a run, so the person may try again.
    again = asked(conn, source)
    assert again != wake
    settled(conn, again, FAILED)
    settle(conn, again)
    assert explain.why(conn, ACME, again).because == "the chat could not process it"


def test_an_action_processed_without_a_run_gives_its_retry_back_to_the_ordinary_ones(
    conn: Conn, listener: Listener
) -> None:
    source = failed(conn)
    wake = asked(conn, source)
    settled(conn, wake)
    result = settle(conn, wake)
    assert (result.outcomes, result.runs, result.reopened) == ({}, {}, {wake})
    assert row(conn, wake, "state", "owner", "chat_outcome", "wait_gate", "wait_reason", "opens_on") == (
        *("deferred", "task_retry", PROCESSED, None, None, None),
    )
    assert row(conn, wake, "due_at <= wakeful.wall()") == (True,)
    listener.heard()
    result = admit(conn, wake)
    assert result.outcomes == {wake: Admit(source)}
    assert runs(conn, "retry_of = %s", source) == [result.runs[wake]]


def test_a_processed_action_is_never_asked_again_while_its_retry_waits(conn: Conn, listener: Listener) -> None:
    source = failed(conn)
    wake = asked(conn, source)
    say(conn, producers.pause_agent(ACME, CODER))
    settled(conn, wake)
    settle(conn, wake)
    assert parked(admit(conn, wake), wake) == "agent.paused_manual"
    assert row(conn, wake, "owner", "chat_outcome") == ("execution_wait", PROCESSED)
    before = image(conn, wake)
    listener.heard()
    with pytest.raises(Conflict):
        settled(conn, wake, FAILED)
    # Whatever the action says from here on is nothing to the retry.
    for change in ("state = 'failed'", "source_run = NULL", "state = 'pending', settled_at = NULL"):
        tamper(conn, wake, f"{SET} {change}")
        assert settle(conn, wake) == PassResult()
    assert settled(conn, wake, FAILED).outcome == "merged"
    assert settle(conn, wake) == PassResult()
    tamper(conn, wake, DELETE)
    assert settle(conn, wake) == PassResult()
    assert image(conn, wake) == before
    assert listener.heard() == []
    say(conn, producers.resume_agent(ACME, CODER))
    assert follow(conn, listener.heard()) == [wake]
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit(source)}


@pytest.mark.parametrize(
    "change",
    [
        f"{SET} agent = 'other'",
        f"{SET} issue = 'I-2'",
        f"{SET} source_run = gen_random_uuid()",
        f"{SET} actor = 'user:eve'",
        f"{SET} actor = 'user:eve', state = 'pending', settled_at = NULL",
        DELETE,
    ],
    ids=["agent", "issue", "run", "actor", "actor of an open one", "gone"],
)
@pytest.mark.parametrize("way", ["settlement", "ordinary"])
def test_an_unauthorised_answer_is_a_failure_and_no_wait(conn: Conn, listener: Listener, change: str, way: str) -> None:
    """A 409: the error and the next try stand in the row; what it waits for stays as it is."""
    say(conn, producers.create_issue(ACME, "I-2"))
    wake, good = asked(conn, failed(conn)), asked(conn, failed(conn, "I-3"))
    settled(conn, wake)
    tamper(conn, wake, change)
    settled(conn, good, FAILED)
    kept = row(conn, wake, "version", "wait_gate", "wait_reason", "wait_since", "grace_from", "chat_outcome", "owner")
    listener.heard()
    tries = []
    for failures in (1, 2, 3):
        result = settle(conn, wake, good) if way == "settlement" else admit(conn, wake, good, signalled=True)
        assert set(result.set_aside) == {wake}
        assert wake not in result.outcomes
        state, count, error, due = row(conn, wake, "state", "failures", "error", "due_at - wakeful.wall()")
        assert (state, count) == ("deferred", failures)
        assert error == f"Conflict: no chat action bears out retry {wake}"
        tries.append(due)
    assert tries == sorted(tries)
    assert (
        row(conn, wake, "version", "wait_gate", "wait_reason", "wait_since", "grace_from", "chat_outcome", "owner")
        == kept
    )
    assert row(conn, good, "state", "reason") == ("settled", "chat.failed"), "it held up another one"
    assert listener.heard() == []
    assert runs(conn, "state = 'queued'") == []


def test_one_pass_settles_each_receipt_by_its_own_action(conn: Conn) -> None:
    sources = [failed(conn, f"C-{n}") for n in range(5)]
    open_, failing, led, free, odd = (asked(conn, source) for source in sources)
    settled(conn, failing, FAILED)
    settled(conn, led, run=sources[0])
    settled(conn, free)
    settled(conn, odd)
    tamper(conn, odd, f"{SET} actor = 'user:eve'")
    plain = request(conn, "C-9")
    result = settle(conn, open_, failing, led, free, odd, plain, uuid4())
    assert set(result.outcomes) == {failing, led}
    assert (result.reopened, set(result.set_aside), result.busy) == ({free}, {odd}, frozenset())
    assert row(conn, open_, "state", "due_at") == ("deferred", None)
    assert row(conn, plain, "state", "version") == ("deferred", 1)


def test_a_row_that_somebody_holds_comes_back(conn: Conn, database: Database) -> None:
    wake = asked(conn, failed(conn))
    settled(conn, wake, FAILED)
    with database.connect().transaction() as holding:
        holding.connection.execute("SELECT FROM wakeful.wake WHERE id = %s FOR UPDATE", (wake,))
        assert settle(conn, wake) == PassResult(busy=frozenset({wake}))
    assert set(settle(conn, wake).outcomes) == {wake}


def test_a_settlement_that_meets_a_pass_waits_for_it(conn: Conn, database: Database) -> None:
    """The pass has read the action as unsettled; the settlement comes after it, with a signal of its own."""
    wake = asked(conn, failed(conn))
    hold = HoldAt("admission_before_commit")
    other = database.connect()
    held = Held(lambda: admission(crash=hold).settle(other, ACME, [wake]))
    hold.wait_reached()
    with expect_blocked(lambda: settled(database.connect(), wake, FAILED), behind=other, watcher=conn) as blocked:
        hold.release()
        assert held.result() == PassResult()
        assert blocked.result().outcome == "merged"
    assert set(settle(conn, wake).outcomes) == {wake}


def test_a_pass_that_meets_a_settlement_finds_its_row_busy(conn: Conn, database: Database) -> None:
    wake = asked(conn, failed(conn))
    chat = database.connect(autocommit=False)
    settled(chat, wake, FAILED)
    assert settle(conn, wake) == PassResult(busy=frozenset({wake}))
    chat.commit()
    assert set(settle(conn, wake).outcomes) == {wake}


# ── eligibility ─────────────────────────────────────────────────────────────────────────────────────────

CHANGES: list[tuple[str, list[Statement], Statement, str]] = [
    ("company", [producers.pause_company(ACME)], producers.resume_company(ACME), "company.paused"),
    ("agent", [producers.pause_agent(ACME, CODER)], producers.resume_agent(ACME, CODER), "agent.paused_manual"),
    ("project", [producers.pause_project(ACME, "web")], producers.resume_project(ACME, "web"), "project.paused_manual"),
    (
        "budget",
        [producers.set_budget(ACME, "agent:coder", 5), producers.add_spend(ACME, 5, agent=CODER)],
        producers.raise_budget(ACME, "agent:coder", amount=9),
        "budget.exhausted",
    ),
    ("hold", [producers.hold_issue(ACME, "I-0")], producers.release_hold(ACME, "I-0"), "hold.pause"),
    (
        "dependency",
        [producers.add_dependency(ACME, "I-1", "I-8")],
        producers.set_issue_status(ACME, "I-8", "done"),
        "dependency.open",
    ),
    (
        "execution",
        [producers.open_lease(ACME, "box", "I-1")],
        producers.close_lease(ACME, "box"),
        "execution.environment",
    ),
]


# What opens the agent's or everybody's gates reaches its other retries as well.
OF_ALL = ("resume_company", "resume_agent", "raise_budget")


@pytest.fixture
def tree(conn: Conn, web: None) -> None:
    """I-1 in its project, below I-0."""
    say(conn, producers.create_issue(ACME, "I-0", project="web"), producers.create_issue(ACME, "I-8"))
    conn.execute("UPDATE wakeful.issue SET parent = 'I-0' WHERE id = 'I-1'")


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(("closed", "opens", "reason"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_real_eligibility_change_judges_it_like_any_retry(
    conn: Conn, listener: Listener, closed: list[Statement], opens: Statement, reason: str
) -> None:
    source = failed(conn)
    say(conn, *closed)
    wake = asked(conn, source)
    # Whoever looks at it while the gate is closed finds the gate; the action is still awaited.
    assert parked(admit(conn, wake, signalled=True), wake) == reason
    assert row(conn, wake, "owner", "chat_outcome") == ("settlement", None)
    listener.heard()
    say(conn, opens)
    assert follow(conn, listener.heard()) == [wake]
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit(source)}


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(("closed", "opens"), [c[1:3] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_it_is_reached_while_it_waits_for_its_action_alone(
    conn: Conn, listener: Listener, closed: list[Statement], opens: Statement
) -> None:
    """Nobody has looked at it since it was saved: it is parked on its action, and on no gate."""
    source, elsewhere = failed(conn), failed(conn, "I-7")
    say(conn, *closed)
    wake = asked(conn, source)
    stays = asked(conn, elsewhere)
    listener.heard()
    say(conn, opens)
    reached = follow(conn, listener.heard())
    assert wake in reached
    assert (stays in reached) == (opens.function in OF_ALL)


@pytest.mark.parametrize(
    "change",
    [
        producers.pause_agent(ACME, "other"),
        producers.signal_gate(ACME, "weather", "rain"),
        producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=9),
        producers.set_budget(ACME, "agent:other", 1),
        producers.create_issue(ACME, "I-9"),
        producers.request_wake(ACME, CODER, "I-1"),
    ],
)
def test_what_is_no_eligibility_change_of_its_leaves_it_to_its_action(
    conn: Conn, listener: Listener, change: Statement
) -> None:
    asked(conn, failed(conn))
    listener.heard()
    say(conn, change)
    assert follow(conn, listener.heard()) == []


def test_other_companies_gates_are_nothing_to_it(conn: Conn, listener: Listener) -> None:
    asked(conn, failed(conn))
    say(conn, producers.add_company("b"), producers.pause_company("b"))
    listener.heard()
    say(conn, producers.resume_company("b"))
    assert follow(conn, listener.heard()) == []


def test_a_retry_that_ran_before_its_action_settled_stays_as_it_is(conn: Conn, listener: Listener) -> None:
    source = failed(conn)
    wake = asked(conn, source)
    run = admit(conn, wake, signalled=True).runs[wake]
    before = image(conn, wake)
    listener.heard()
    answer = settled(conn, wake, FAILED)
    assert (answer.outcome, answer.state) == ("merged", FAILED)
    assert listener.heard() == []
    assert settle(conn, wake) == PassResult()
    assert image(conn, wake) == before
    assert row(conn, wake, "state", "run") == ("linked", run)


@pytest.mark.parametrize(("state", "led"), [(FAILED, False), (PROCESSED, True), (PROCESSED, False)])
def test_an_ordinary_look_between_settlement_and_its_pass_runs_nothing_twice(conn: Conn, state: str, led: bool) -> None:
    """A start looks behind gates while the settlement still waits for its pass."""
    source = failed(conn)
    wake = asked(conn, source)
    run = failed(conn, "I-2") if led else None
    settled(conn, wake, state, run=run)
    outcome = admit(conn, wake, signalled=True).outcomes[wake]
    if state == PROCESSED and not led:
        assert outcome == Admit(source)
    else:
        assert isinstance(outcome, End)
        assert (outcome.state, outcome.into) == ("settled", run)
        assert runs(conn, "state = 'queued'") == []
        assert row(conn, wake, "run", "chat_outcome") == (run, state)
        # A second click on the source answers with the run that the chat led to.
        again = producers.run(conn, producers.request_retry(ACME, source))
        assert (again.outcome, again.run) == (("existing", run) if led else ("inserted", None))


def test_an_interrupt_does_not_run_again_what_its_chat_led_to(conn: Conn) -> None:
    """The chat's pass is still to come, and the marker makes the receipt the interrupt's to time."""
    say(conn, producers.assign_issue(ACME, "I-1", "agent:coder"))
    wake = producers.run(conn, producers.save_comment(ACME, "I-1", "words", ANN)).wake
    assert wake is not None
    source = admit(conn, wake).runs[wake]
    say(conn, producers.stop_run(ACME, source))  # before it started: its words are still to be delivered
    action = asked(conn, source)
    run = failed(conn, "I-2")
    settled(conn, action, PROCESSED, run=run)
    say(conn, producers.interrupt_issue(ACME, "I-1", actor=ANN))
    assert row(conn, action, "owner") == ("interrupt",)
    assert isinstance(admit(conn, action).outcomes[action], End)
    assert row(conn, action, "state", "run", "chat_outcome") == ("settled", run, PROCESSED)
    assert runs(conn, "retry_of = %s", source) == []


def test_the_end_of_a_grace_is_an_ordinary_look_and_then_silence(conn: Conn, clock: VirtualClock) -> None:
    """Parked on its true gate it is timed like any wait, though its action has not settled."""
    wake = asked(conn, failed(conn))
    say(conn, producers.pause_agent(ACME, CODER))
    first = admit(conn, wake, signalled=True).outcomes[wake]
    version = row(conn, wake, "version")
    assert settle(conn, wake) == PassResult(), "its grace is not over"
    clock.advance(31)
    outcome = settle(conn, wake).outcomes[wake]
    assert isinstance(first, Park)
    assert outcome == Park(first.refusal, None, changed=False)
    assert row(conn, wake, "due_at", "version", "owner") == (None, *version, "settlement")
    before = image(conn, wake)
    assert settle(conn, wake) == PassResult()
    assert image(conn, wake) == before


def test_a_retry_settled_behind_its_gate_is_judged_there_anew(conn: Conn) -> None:
    source = failed(conn)
    wake = asked(conn, source)
    say(conn, producers.pause_agent(ACME, CODER))
    admit(conn, wake, signalled=True)
    settled(conn, wake)
    assert settle(conn, wake).reopened == {wake}
    assert parked(admit(conn, wake), wake) == "agent.paused_manual"
    assert row(conn, wake, "owner") == ("execution_wait",)


@pytest.mark.parametrize(
    ("change", "end_as"),
    [
        (producers.set_issue_status(ACME, "I-1", "done"), ("retired", "issue.terminal")),
        (producers.assign_issue(ACME, "I-1", "user:bob"), ("cancelled", "retry.reassigned")),
        (producers.terminate_agent(ACME, CODER), ("retired", "agent.terminated")),
    ],
)
def test_what_ends_a_retry_ends_it_while_its_action_is_open(
    conn: Conn, change: Statement, end_as: tuple[str, str]
) -> None:
    wake = asked(conn, failed(conn))
    say(conn, change)
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "state", "reason") == end_as
    before = image(conn, wake)
    settled(conn, wake)
    assert settle(conn, wake) == PassResult()
    assert image(conn, wake) == before


def test_a_new_run_of_the_issue_supersedes_it(conn: Conn) -> None:
    wake = asked(conn, failed(conn))
    newer = failed(conn)
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "state", "reason", "coalesced_into") == ("retired", "retry.superseded", newer)


def test_an_edit_of_what_it_repeats_does_not_have_it_looked_at(conn: Conn, listener: Listener) -> None:
    say(conn, producers.assign_issue(ACME, "I-1", "agent:coder"))
    wake = producers.run(conn, producers.save_comment(ACME, "I-1", "words", ANN, id="c-1")).wake
    assert wake is not None
    source = admit(conn, wake).runs[wake]
    say(conn, producers.stop_run(ACME, source))
    action = asked(conn, source)
    before = row(conn, action, "due_at", "grace_from", "wait_reason")
    listener.heard()
    say(conn, producers.edit_comment(ACME, "c-1", "other words", 1, actor=ANN))
    assert row(conn, action, "due_at", "grace_from", "wait_reason") == before == (None, None, "chat.unsettled")
    assert listener.heard() == []
    settled(conn, action)
    due = row(conn, action, "due_at")
    say(conn, producers.edit_comment(ACME, "c-1", "words again", 2, actor=ANN))
    assert row(conn, action, "due_at") == due
