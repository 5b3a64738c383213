"""Admission: every gate parks and opens by its own producer, and one receipt becomes at most one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.conftest import Listener
from tests.passes import Held, admission, admit, end, follow, owners, parked, row, runs, start
from tests.rows import request, say

from wakeful import producers
from wakeful.outcomes import Admit, End, Gone, Moved, Park, Proceed, Refusal, Verdict
from wakeful.producers import Statement
from wakeful.receipts import Fact
from wakeful.testing import Database, HoldAt, VirtualClock

Conn = psycopg.Connection[Any]
ACME, CODER = "acme", "coder"

pytestmark = pytest.mark.usefixtures("web")


def retry(conn: Conn, run: UUID) -> UUID:
    made = producers.run(conn, producers.request_retry(ACME, run)).wake
    assert made is not None
    return made


def live(conn: Conn, issue: str | None = "I-1", *, agent: str = CODER) -> UUID:
    """A run that has started."""
    wake = request(conn, issue, agent=agent)
    result = admit(conn, wake)
    start(conn)
    return result.runs[wake]


def ended(conn: Conn, issue: str | None = "I-1") -> UUID:
    """A run that has failed."""
    wake = request(conn, issue)
    run = admit(conn, wake).runs[wake]
    (key,) = start(conn)
    end(conn, key)
    return run


def end_all(conn: Conn) -> None:
    for company, run, generation in conn.execute(
        "SELECT company, id, generation FROM wakeful.run WHERE state IN ('starting', 'running')"
    ).fetchall():
        from wakeful.executions import RunKey

        end(conn, RunKey(company, run, generation))


def is_grace(length: timedelta) -> bool:
    """Whether that is a grace, judged a moment before it was written."""
    return timedelta(seconds=29.5) < length <= timedelta(seconds=30)


# ── each gate in turn ───────────────────────────────────────────────────────────────────────────────────

Step = Callable[[Conn], Any]


def saying(*statements: Statement) -> Step:
    return lambda conn: say(conn, *statements)


def another_run(conn: Conn) -> None:
    live(conn, "I-1", agent="other")


def full_agent(conn: Conn) -> None:
    live(conn, "I-2")
    say(conn, producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=1))


LIMIT = Decimal(10)
BUDGETS = ("company", "agent:coder", "project:web")
GATES: list[tuple[str, Step, Step, str]] = [
    ("company", saying(producers.pause_company(ACME)), saying(producers.resume_company(ACME)), "company.paused"),
    ("panic", saying(producers.panic_company(ACME)), saying(producers.resume_company(ACME)), "company.panic"),
    *(
        (
            f"budget of {policy}",
            saying(
                producers.set_budget(ACME, policy, LIMIT), producers.add_spend(ACME, LIMIT, agent=CODER, project="web")
            ),
            saying(producers.raise_budget(ACME, policy, amount=LIMIT * 2)),
            "budget.exhausted",
        )
        for policy in BUDGETS
    ),
    (
        "agent",
        saying(producers.pause_agent(ACME, CODER)),
        saying(producers.resume_agent(ACME, CODER)),
        "agent.paused_manual",
    ),
    (
        "project",
        saying(producers.pause_project(ACME, "web")),
        saying(producers.resume_project(ACME, "web")),
        "project.paused_manual",
    ),
    ("execution", another_run, end_all, "execution.live_run"),
    ("concurrency, by an end", full_agent, end_all, "concurrency.agent"),
    (
        "concurrency, by a higher limit",
        full_agent,
        saying(producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=2)),
        "concurrency.agent",
    ),
]
UNRELATED: Sequence[Step] = (
    saying(producers.add_company("b"), producers.pause_company("b"), producers.resume_company("b")),
    saying(producers.pause_agent(ACME, "other"), producers.resume_agent(ACME, "other")),
    saying(producers.add_project(ACME, "p"), producers.pause_project(ACME, "p"), producers.resume_project(ACME, "p")),
    saying(producers.set_budget(ACME, "agent:other", 1), producers.raise_budget(ACME, "agent:other", amount=2)),
    saying(producers.create_issue(ACME, "I-9"), producers.set_issue_status(ACME, "I-9", "done")),
    saying(producers.assign_issue(ACME, "I-9", "user:ann")),
    saying(producers.signal_gate(ACME, "weather", "rain")),
    saying(producers.add_spend(ACME, 1, agent="other")),
)  # fmt: skip


@pytest.mark.parametrize(("closes", "opens", "reason"), [case[1:] for case in GATES], ids=[case[0] for case in GATES])
def test_a_retry_waits_for_its_gates_own_producer_and_becomes_one_run(
    conn: Conn, listener: Listener, closes: Step, opens: Step, reason: str
) -> None:
    source = ended(conn)
    closes(conn)
    wake = retry(conn, source)
    result = admit(conn, wake)
    assert parked(result, wake) == reason
    gate, key, opens_on, grace = row(conn, wake, "wait_gate", "wait_key", "opens_on", "due_at - grace_from")
    assert (reason.split(".")[0], bool(opens_on)) == (gate, True)
    assert is_grace(grace)

    listener.heard()
    for unrelated in UNRELATED:
        unrelated(conn)
    assert follow(conn, listener.heard()) == []

    opens(conn)
    signals = listener.heard()
    assert (gate, key) in [(s.get("g"), s.get("k")) for s in signals if s["t"] == "eligibility"]
    assert follow(conn, signals) == [wake]
    result = admit(conn, wake, signalled=True)
    assert result.outcomes == {wake: Admit(source)}
    assert runs(conn, "retry_of = %s", source) == [result.runs[wake]]
    assert row(conn, wake, "state", "run", "due_at") == ("linked", result.runs[wake], None)

    again = admit(conn, wake, signalled=True)
    assert again.outcomes == {}
    assert len(runs(conn, "retry_of = %s", source)) == 1


def test_instance_panic_parks_and_its_setting_asks_for_everything(conn: Conn, listener: Listener) -> None:
    say(conn, producers.set_setting("panic", True))
    wake = request(conn)
    assert parked(admit(conn, wake), wake) == "company.panic"
    listener.heard()
    say(conn, producers.set_setting("panic", False))
    assert [s["t"] for s in listener.heard()] == ["settings"]
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit()}


def test_a_wake_waits_while_its_issue_is_another_agents(conn: Conn, listener: Listener) -> None:
    wake = request(conn)
    say(conn, producers.assign_issue(ACME, "I-1", "agent:other"))
    assert parked(admit(conn, wake), wake) == "issue.assignee"
    listener.heard()
    say(conn, producers.assign_issue(ACME, "I-1", "agent:coder"))
    assert follow(conn, listener.heard()) == [wake]
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit()}


def test_a_wake_behind_an_unproven_death_waits_for_the_proof(conn: Conn) -> None:
    wake = request(conn)
    conn.execute(
        "UPDATE wakeful.issue SET execution_run = %s, execution_locked_at = now() WHERE id = 'I-1'", (uuid4(),)
    )
    assert parked(admit(conn, wake), wake) == "execution.unproven"
    conn.execute("UPDATE wakeful.issue SET execution_run = NULL, execution_locked_at = NULL WHERE id = 'I-1'")
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit()}


@pytest.mark.parametrize("issue", ["I-1", None])
def test_a_retry_of_a_run_that_lives_waits_for_its_end(conn: Conn, listener: Listener, issue: str | None) -> None:
    source = live(conn, issue)
    wake = retry(conn, source)
    assert parked(admit(conn, wake), wake) == "execution.source"
    listener.heard()
    end_all(conn)
    assert follow(conn, listener.heard()) == [wake]
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit(source)}


# ── ends without a run ──────────────────────────────────────────────────────────────────────────────────


def test_a_terminal_issue_retires_what_waits_for_whatever(conn: Conn, listener: Listener) -> None:
    waiting, fresh = retry(conn, ended(conn)), request(conn)
    say(conn, producers.pause_company(ACME))
    admit(conn, waiting)
    listener.heard()
    say(conn, producers.set_issue_status(ACME, "I-1", "done"))
    assert follow(conn, listener.heard()) == [waiting]
    admit(conn, waiting, signalled=True)
    say(conn, producers.resume_company(ACME))
    admit(conn, fresh)
    for wake in (waiting, fresh):
        assert row(conn, wake, "state", "reason", "due_at") == ("retired", "issue.terminal", None)
    assert runs(conn, "state = 'queued'") == []


def test_a_retry_whose_issue_went_to_a_person_leaves_a_tombstone_that_stays(conn: Conn) -> None:
    wake = retry(conn, ended(conn))
    say(conn, producers.assign_issue(ACME, "I-1", "user:ann"))
    admit(conn, wake)
    tombstone = row(conn, wake, "state", "reason", "ended_at", "version")
    assert tombstone[:2] == ("cancelled", "retry.reassigned")
    conn.execute("UPDATE wakeful.agent SET state = 'archived' WHERE id = 'coder'")
    assert admit(conn, wake, signalled=True).outcomes == {}
    assert row(conn, wake, "state", "reason", "ended_at", "version") == tombstone


def test_a_retry_whose_issue_went_to_another_agent_is_retired(conn: Conn) -> None:
    wake = retry(conn, ended(conn))
    say(conn, producers.assign_issue(ACME, "I-1", "agent:other"))
    admit(conn, wake)
    assert row(conn, wake, "state", "reason") == ("retired", "retry.reassigned")


def test_a_newer_run_of_the_issue_supersedes_a_retry(conn: Conn) -> None:
    source = ended(conn)
    say(conn, producers.pause_company(ACME))
    wake = retry(conn, source)
    admit(conn, wake)
    say(conn, producers.resume_company(ACME))
    newer = live(conn)
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "state", "reason", "coalesced_into") == ("retired", "retry.superseded", newer)


@pytest.mark.parametrize("state", ["terminated", "archived"])
def test_an_agent_that_left_retires_its_wakes(conn: Conn, state: str) -> None:
    wake, fresh = retry(conn, ended(conn)), request(conn, "I-2")
    say(conn, producers.pause_agent(ACME, CODER))
    admit(conn, wake)
    conn.execute(
        "UPDATE wakeful.agent SET state = %s, pause_reason = NULL, paused_at = NULL WHERE id = 'coder'", (state,)
    )
    admit(conn, wake, signalled=True)
    admit(conn, fresh)
    assert row(conn, wake, "state", "reason") == ("retired", f"agent.{state}")
    assert row(conn, fresh, "state", "reason") == ("retired", f"agent.{state}")


# ── waiting changes nothing twice ───────────────────────────────────────────────────────────────────────

KEPT = ("version", "grace_from", "wait_since", "wait_reason", "wait_message", "state", "owner")


def test_the_same_closed_reason_twice_writes_no_version_no_grace_and_no_signal(
    conn: Conn, listener: Listener, clock: VirtualClock
) -> None:
    say(conn, producers.pause_company(ACME))
    wake = request(conn)
    first = admit(conn, wake).outcomes[wake]
    assert isinstance(first, Park)
    kept, due = row(conn, wake, *KEPT), row(conn, wake, "due_at")
    listener.heard()
    clock.advance(10)
    again = admit(conn, wake, signalled=True).outcomes[wake]
    assert again == Park(first.refusal, first.due_at, changed=False)
    assert (row(conn, wake, *KEPT), row(conn, wake, "due_at")) == (kept, due)
    clock.advance(21)
    after_grace = admit(conn, wake).outcomes[wake]
    assert after_grace == Park(first.refusal, None, changed=False)
    assert row(conn, wake, *KEPT) == kept
    assert row(conn, wake, "due_at") == (None,)
    for signalled in (True, True, False):
        admit(conn, wake, signalled=signalled)
    assert row(conn, wake, *KEPT) == kept
    assert row(conn, wake, "due_at") == (None,)
    assert listener.heard() == []


def test_a_changed_reason_gets_one_grace(conn: Conn, clock: VirtualClock) -> None:
    say(conn, producers.pause_company(ACME), producers.pause_agent(ACME, CODER))
    wake = request(conn)
    admit(conn, wake)
    clock.advance(31)
    admit(conn, wake)
    (version,) = row(conn, wake, "version")
    say(conn, producers.resume_company(ACME))
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "version", "wait_reason") == (version + 1, "agent.paused_manual")
    assert is_grace(*row(conn, wake, "due_at - grace_from"))
    clock.advance(31)
    admit(conn, wake)
    assert row(conn, wake, "version", "due_at") == (version + 1, None)


def test_a_budgets_window_end_is_a_stored_deadline(conn: Conn, clock: VirtualClock) -> None:
    say(conn, producers.set_budget(ACME, "project:web", LIMIT), producers.add_spend(ACME, LIMIT, project="web"))
    wake = request(conn)
    admit(conn, wake)
    clock.advance(31)
    admit(conn, wake)
    due, opens, ends = row(
        conn, wake, "due_at", "reopens_at", "date_trunc('month', wakeful.now() AT TIME ZONE 'UTC') + interval '1 month'"
    )
    assert due == opens
    assert due.replace(tzinfo=None) == ends
    clock.advance(due - clock.now() + timedelta(seconds=1))
    result = admit(conn, wake)
    # The window is new; the pause that only the budget had made is lifted by the same pass.
    assert parked(result, wake) == "project.paused_budget"
    assert result.reopened == {wake}
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit()}


def test_a_deadline_that_moved_is_only_taken_note_of(conn: Conn) -> None:
    wake = request(conn)
    (later,) = conn.execute(
        "UPDATE wakeful.wake SET due_at = wakeful.now() + interval '1 hour' WHERE id = %s RETURNING due_at", (wake,)
    ).fetchone() or (None,)
    before = row(conn, wake, "version", "examined_at", "state")
    assert admit(conn, wake).outcomes == {wake: Moved(later)}
    assert admit(conn, wake, signalled=True).outcomes == {wake: Moved(later)}
    assert row(conn, wake, "version", "examined_at", "state") == before
    assert runs(conn) == []


# ── rows that others hold ───────────────────────────────────────────────────────────────────────────────


def test_a_row_that_somebody_holds_is_skipped_and_said_to_be_busy(conn: Conn, database: Database) -> None:
    held, free = request(conn), request(conn, "I-2")
    with database.connect().transaction() as holding:
        holding.connection.execute("SELECT FROM wakeful.wake WHERE id = %s FOR UPDATE", (held,))
        result = admit(conn, held, free)
    assert result.busy == {held}
    assert result.outcomes == {free: Admit()}
    assert admit(conn, held).outcomes == {held: Admit()}


def test_a_receipt_that_ended_or_never_was_is_nothing(conn: Conn) -> None:
    wake = request(conn)
    say(conn, producers.retire_wake(ACME, wake))
    result = admit(conn, wake, uuid4())
    assert (result.outcomes, result.busy, result.runs) == ({}, frozenset(), {})


def test_a_gate_that_opens_between_judgement_and_park_is_found_by_the_second_look(
    conn: Conn, database: Database
) -> None:
    opened_, closed_ = request(conn), request(conn, "I-2", agent="other")
    say(conn, producers.pause_agent(ACME, CODER), producers.pause_agent(ACME, "other"))
    hold = HoldAt("admission_before_commit")
    held = Held(lambda: admit(database.connect(), opened_, closed_, by=admission(crash=hold)))
    hold.wait_reached()
    say(conn, producers.resume_agent(ACME, CODER))
    hold.release()
    result = held.result()
    assert (parked(result, opened_), parked(result, closed_)) == ("agent.paused_manual", "agent.paused_manual")
    assert result.reopened == {opened_}
    assert admit(conn, opened_, signalled=True).outcomes == {opened_: Admit()}


def test_the_second_look_does_not_take_its_own_pass_for_an_opening(conn: Conn) -> None:
    """What parks behind a sibling of the same pass is still parked after the commit."""
    say(conn, producers.set_budget(ACME, "company", 10, estimate=6))
    wakes = [request(conn, issue) for issue in ("I-1", "I-1", "I-2")]
    result = admit(conn, *wakes)
    assert [type(result.outcomes[wake]) for wake in wakes] == [Admit, Park, Park]
    assert result.reopened == frozenset()


# ── bad receipts and bad plugins ────────────────────────────────────────────────────────────────────────


class Plugin:
    """An owner of the kind ``odd``, which judges as it is told."""

    name = "odd"
    kinds = frozenset({"odd"})

    def __init__(self, judge: Callable[[Sequence[Fact]], Any]) -> None:
        self._judge = judge

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        answer: Sequence[Verdict] = self._judge(facts)
        return answer


def odd(conn: Conn, **arguments: Any) -> UUID:
    return request(conn, None, kind="odd", **arguments)


def test_one_bad_receipt_is_set_aside_with_its_error_and_the_others_go_on(conn: Conn) -> None:
    wakes = [odd(conn) for _ in range(9)]
    bad = wakes[4]

    def judge(facts: Sequence[Fact]) -> list[Verdict]:
        if bad in [fact.id for fact in facts]:
            raise ValueError(f"this one\0 {chr(0xD800)} cannot be read")
        return [Proceed() for _ in facts]

    by = admission(Plugin(judge))
    result = admit(conn, *wakes, by=by)
    assert set(result.runs) == set(wakes) - {bad}
    assert len(runs(conn)) == 8
    assert set(result.set_aside) == {bad}
    state, error, failures, due, wait = row(conn, bad, "state", "error", "failures", "due_at - error_at", "wait_reason")
    assert (state, failures, wait) == ("deferred", 1, None)
    assert error == "ValueError: this one\ufffd \ufffd cannot be read"
    assert due == timedelta(seconds=0.5)
    for failures in (2, 3, 4):
        conn.execute("UPDATE wakeful.wake SET due_at = wakeful.now() WHERE id = %s", (bad,))
        admit(conn, bad, by=by)
        assert row(conn, bad, "failures", "due_at - error_at") == (failures, timedelta(seconds=2 ** (failures - 1) / 2))
    conn.execute("UPDATE wakeful.wake SET due_at = wakeful.now() WHERE id = %s", (bad,))
    assert admit(conn, bad, by=admission(Plugin(lambda facts: [Proceed() for _ in facts]))).outcomes == {bad: Admit()}
    assert row(conn, bad, "error", "error_at") == (None, None)


def test_a_receipt_that_could_be_judged_again_owes_nothing_for_its_failures(conn: Conn) -> None:
    wake, failing = odd(conn), admission(Plugin(lambda facts: 1 / 0))
    admit(conn, wake, by=failing)
    conn.execute("UPDATE wakeful.wake SET due_at = wakeful.now() WHERE id = %s", (wake,))
    say(conn, producers.pause_company(ACME))
    assert parked(admit(conn, wake, by=admission(Plugin(lambda facts: [Proceed()]))), wake) == "company.paused"
    assert row(conn, wake, "failures", "error", "error_at") == (0, None, None)


def exits(facts: Sequence[Fact]) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        (lambda facts: 1 / 0, "ZeroDivisionError"),
        (exits, "SystemExit"),
        (lambda facts: [], "0 verdicts for 1"),
        (lambda facts: [Proceed()] * 2, "2 verdicts for 1"),
        (lambda facts: None, "NoneType"),
        (lambda facts: ["yes"], "no verdict"),
        (lambda facts: [Admit()], "no verdict"),
        (lambda facts: [End("linked", "odd.linked")], "linked"),
        (lambda facts: [End("splendid", "odd.splendid")], "splendid"),
    ],
    ids=["raises", "exits", "too few", "too many", "none", "a word", "an outcome", "links by itself", "unknown end"],
)
def test_a_plugin_that_misbehaves_harms_its_own_receipts_only(conn: Conn, judge: Any, says: str) -> None:
    bad, good = odd(conn), request(conn)
    result = admit(conn, bad, good, by=admission(Plugin(judge)))
    assert set(result.runs) == {good}
    (error, state) = row(conn, bad, "error", "state")
    assert says in error
    assert state == "deferred"


def test_a_kind_that_no_plugin_judges_waits_for_one(conn: Conn) -> None:
    bad = odd(conn)
    assert parked(admit(conn, bad), bad) == "plugin.missing"
    assert row(conn, bad, "wait_gate", "wait_key") == ("plugin", "odd")
    assert admit(conn, bad, signalled=True, by=admission(Plugin(lambda facts: [Proceed()]))).outcomes == {bad: Admit()}


class Gate:
    """A host's gate that closes as it is told."""

    kind = "weather"
    opens_on = "sunshine"

    def __init__(self, judge: Callable[[Conn, Sequence[Fact]], Any]) -> None:
        self._judge = judge

    def judge(self, conn: Conn, facts: Sequence[Fact]) -> Sequence[Refusal | None]:
        answer: Sequence[Refusal | None] = self._judge(conn, facts)
        return answer


RAIN = Refusal("weather", "here", "weather.rain", "it rains", "sunshine")


def test_a_hosts_gate_reads_its_own_tables_and_is_opened_by_a_signal(conn: Conn, listener: Listener) -> None:
    conn.execute("CREATE TABLE weather (company text, rain boolean)")
    conn.execute("INSERT INTO weather VALUES ('acme', true)")

    def judge(conn: Conn, facts: Sequence[Fact]) -> list[Refusal | None]:
        (rain,) = conn.execute("SELECT rain FROM weather WHERE company = 'acme'").fetchone() or (None,)
        return [RAIN if rain else None for _ in facts]

    wake, by = request(conn), admission(gates=[Gate(judge)])
    assert parked(admit(conn, wake, by=by), wake) == "weather.rain"
    listener.heard()
    with conn.transaction():
        conn.execute("UPDATE weather SET rain = false")
        say(conn, producers.signal_gate(ACME, "weather", "here"))
    assert follow(conn, listener.heard()) == [wake]
    assert admit(conn, wake, signalled=True, by=by).outcomes == {wake: Admit()}


@pytest.mark.parametrize(
    "judge",
    [
        lambda conn, facts: 1 / 0,
        lambda conn, facts: [],
        lambda conn, facts: conn.execute("SELECT no_such_column"),
        lambda conn, facts: conn.execute("SELECT 1/0"),
        lambda conn, facts: [Refusal("weather", "a\0b", "weather.nul", "m", "o") for _ in facts],
        lambda conn, facts: exits(facts),
    ],
    ids=["raises", "too few", "bad SQL", "failing SQL", "unstorable refusal", "exits"],
)
def test_a_hosts_gate_that_misbehaves_sets_receipts_aside_and_admits_none(conn: Conn, judge: Any) -> None:
    wake = request(conn)
    result = admit(conn, wake, by=admission(gates=[Gate(judge)]))
    assert set(result.set_aside) == {wake}
    assert runs(conn) == []
    (due,) = row(conn, wake, "due_at")
    assert due == result.set_aside[wake]


def test_priority_decides_within_a_pass(conn: Conn) -> None:
    say(conn, producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=1))
    late, early = request(conn, None), request(conn, None, priority=-5)
    result = admit(conn, late, early)
    assert set(result.runs) == {early}
    assert parked(result, late) == "concurrency.agent"


def test_the_owners_of_these_passes_are_the_first_partys() -> None:
    names = {owner.name for owner in owners()}
    assert names >= {"request", "task_retry", "settlement", "saved_comments", "execution_wait"}
    assert Gone() != Moved(None)
