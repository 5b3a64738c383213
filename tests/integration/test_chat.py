"""A retry asked for in a chat: it waits for the chat's action, whose outcome is folded into it and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.passes import Held, admission, admit, end, follow, parked, row, runs, start
from tests.rows import audits, request, say, wake_of
from tests.schedulers import InstantExecutor, Schedulers, WatchedClock

from wakeful import explain, listings, producers
from wakeful.admission import PassResult
from wakeful.errors import Conflict, InvalidInput, NotFound
from wakeful.outcomes import Admit, End, Park
from wakeful.producers import Statement
from wakeful.scheduler import Tuning
from wakeful.testing import Database, HoldAt, Statements, VirtualClock, expect_blocked

Conn = psycopg.Connection[Any]
ACME, CODER, ANN = "acme", "coder", "user:ann"
PROCESSED, FAILED = "processed", "failed"

pytestmark = pytest.mark.usefixtures("web")


def failed(conn: Conn, issue: str | None = "I-1", **arguments: Any) -> UUID:
    """A run that has failed."""
    wake = request(conn, issue, **arguments)
    run = admit(conn, wake).runs[wake]
    (key,) = start(conn)
    end(conn, key)
    return run


def asked(conn: Conn, source: UUID, **arguments: Any) -> UUID:
    """A retry that waits for its chat action; both bear this id."""
    made = producers.run(conn, producers.open_chat_action(ACME, source, ANN, **arguments))
    assert (made.outcome, made.state, made.run) == ("inserted", "deferred", None)
    assert made.wake is not None
    return made.wake


def settled(conn: Conn, action: UUID, state: str = PROCESSED, **how: Any) -> producers.ProducerResult:
    return producers.run(conn, producers.settle_chat_action(ACME, action, state, **how))


def settle(conn: Conn, *wakes: UUID) -> PassResult:
    """One settlement pass."""
    return admission().settle(conn, ACME, wakes)


def image(conn: Conn, wake: UUID) -> Any:
    """The wake's row and its physical version: any write at all changes it."""
    return conn.execute("SELECT w.*, w.xmin::text, w.ctid::text FROM wakeful.wake w WHERE id = %s", (wake,)).fetchone()


def tamper(conn: Conn, action: UUID, change: str) -> None:
    """Change an action as nobody may: around the producers, and its guards."""
    for statement in (
        "SET ROLE wakeful_owner",
        "ALTER TABLE wakeful.chat_action DISABLE TRIGGER USER",
        "RESET ROLE",
        f"{change} WHERE id = '{action}'",
        "SET ROLE wakeful_owner",
        "ALTER TABLE wakeful.chat_action ENABLE TRIGGER USER",
        "RESET ROLE",
    ):
        conn.execute(statement)


SET, DELETE = "UPDATE wakeful.chat_action SET", "DELETE FROM wakeful.chat_action"


# ── asking ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chats_retry_is_saved_with_its_action_under_one_id_and_signals_nothing(
    conn: Conn, listener: Listener
) -> None:
    source = failed(conn, payload={"a": 1}, priority=4)
    listener.heard()
    before = audits(conn)
    wake = asked(conn, source)
    saved = wake_of(conn, wake)
    assert (saved.kind, saved.agent, saved.issue, saved.payload, saved.priority) == (
        *("task_retry", CODER, "I-1", {"a": 1}, 4),
    )
    assert (saved.actor_kind, saved.actor, saved.certified_run, saved.certified_generation) == (
        "user",
        "ann",
        source,
        1,
    )
    assert (saved.owner, saved.chat_action, saved.chat_outcome) == ("settlement", str(wake), None)
    assert (saved.wait_gate, saved.wait_key, saved.wait_reason) == ("chat", str(wake), "chat.unsettled")
    assert (saved.due_at, saved.grace_from) == (None, None)
    action = conn.execute(
        "SELECT kind, state, agent, issue, source_run, actor FROM wakeful.chat_action WHERE id = %s", (wake,)
    ).fetchone()
    assert action == ("failed_run_retry", "pending", CODER, "I-1", source, ANN)
    assert audits(conn) == before + 1
    assert listener.heard() == []
    why = explain.why(conn, ACME, wake)
    assert (why.gate, why.key, why.reason) == ("chat", str(wake), "chat.unsettled")
    assert why.opens_on == f"the chat's own settlement: wakeful chat settle {wake}"
    assert why.next_look is None


def test_its_own_payload_and_key_are_kept(conn: Conn) -> None:
    source = failed(conn)
    wake = asked(conn, source, payload={"b": 2}, key="click")
    assert row(conn, wake, "payload", "key") == ({"b": 2}, "click")
    other = failed(conn, "I-2")
    again = producers.run(conn, producers.open_chat_action(ACME, other, ANN, key="click"))
    assert (again.outcome, again.wake) == ("existing", wake)


def test_it_repeats_the_comments_that_its_source_was_given(conn: Conn) -> None:
    say(conn, producers.save_comment(ACME, "I-1", "please", ANN, id="C-1", agent=CODER))
    (saved,) = conn.execute("SELECT id FROM wakeful.wake WHERE kind = 'saved_comments'").fetchone() or (None,)
    assert isinstance(saved, UUID)
    run = admit(conn, saved).runs[saved]
    (key,) = start(conn)
    end(conn, key)
    wake = asked(conn, run)
    settled(conn, wake)
    settle(conn, wake)
    again = admit(conn, wake).runs[wake]
    assert conn.execute("SELECT comments, retry_of FROM wakeful.run WHERE id = %s", (again,)).fetchone() == (
        ["C-1"],
        run,
    )


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_run_that_has_not_ended_is_not_retried_in_a_chat(conn: Conn, state: str) -> None:
    wake = request(conn)
    run = admit(conn, wake).runs[wake]
    if state == "running":
        start(conn)
    with pytest.raises(Conflict, match="has not ended"):
        producers.run(conn, producers.open_chat_action(ACME, run, ANN))


def test_what_cannot_be_retried_in_a_chat_is_refused(conn: Conn) -> None:
    source = failed(conn)
    for actor in ("agent:coder", "system:cron"):
        with pytest.raises(InvalidInput, match="by a person"):
            producers.run(conn, producers.open_chat_action(ACME, source, actor))
    with pytest.raises(NotFound, match="does not exist"):
        producers.run(conn, producers.open_chat_action(ACME, uuid4(), ANN))
    conn.execute("INSERT INTO wakeful.run (company, agent, kind) VALUES ('acme', 'coder', 'supervisor')")
    (walk,) = runs(conn, "kind = 'supervisor'")
    with pytest.raises(Conflict, match="supervisor"):
        producers.run(conn, producers.open_chat_action(ACME, walk, ANN))
    done = request(conn, "I-2")
    run = admit(conn, done).runs[done]
    (key,) = start(conn)
    end(conn, key, "succeeded")
    with pytest.raises(Conflict, match="succeeded"):
        producers.run(conn, producers.open_chat_action(ACME, run, ANN))
    assert conn.execute("SELECT count(*) FROM wakeful.chat_action").fetchone() == (0,)


@pytest.mark.parametrize("first", ["chat", "plain"])
@pytest.mark.parametrize("second", ["chat", "plain"])
def test_a_second_retry_of_one_run_is_existing_whichever_way_it_is_asked_for(
    conn: Conn, first: str, second: str
) -> None:
    source = failed(conn)
    ways: dict[str, Callable[[str], Statement]] = {
        "chat": lambda key: producers.open_chat_action(ACME, source, ANN, key=key),
        "plain": lambda key: producers.request_retry(ACME, source, key=key, actor=ANN),
    }
    made = producers.run(conn, ways[first]("a"))
    again = producers.run(conn, ways[second]("b"))
    assert (again.outcome, again.wake) == ("existing", made.wake)
    assert conn.execute("SELECT count(*) FROM wakeful.chat_action").fetchone() == (first == "chat",)
    assert conn.execute("SELECT count(*) FROM wakeful.wake_key WHERE key = 'b'").fetchone() == (0,)


def test_a_second_click_waits_for_the_firsts_fate(conn: Conn, database: Database) -> None:
    source = failed(conn)
    first, second = database.connect(autocommit=False), database.connect()
    made = producers.run(first, producers.open_chat_action(ACME, source, ANN))
    click = producers.open_chat_action(ACME, source, "user:bob")
    with expect_blocked(lambda: producers.run(second, click), behind=first, watcher=conn) as blocked:
        first.commit()
        answer = blocked.result()
    assert (answer.outcome, answer.wake) == ("existing", made.wake)
    assert conn.execute("SELECT count(*) FROM wakeful.chat_action").fetchone() == (1,)


# ── the action's own states ─────────────────────────────────────────────────────────────────────────────


def test_an_action_is_begun_once_and_settled_once(conn: Conn, listener: Listener) -> None:
    wake = asked(conn, failed(conn))
    listener.heard()
    begun = [producers.run(conn, producers.begin_chat_action(ACME, wake, actor="system:chat")) for _ in range(2)]
    assert [(one.outcome, one.wake, one.state) for one in begun] == [
        ("merged", wake, "processing"),
        ("existing", wake, "processing"),
    ]
    assert listener.heard() == []
    before = audits(conn)
    first = settled(conn, wake, FAILED, error="the chat is gone", actor="system:chat")
    assert (first.outcome, first.wake, first.state, first.run) == ("merged", wake, FAILED, None)
    assert listener.heard() == [{"t": "settlement", "c": ACME, "w": str(wake)}]
    again = settled(conn, wake, FAILED, error="in other words")
    assert (again.outcome, again.state) == ("existing", FAILED)
    for state, how in ((PROCESSED, {}), (PROCESSED, {"run": runs(conn)[0]})):
        with pytest.raises(Conflict, match="settled already: failed"):
            settled(conn, wake, state, **how)
    with pytest.raises(Conflict, match="is settled"):
        producers.run(conn, producers.begin_chat_action(ACME, wake))
    assert listener.heard() == []
    assert audits(conn) == before + 1
    kept = conn.execute("SELECT state, error, settled_by FROM wakeful.chat_action WHERE id = %s", (wake,)).fetchone()
    assert kept == (FAILED, "the chat is gone", "system:chat")


def test_an_action_settled_by_one_run_is_not_settled_by_another(conn: Conn) -> None:
    wake = asked(conn, failed(conn))
    one, two = failed(conn, "I-2"), failed(conn, "I-3")
    assert settled(conn, wake, run=one).run == one
    assert settled(conn, wake, run=one).outcome == "existing"
    with pytest.raises(Conflict, match=str(one)):
        settled(conn, wake, run=two)


@pytest.mark.parametrize(
    ("state", "how", "error"),
    [
        ("done", {}, InvalidInput),
        (FAILED, {"run": uuid4()}, InvalidInput),
        (PROCESSED, {"error": "x"}, InvalidInput),
        (PROCESSED, {"run": uuid4()}, NotFound),
        (FAILED, {"error": "é" * 32769}, InvalidInput),
    ],
)
def test_an_outcome_that_is_none_is_refused(conn: Conn, state: str, how: Any, error: type[Exception]) -> None:
    wake = asked(conn, failed(conn))
    with pytest.raises(error):
        settled(conn, wake, state, **how)
    assert conn.execute("SELECT state FROM wakeful.chat_action").fetchone() == ("pending",)


def test_an_unknown_action_is_said_to_be_unknown(conn: Conn) -> None:
    for statement in (
        producers.begin_chat_action(ACME, uuid4()),
        producers.settle_chat_action(ACME, uuid4(), PROCESSED),
    ):
        with pytest.raises(NotFound, match="chat action"):
            producers.run(conn, statement)


def test_the_database_keeps_an_actions_outcome(conn: Conn) -> None:
    wake = asked(conn, failed(conn))
    producers.run(conn, producers.begin_chat_action(ACME, wake))
    with pytest.raises(psycopg.Error, match="cannot take that step"):
        conn.execute("UPDATE wakeful.chat_action SET state = 'pending' WHERE id = %s", (wake,))
    settled(conn, wake, FAILED)
    for change in ("state = 'processed'", "settled_by = 'user:eve'", "state = 'pending', settled_at = NULL"):
        with pytest.raises(psycopg.Error, match="is final"):
            conn.execute(f"UPDATE wakeful.chat_action SET {change} WHERE id = %s", (wake,))  # noqa: S608 - a test's own words


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
        *("settled", FAILED, "chat.failed", "nobody  there", None),
    )
    assert explain.why(conn, ACME, wake).because == "nobody  there"
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


# ── roles and tenants ───────────────────────────────────────────────────────────────────────────────────


def test_a_host_asks_and_settles_and_a_scheduler_folds_with_the_rights_they_have(
    conn: Conn, database: Database
) -> None:
    host, scheduler = database.connect_as("wakeful_host"), database.connect_as("wakeful_scheduler")
    wake = asked(host, failed(conn))
    producers.run(host, producers.begin_chat_action(ACME, wake))
    settled(host, wake)
    assert settle(scheduler, wake).reopened == {wake}
    assert set(admit(scheduler, wake).runs) == {wake}
    for verb in ("SELECT FROM", "DELETE FROM"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            host.execute(f"{verb} wakeful.chat_action")


def test_another_tenants_actions_do_not_exist(conn: Conn) -> None:
    source = failed(conn)
    wake = asked(conn, source)
    say(conn, producers.add_company("b"))
    for statement in (
        producers.open_chat_action("b", source, ANN),
        producers.begin_chat_action("b", wake),
        producers.settle_chat_action("b", wake, PROCESSED),
    ):
        with pytest.raises(NotFound):
            producers.run(conn, statement)
    assert admission().settle(conn, "b", [wake]) == PassResult()


# ── whole schedulers ────────────────────────────────────────────────────────────────────────────────────


def wait_state(conn: Conn, wake: UUID, *state: Any) -> None:
    wait_until(
        lambda: row(conn, wake, "state", "reason") == state, what=f"{state} of {row(conn, wake, 'state', 'error')}"
    )


def wait_ran(conn: Conn, wake: UUID) -> None:
    wait_until(lambda: len(runs(conn, "wake = %s AND ended_at IS NOT NULL", wake)) == 1, what="its run")


def test_a_settlement_reaches_its_receipt_at_once(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    fleet.start(executor=executor)
    sources = [failed_by(conn, executor, f"C-{n}") for n in range(3)]
    failing, led, free = (asked(conn, source) for source in sources)
    settled(conn, failing, FAILED)
    settled(conn, led, run=sources[0])
    settled(conn, free)
    wait_state(conn, failing, "settled", "chat.failed")
    wait_state(conn, led, "settled", "chat.processed")
    wait_ran(conn, free)
    assert len(executor.submitted) == 4


def failed_by(conn: Conn, executor: InstantExecutor, issue: str) -> UUID:
    """A run that the scheduler's executor ended as failed."""
    executor.exit_code = 3
    wake = request(conn, issue)
    wait_ran(conn, wake)
    executor.exit_code = 0
    (run,) = runs(conn, "wake = %s", wake)
    return run


def test_25_minutes_with_unsettled_and_settled_retries_are_silent(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    executor = InstantExecutor()
    scheduler = fleet.start(Tuning(clock=watched), executor=executor)
    sources = [failed_by(conn, executor, f"C-{n}") for n in range(4)]  # a fifth would open the circuit
    say(conn, producers.pause_agent(ACME, CODER))
    wakes = [asked(conn, source) for source in sources]
    settled(conn, wakes[0], FAILED)
    settled(conn, wakes[1], run=sources[0])
    settled(conn, wakes[2])
    wait_state(conn, wakes[0], "settled", "chat.failed")
    wait_state(conn, wakes[1], "settled", "chat.processed")
    wait_until(lambda: row(conn, wakes[2], "wait_reason") == ("agent.paused_manual",), what="its park")
    watched.settle()
    watched.step(31)  # the one revalidation after the one grace
    passes, images = scheduler.driver.passes, [image(conn, wake) for wake in wakes]
    statements.reset()
    for _ in range(25):
        watched.step(60)
    of_the_clock = ("UPDATE wakeful.clock SET shift = $1", "BEGIN ISOLATION LEVEL READ COMMITTED", "COMMIT")
    ran = {one.text: one.calls for one in statements.executed()}
    ran.pop("SET LOCAL ROLE wakeful_owner", None)  # the clock's; a prepared one is counted at its first use only
    assert ran == dict.fromkeys(of_the_clock, 25)
    assert (scheduler.driver.passes, len(executor.submitted)) == (passes, 4)
    assert [image(conn, wake) for wake in wakes] == images
    # And nothing of that was sleep for ever.
    settled(conn, wakes[3])
    wait_until(lambda: row(conn, wakes[3], "wait_reason") == ("agent.paused_manual",), what="its park")
    say(conn, producers.resume_agent(ACME, CODER))
    for wake in (wakes[2], wakes[3]):
        wait_ran(conn, wake)
    assert len(executor.submitted) == 6


def test_a_settlement_that_no_scheduler_heard_is_found_by_its_stored_deadline(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    first = fleet.start(executor=executor)
    sources = [failed_by(conn, executor, f"C-{n}") for n in range(3)]
    failing, led, free = (asked(conn, source) for source in sources)
    assert first.stop()
    settled(conn, failing, FAILED)
    settled(conn, led, run=sources[0])
    settled(conn, free)
    fleet.start(executor=executor)
    wait_state(conn, failing, "settled", "chat.failed")
    wait_state(conn, led, "settled", "chat.processed")
    wait_ran(conn, free)
    assert len(executor.submitted) == 4
    # It was the settlement pass that found them, not the look behind each gate that follows a start.
    assert [row(conn, wake, "chat_outcome")[0] for wake in (failing, led, free)] == [FAILED, PROCESSED, PROCESSED]


@pytest.mark.parametrize("point", ["admission_before_commit", "admission_after_commit"])
def test_a_session_lost_in_a_settlement_pass_loses_no_settlement(conn: Conn, fleet: Schedulers, point: str) -> None:
    executor = InstantExecutor()
    first = fleet.start(executor=executor)
    source = failed_by(conn, executor, "I-1")
    wake = asked(conn, source)
    assert first.stop()
    settled(conn, wake, FAILED)
    hold = HoldAt(point)
    fleet.start(Tuning(crash=hold), executor=executor)
    hold.wait_reached()
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'wakeful driver'"
    )
    hold.release()
    wait_state(conn, wake, "settled", "chat.failed")
    assert len(executor.submitted) == 1


def test_a_start_judges_an_open_chats_retry_like_any_other(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    first = fleet.start(executor=executor)
    wake = asked(conn, failed_by(conn, executor, "I-1"))
    assert first.stop()
    fleet.start(executor=executor)
    wait_ran(conn, wake)
    assert settled(conn, wake, FAILED).outcome == "merged"
    assert row(conn, wake, "state") == ("linked",)


# ── a company's data; the command line ──────────────────────────────────────────────────────────────────


def test_erasing_a_company_takes_the_chats_words_and_keeps_their_hash(conn: Conn) -> None:
    wake = asked(conn, failed(conn))
    settled(conn, wake, FAILED, error="ann said no")
    settle(conn, wake)
    say(conn, producers.archive_company(ACME), producers.erase_company(ACME))
    action = conn.execute("SELECT error FROM wakeful.chat_action WHERE id = %s", (wake,)).fetchone()
    for text in (*(action or ()), *row(conn, wake, "wait_message")):
        assert text.startswith("erased sha256:")


def test_an_expired_wake_takes_its_action_along(conn: Conn) -> None:
    wake = asked(conn, failed(conn))
    settled(conn, wake, FAILED)
    settle(conn, wake)
    conn.execute("DELETE FROM wakeful.wake WHERE id = %s", (wake,))
    assert conn.execute("SELECT count(*) FROM wakeful.chat_action").fetchone() == (0,)


def test_chat_actions_are_listed_newest_first_in_pages(conn: Conn) -> None:
    wakes = [asked(conn, failed(conn, f"C-{n}")) for n in range(5)]
    settled(conn, wakes[2], FAILED)
    found, after = [], None
    while True:
        page = listings.page(conn, "chats", company=ACME, limit=2, after=after)
        found += [line["id"] for line in page.rows]
        if (after := page.after) is None:
            break
    assert found == wakes[::-1]
    (one,) = listings.page(conn, "chats", company=ACME, states=["failed"]).rows
    assert one["id"] == wakes[2]
    with pytest.raises(NotFound, match="chat action"):
        listings.chat(conn, ACME, uuid4())


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "data", database.dsn, {"WAKEFUL_COMPANY": ACME})


def test_the_command_line_asks_begins_settles_lists_and_shows(cli: CommandLine, conn: Conn) -> None:
    source = failed(conn)
    assert "by a person" in cli("chat", "retry", str(source), "--as", "system:cron").err
    made = cli("chat", "retry", str(source), "--as", ANN, "--payload", '{"b": 2}', "--json").json
    assert (made["outcome"], made["retry_of"], made["state"]) == ("inserted", str(source), "deferred")
    action = made["wake"]
    assert "exists already, deferred" in cli("chat", "retry", str(source), "--as", ANN).out
    assert cli("chat", "begin", action).out == f"chat action {action}: processing\n"
    assert cli("chat", "begin", action[:13]).out == f"chat action {action}: processing, as before\n"
    assert [line["id"] for line in cli("chat", "list", "--state", "processing", "--json").json["rows"]] == [action]
    assert "chat.unsettled" in cli("why", action, "--json").out
    unsaid = cli("chat", "settle", action)
    assert (unsaid.code, "--processed or --failed" in unsaid.err) == (2, True)
    assert cli("chat", "settle", action, "--failed", "--error", "no").out == f"chat action {action}: failed\n"
    assert cli("chat", "settle", action, "--failed").out == f"chat action {action}: failed, as before\n"
    assert cli("chat", "settle", action, "--processed", "--run", str(source)).code == 4
    shown = cli("chat", "show", action, "--json").json
    assert (shown["state"], shown["error"], shown["source_run"]) == ("failed", "no", str(source))
    assert "failed" in cli("chat", "show", action).out
    assert cli("chat", "show", "0199aaaa").code == 1
