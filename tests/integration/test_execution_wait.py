"""The execution wait: one grace for a first or changed reason, one look, then silence until the gate's own producer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.passes import admission, admit, end, follow, parked, row, runs, start
from tests.rows import after, request, say, wake_of
from tests.schedulers import InstantExecutor, Schedulers, WatchedClock

from wakeful import hookimpl, producers
from wakeful.outcomes import Admit, Park, Proceed, Verdict
from wakeful.receipts import Fact
from wakeful.scheduler import Tuning
from wakeful.testing import VirtualClock

Conn = psycopg.Connection[Any]
ACME, CODER = "acme", "coder"
ACCOUNT = "claude/default"

pytestmark = pytest.mark.usefixtures("web")


def but(conn: Conn, wake: UUID, *columns: str) -> dict[str, Any]:
    """The wake's row without some columns."""
    return {name: value for name, value in wake_of(conn, wake)._asdict().items() if name not in columns}


# ── one grace ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_first_reason_and_each_changed_one_is_written_with_one_grace(conn: Conn, clock: VirtualClock) -> None:
    wake = request(conn)
    for step, (closes, reason) in enumerate(
        (
            (producers.hold_issue(ACME, "I-1"), "hold.pause"),
            (producers.pause_project(ACME, "web"), "project.paused_manual"),
            (producers.pause_agent(ACME, CODER), "agent.paused_manual"),
            (producers.pause_company(ACME), "company.paused"),
        )
    ):
        say(conn, closes)
        assert parked(admit(conn, wake, signalled=step > 0), wake) == reason
        saved = wake_of(conn, wake)
        assert (saved.owner, saved.version, saved.wait_reason) == ("execution_wait", 2 + step, reason)
        assert abs(saved.wait_since - saved.grace_from) < timedelta(seconds=1)
        assert abs(saved.due_at - saved.grace_from - timedelta(seconds=30)) < timedelta(seconds=1)
        clock.advance(31)
        assert admit(conn, wake).outcomes[wake] == Park(refusal_of(conn, wake), None, changed=False)
        assert (wake_of(conn, wake).version, wake_of(conn, wake).due_at) == (2 + step, None)


def refusal_of(conn: Conn, wake: UUID) -> Any:
    outcome = admit(conn, wake, signalled=True).outcomes[wake]
    assert isinstance(outcome, Park)
    return outcome.refusal


def test_a_reason_that_comes_back_is_a_changed_one(conn: Conn) -> None:
    wake = request(conn)
    say(conn, producers.hold_issue(ACME, "I-1"))
    admit(conn, wake)
    say(conn, producers.pause_agent(ACME, CODER))
    admit(conn, wake, signalled=True)
    say(conn, producers.resume_agent(ACME, CODER))
    assert parked(admit(conn, wake, signalled=True), wake) == "hold.pause"
    assert row(conn, wake, "version") == (4,)


def test_another_key_of_the_same_gate_is_a_changed_reason(conn: Conn) -> None:
    say(conn, producers.create_issue(ACME, "I-0"))
    conn.execute("UPDATE wakeful.issue SET parent = 'I-0' WHERE id = 'I-1'")
    wake = request(conn)
    say(conn, producers.hold_issue(ACME, "I-0"))
    admit(conn, wake)
    assert row(conn, wake, "wait_key", "version") == ("I-0", 2)
    say(conn, producers.hold_issue(ACME, "I-1"))
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "wait_key", "version") == ("I-1", 3)


@pytest.mark.parametrize("looks", [1, 5])
def test_the_same_reason_again_moves_nothing_but_when_it_was_examined(
    conn: Conn, listener: Listener, clock: VirtualClock, looks: int
) -> None:
    wake = request(conn)
    say(conn, producers.pause_agent(ACME, CODER))
    admit(conn, wake)
    listener.heard()
    before = but(conn, wake, "examined_at")
    for _ in range(looks):
        clock.advance(4)
        admit(conn, wake, signalled=True)
    assert but(conn, wake, "examined_at") == before
    clock.advance(31)
    admit(conn, wake)
    assert but(conn, wake, "examined_at") == {**before, "due_at": None}
    for signalled in (True, False) * looks:
        clock.advance(31)
        admit(conn, wake, signalled=signalled)
    assert but(conn, wake, "examined_at") == {**before, "due_at": None}
    assert listener.heard() == []


def test_a_pass_that_finds_the_same_reason_leaves_the_row_alone_altogether(conn: Conn, clock: VirtualClock) -> None:
    wake = request(conn)
    say(conn, producers.pause_agent(ACME, CODER))
    admit(conn, wake)
    clock.advance(31)
    admit(conn, wake)
    at = conn.execute("SELECT xmin::text, ctid::text FROM wakeful.wake WHERE id = %s", (wake,)).fetchone()
    admit(conn, wake, signalled=True)
    assert conn.execute("SELECT xmin::text, ctid::text FROM wakeful.wake WHERE id = %s", (wake,)).fetchone() == at


def test_one_look_at_the_end_of_the_grace_and_none_after_it(
    conn: Conn, fleet: Schedulers, watched: WatchedClock
) -> None:
    scheduler = fleet.start(Tuning(clock=watched))
    say(conn, producers.pause_agent(ACME, CODER))
    wake = request(conn)
    wait_until(lambda: row(conn, wake, "wait_reason") == ("agent.paused_manual",), what="its wait")
    watched.settle()
    passes = scheduler.driver.passes
    watched.step(29)
    assert scheduler.driver.passes == passes
    watched.step(2)
    assert scheduler.driver.passes == passes + 1
    watched.step(3600)
    assert scheduler.driver.passes == passes + 1
    assert row(conn, wake, "due_at") == (None,)


@pytest.mark.parametrize("kind", ["retry", "request", "chat"])
def test_a_wait_of_any_kind_opens_by_its_gates_producer(conn: Conn, listener: Listener, kind: str) -> None:
    first = request(conn)
    run = admit(conn, first).runs[first]
    (key,) = start(conn)
    end(conn, key)
    say(conn, producers.open_lease(ACME, "box", "I-1"))
    if kind == "request":
        wake = request(conn)
    elif kind == "retry":
        wake = made(conn, producers.request_retry(ACME, run))
    else:
        wake = made(conn, producers.open_chat_action(ACME, run, "user:ann"))
        say(conn, producers.settle_chat_action(ACME, wake, "processed"))
        admission().settle(conn, ACME, [wake])
    assert parked(admit(conn, wake), wake) == "execution.environment"
    assert row(conn, wake, "owner") == ("execution_wait",)
    listener.heard()
    say(conn, producers.close_lease(ACME, "box"))
    assert follow(conn, listener.heard()) == [wake]
    assert set(admit(conn, wake, signalled=True).runs) == {wake}


def made(conn: Conn, statement: producers.Statement) -> UUID:
    wake = producers.run(conn, statement).wake
    assert wake is not None
    return wake


def test_a_recovery_action_is_waited_for_by_its_id(conn: Conn, listener: Listener) -> None:
    wake = request(conn)
    action = made(conn, producers.open_recovery(ACME, "I-1", "odd"))
    assert parked(admit(conn, wake), wake) == "recovery.open"
    assert row(conn, wake, "wait_gate", "wait_key") == ("recovery", str(action))
    listener.heard()
    say(conn, producers.resolve_recovery(ACME, action))
    assert follow(conn, listener.heard()) == [wake]
    assert set(admit(conn, wake, signalled=True).runs) == {wake}


# ── clocks that open gates ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def limited(conn: Conn, web: None) -> None:
    """The agent's account is closed for ten minutes."""
    say(conn, producers.add_agent(ACME, CODER, ["true"], provider="claude"))
    say(conn, producers.close_account(ACME, ACCOUNT, until=after(conn, 600)))


@pytest.mark.usefixtures("limited")
def test_a_gate_that_the_clock_opens_is_a_stored_deadline(conn: Conn, clock: VirtualClock) -> None:
    wake = request(conn)
    assert parked(admit(conn, wake), wake) == "provider.limited"
    due, opens = row(conn, wake, "due_at - grace_from", "reopens_at - grace_from")
    assert due < timedelta(seconds=31) < timedelta(seconds=590) < opens
    clock.advance(31)
    admit(conn, wake)
    assert row(conn, wake, "due_at = reopens_at") == (True,)
    (version,) = row(conn, wake, "version")
    clock.advance(500)
    before = but(conn, wake)
    admit(conn, wake, signalled=True)
    assert but(conn, wake) == before
    clock.advance(100)
    assert admit(conn, wake).outcomes == {wake: Admit()}
    assert row(conn, wake, "version") == (version + 1,)


@pytest.mark.usefixtures("limited")
def test_a_clock_that_is_moved_forward_moves_the_stored_deadline_and_nothing_else(
    conn: Conn, listener: Listener, clock: VirtualClock
) -> None:
    wake = request(conn)
    admit(conn, wake)
    clock.advance(31)
    admit(conn, wake)
    before = but(conn, wake, "due_at", "reopens_at", "examined_at")
    listener.heard()
    sooner = after(conn, 60)
    say(conn, producers.close_account(ACME, ACCOUNT, until=sooner))
    assert follow(conn, listener.heard()) == [wake]
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "due_at", "reopens_at") == (sooner, sooner)
    assert but(conn, wake, "due_at", "reopens_at", "examined_at") == before
    say(conn, producers.close_account(ACME, ACCOUNT, until=after(conn, 900)))
    assert follow(conn, listener.heard()) == [], "later is no news: the old deadline brings the look"
    clock.advance(61)
    admit(conn, wake)
    assert row(conn, wake, "due_at > wakeful.wall()", "version") == (True, before["version"])


# ── damaged receipts ────────────────────────────────────────────────────────────────────────────────────


class Odd:
    """Cannot read some of its receipts."""

    name, kinds = "odd", frozenset({"odd"})
    reads_payload = True

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        for fact in facts:
            if fact.payload != "{}":
                raise ValueError(f"nobody can read {fact.payload}")
        return [Proceed() for _ in facts]


class OddPlugin:
    @hookimpl
    def register_owners(self) -> Any:
        return [Odd()]


def spoil(conn: Conn, column: str, value: Any) -> Callable[[UUID], None]:
    return lambda wake: conn.execute(f"UPDATE wakeful.wake SET {column} = %s WHERE id = %s", (value, wake)) and None  # noqa: S608 - a test's own words


def damaged(conn: Conn, source: UUID) -> dict[str, UUID]:
    """Receipts that no producer would have saved like this, by what is wrong with them."""
    wakes = {
        "unreadable": request(conn, None, kind="odd", payload=[1]),
        "source gone": made(conn, producers.request_retry(ACME, source)),
        "unknown kind": request(conn, None, kind="nobody"),
        "unknown gate": request(conn, None),
    }
    spoil(conn, "certified_run", uuid4())(wakes["source gone"])
    conn.execute(
        "UPDATE wakeful.wake SET wait_gate = 'nonsense', wait_key = 'x', wait_reason = 'non.sense' WHERE id = %s",
        (wakes["unknown gate"],),
    )
    return wakes


def test_damaged_receipts_starve_nobody_and_say_what_is_wrong(conn: Conn, fleet: Schedulers) -> None:
    """First in line, and more of them than fit into one pass together with the good ones."""
    executor = InstantExecutor()
    first = request(conn, "I-3")
    source = admit(conn, first).runs[first]
    (key,) = start(conn)
    end(conn, key)
    bad = damaged(conn, source)
    unreadable = [request(conn, None, kind="odd", payload=[n], priority=-9) for n in range(30)]
    good = [request(conn, None) for _ in range(120)] + [request(conn, None, kind="odd") for _ in range(5)]
    fleet.start(executor=executor, more=[OddPlugin()])
    wait_until(lambda: len(runs(conn, "ended_at IS NOT NULL AND wake = ANY (%s)", good)) == 125, what="the good ones")
    for wake in (bad["unreadable"], *unreadable):
        wait_until(lambda wake=wake: row(conn, wake, "failures")[0] > 0, what="its error")  # type: ignore[misc]  # mypy cannot infer such a lambda
        state, error, later = row(conn, wake, "state", "error", "due_at > error_at")
        assert (state, later) == ("deferred", True)
        assert error.startswith("ValueError: nobody can read [")
    assert row(conn, bad["source gone"], "state", "reason") == ("failed", "retry.source_gone")
    assert row(conn, bad["unknown kind"], "state", "failures") == ("deferred", 0), "it is left to who knows it"
    wait_until(lambda: len(runs(conn, "ended_at IS NOT NULL AND wake = %s", bad["unknown gate"])) == 1, what="its run")


def test_a_damaged_receipt_behind_a_gate_holds_up_none_that_wait_with_it(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    fleet.start(executor=executor, more=[OddPlugin()])
    say(conn, producers.pause_agent(ACME, CODER))
    wakes = [request(conn, None, kind="odd") for _ in range(130)]
    wait_until(
        lambda: conn.execute("SELECT count(*) FROM wakeful.wake WHERE wait_reason IS NOT NULL").fetchone() == (130,),
        what="130 waits",
    )
    for wake in wakes[::10]:
        spoil(conn, "payload", "[1]")(wake)
    say(conn, producers.resume_agent(ACME, CODER))
    good = [wake for n, wake in enumerate(wakes) if n % 10]
    wait_until(lambda: len(runs(conn, "ended_at IS NOT NULL AND wake = ANY (%s)", good)) == 117, what="the good ones")
    for wake in wakes[::10]:
        assert row(conn, wake, "state", "wait_gate", "failures > 0", "due_at > error_at") == (
            *("deferred", "agent", True, True),
        )
    # Mended, it goes on by itself: its failure had a deadline.
    mended = wakes[0]
    spoil(conn, "payload", "{}")(mended)
    wait_until(lambda: len(runs(conn, "ended_at IS NOT NULL AND wake = %s", mended)) == 1, within=60, what="its run")


def test_a_wait_without_a_key_cannot_be_stored(conn: Conn) -> None:
    wake = request(conn)
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("UPDATE wakeful.wake SET wait_gate = 'agent', wait_reason = 'agent.x' WHERE id = %s", (wake,))
