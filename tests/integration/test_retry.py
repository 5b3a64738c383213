"""Task retry: certified, judged against its source and its issue, one run for one source however often asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.integration import local
from tests.passes import Held, admission, admit, end, follow, parked, row, runs, start
from tests.rows import request, say

from wakeful import explain, producers, terminals
from wakeful.crash_points import no_crash
from wakeful.errors import Conflict
from wakeful.executions import EndClass, Grade, RunKey
from wakeful.outcomes import Admit, End
from wakeful.producers import Statement
from wakeful.results import Conclusion
from wakeful.scheduler import Scheduler
from wakeful.testing import Database, HoldAt

Conn = psycopg.Connection[Any]
ACME, CODER, ANN = "acme", "coder", "user:ann"

pytestmark = pytest.mark.usefixtures("web")


def live(conn: Conn, issue: str | None = "I-1", **arguments: Any) -> RunKey:
    """A run that has started."""
    wake = request(conn, issue, **arguments)
    run = admit(conn, wake).runs[wake]
    (key,) = [key for key in start(conn) if key.run == run]
    return key


def failed(conn: Conn, issue: str | None = "I-1", **arguments: Any) -> UUID:
    """A run that has failed."""
    key = live(conn, issue, **arguments)
    end(conn, key)
    return key.run


def retry(conn: Conn, run: UUID, **arguments: Any) -> UUID:
    made = producers.run(conn, producers.request_retry(ACME, run, **arguments))
    assert made.outcome == "inserted"
    assert made.wake is not None
    return made.wake


def image(conn: Conn, wake: UUID) -> Any:
    """The wake's row and its physical version: any write at all changes it."""
    return conn.execute("SELECT w.*, w.xmin::text, w.ctid::text FROM wakeful.wake w WHERE id = %s", (wake,)).fetchone()


# ── actor and generation, as certified ──────────────────────────────────────────────────────────────────


def test_the_command_certifies_and_a_payload_cannot(conn: Conn) -> None:
    source = failed(conn)
    forged = {
        "certified_run": str(uuid4()),
        "certified_generation": 9,
        "actor": "user:eve",
        "retry_of": str(uuid4()),
        "chat_action": str(uuid4()),
        "interrupt_by": "user:eve",
    }
    wake = retry(conn, source, payload=forged, actor=ANN)
    assert row(
        conn, wake, "certified_run", "certified_generation", "actor_kind", "actor", "chat_action", "interrupt_by"
    ) == (*(source, 1, "user", "ann", None, None),)
    run = admit(conn, wake).runs[wake]
    assert conn.execute("SELECT retry_of, authority FROM wakeful.run WHERE id = %s", (run,)).fetchone() == (source, ANN)


def test_a_source_that_was_requeued_meanwhile_is_still_retried(conn: Conn) -> None:
    """As docs/decisions say: a requeue bumps the generation and leaves the person's wish as it is."""
    key = live(conn)
    wake = retry(conn, key.run)
    assert parked(admit(conn, wake), wake) == "execution.source"
    terminals.record(conn, ACME, [], [terminals.Death(key, Grade.CONTAINED, "its host is gone")], crash=no_crash)
    assert conn.execute("SELECT state, generation FROM wakeful.run WHERE id = %s", (key.run,)).fetchone() == (
        "queued",
        2,
    )
    assert parked(admit(conn, wake, signalled=True), wake) == "execution.source"
    (again,) = start(conn)
    end(conn, again)
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit(key.run)}
    assert row(conn, wake, "certified_generation") == (1,)


def test_a_generation_that_its_run_never_had_is_no_certificate(conn: Conn) -> None:
    wake = retry(conn, failed(conn))
    conn.execute("UPDATE wakeful.wake SET certified_generation = 7 WHERE id = %s", (wake,))
    admit(conn, wake)
    assert row(conn, wake, "state", "reason") == ("failed", "retry.uncertified")
    assert runs(conn, "state = 'queued'") == []


def test_a_source_that_is_no_more_fails_the_receipt_with_its_reason(conn: Conn) -> None:
    wake, good = retry(conn, failed(conn)), retry(conn, failed(conn, "I-2"))
    conn.execute("UPDATE wakeful.wake SET certified_run = %s WHERE id = %s", (uuid4(), wake))
    result = admit(conn, wake, good)
    assert row(conn, wake, "state", "reason") == ("failed", "retry.source_gone")
    assert set(result.runs) == {good}


# ── source, processes, environment ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("issue", ["I-1", None])
@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled"])
def test_a_live_source_is_waited_for_and_its_late_success_retires(conn: Conn, issue: str | None, state: str) -> None:
    key = live(conn, issue)
    wake = retry(conn, key.run)
    assert parked(admit(conn, wake), wake) == "execution.source"
    end(conn, key, state)
    outcome = admit(conn, wake, signalled=True).outcomes[wake]
    if state == "succeeded":
        assert outcome == End("retired", "retry.succeeded", "it succeeded after all", into=key.run)
    else:
        assert outcome == Admit(key.run)


@pytest.mark.parametrize(("grade", "waits"), [(Grade.REPORTED, True), (None, True), (Grade.WAITED, False)])
def test_processes_of_the_source_that_nobody_proved_gone_are_waited_for(
    conn: Conn, grade: Grade | None, waits: bool
) -> None:
    key = live(conn)
    ending = terminals.Ending(key, Conclusion("failed", EndClass.FAILED, "run.failed"), grade=grade)
    terminals.record(conn, ACME, [ending], crash=no_crash)
    wake = retry(conn, key.run)
    outcome = admit(conn, wake).outcomes[wake]
    if waits:
        assert explain.why(conn, ACME, wake).reason == "execution.unproven"
        assert runs(conn, "retry_of = %s", key.run) == []
        # A person's word frees the issue.
        action = producers.run(conn, producers.open_recovery(ACME, "I-1", "nobody saw it die")).wake
        assert action is not None
        assert parked(admit(conn, wake, signalled=True), wake) == "recovery.open"
        say(conn, producers.resolve_recovery(ACME, action, outcome="dead"))
        assert admit(conn, wake, signalled=True).outcomes == {wake: Admit(key.run)}
    else:
        assert outcome == Admit(key.run)


def test_a_person_who_only_looked_proves_no_death(conn: Conn, listener: Listener) -> None:
    key = live(conn)
    ending = terminals.Ending(key, Conclusion("failed", EndClass.FAILED, "run.failed"), grade=Grade.REPORTED)
    terminals.record(conn, ACME, [ending], crash=no_crash)
    wake = retry(conn, key.run)
    assert parked(admit(conn, wake), wake) == "execution.unproven"
    for outcome, still in (("resolved", True), ("lost", False)):
        action = producers.run(conn, producers.open_recovery(ACME, "I-1", "nobody saw it die")).wake
        assert action is not None
        listener.heard()
        say(conn, producers.resolve_recovery(ACME, action, outcome=outcome))
        assert follow(conn, listener.heard()) == ([] if still else [wake])
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit(key.run)}


def test_an_open_environment_is_waited_for_and_its_close_opens(conn: Conn) -> None:
    key = live(conn)
    say(conn, producers.open_lease(ACME, "box", "I-1", run=key.run))
    end(conn, key)
    wake = retry(conn, key.run)
    assert parked(admit(conn, wake), wake) == "execution.environment"
    say(conn, producers.close_lease(ACME, "box"))
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit(key.run)}


def test_another_agents_live_run_on_the_issue_is_waited_for(conn: Conn) -> None:
    source = failed(conn)
    other = live(conn, agent="other")
    wake = retry(conn, source)
    assert parked(admit(conn, wake), wake) == "execution.live_run"
    end(conn, other)
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit(source)}


# ── overtaken ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("alive", [True, False])
def test_a_newer_run_retires_it_whether_it_lives_or_not(conn: Conn, alive: bool) -> None:
    source = failed(conn)
    say(conn, producers.pause_agent(ACME, CODER))
    wake = retry(conn, source)
    admit(conn, wake)
    say(conn, producers.resume_agent(ACME, CODER))
    newer = live(conn)
    if not alive:
        end(conn, newer)
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "state", "reason", "coalesced_into") == ("retired", "retry.superseded", newer.run)


def test_a_newer_run_of_another_agent_or_issue_is_nothing_to_it(conn: Conn) -> None:
    source = failed(conn)
    failed(conn, agent="other")
    failed(conn, "I-2")
    failed(conn, None)
    wake = retry(conn, source)
    assert admit(conn, wake).outcomes == {wake: Admit(source)}


def comment(conn: Conn, words: str = "and the tests", **arguments: Any) -> UUID:
    made = producers.run(conn, producers.save_comment(ACME, "I-1", words, ANN, agent=CODER, **arguments)).wake
    assert made is not None
    return made


def behind_a_pause(conn: Conn) -> UUID:
    """A retry that waits."""
    source = failed(conn)
    say(conn, producers.pause_agent(ACME, CODER))
    wake = retry(conn, source)
    assert parked(admit(conn, wake), wake) == "agent.paused_manual"
    return wake


def test_a_newer_comment_retires_it_into_the_receipt_that_carries_it(conn: Conn) -> None:
    wake = behind_a_pause(conn)
    newer = comment(conn)
    say(conn, producers.resume_agent(ACME, CODER))
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "state", "reason", "coalesced_into") == ("retired", "retry.newer_input", newer)
    assert row(conn, newer, "state") == ("deferred",)


def test_an_older_comment_is_no_newer_input_but_one_that_joins_it_is(conn: Conn) -> None:
    source = failed(conn)
    say(conn, producers.pause_agent(ACME, CODER))
    older = comment(conn)
    wake = retry(conn, source)
    assert parked(admit(conn, wake), wake) == "agent.paused_manual"
    assert comment(conn, "and the docs") == older, "it did not join"
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "state", "reason", "coalesced_into") == ("retired", "retry.newer_input", older)


def test_an_answered_card_is_newer_input(conn: Conn) -> None:
    card = producers.run(conn, producers.create_card(ACME, "I-1", CODER, {"text": "which one?"}, id="Q-1"))
    assert card.outcome == "inserted"
    wake = behind_a_pause(conn)
    answered = producers.run(conn, producers.answer_card(ACME, "Q-1", {"text": "that one"}, actor=ANN)).wake
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "state", "reason", "coalesced_into") == ("retired", "retry.newer_input", answered)


@pytest.mark.parametrize("case", ["deleted", "its own", "another issue", "another agent", "a plain request"])
def test_what_is_no_input_of_its_leaves_it(conn: Conn, case: str) -> None:
    wake = behind_a_pause(conn)
    (source,) = row(conn, wake, "certified_run")
    if case == "deleted":
        comment(conn)
        conn.execute("UPDATE wakeful.comment SET deleted_at = wakeful.now()")
    elif case == "its own":
        say(conn, producers.save_comment(ACME, "I-1", "I gave up", "agent:coder", agent=CODER, run=source))
    elif case == "another issue":
        say(conn, producers.save_comment(ACME, "I-2", "x", ANN, agent=CODER))
    elif case == "another agent":
        say(conn, producers.save_comment(ACME, "I-1", "x", ANN, agent="other"))
    else:
        request(conn)
    assert parked(admit(conn, wake, signalled=True), wake) == "agent.paused_manual"


# ── the issue, its assignee, the agent ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", ["done", "cancelled"])
def test_a_terminal_issue_retires_it(conn: Conn, status: str) -> None:
    wake = retry(conn, failed(conn))
    say(conn, producers.set_issue_status(ACME, "I-1", status))
    admit(conn, wake)
    assert row(conn, wake, "state", "reason") == ("retired", "issue.terminal")


def test_an_issue_that_only_a_hold_cancelled_is_held_and_not_terminal(conn: Conn) -> None:
    source = failed(conn)
    say(conn, producers.hold_issue(ACME, "I-1", mode="cancel"))
    wake = retry(conn, source)
    assert parked(admit(conn, wake), wake) == "hold.cancel"
    say(conn, producers.restore_hold(ACME, "I-1"))
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit(source)}


ARCHIVALS: dict[str, list[Statement]] = {
    "agent": [producers.archive_agent(ACME, CODER)],
    "terminated agent": [producers.terminate_agent(ACME, CODER)],
    "project": [producers.archive_project(ACME, "web")],
    "issue": [producers.set_issue_status(ACME, "I-1", "cancelled")],
    "company": [producers.archive_company(ACME)],
    "all": [
        producers.set_issue_status(ACME, "I-1", "done"),
        producers.archive_project(ACME, "web"),
        producers.archive_agent(ACME, CODER),
        producers.archive_company(ACME),
    ],
}


@pytest.mark.parametrize("archival", ARCHIVALS.values(), ids=ARCHIVALS)
def test_a_reassignment_to_a_person_leaves_a_tombstone_that_no_archival_rewrites(
    conn: Conn, archival: list[Statement]
) -> None:
    wake = retry(conn, failed(conn))
    say(conn, producers.assign_issue(ACME, "I-1", "user:bob"))
    admit(conn, wake)
    assert row(conn, wake, "state", "reason") == ("cancelled", "retry.reassigned")
    before = image(conn, wake)
    say(conn, *archival)
    for signalled in (True, False):
        assert admit(conn, wake, signalled=signalled).outcomes == {}
    assert image(conn, wake) == before


def test_a_reassignment_to_another_agent_retires_it(conn: Conn) -> None:
    wake = retry(conn, failed(conn))
    say(conn, producers.assign_issue(ACME, "I-1", "agent:other"))
    admit(conn, wake)
    assert row(conn, wake, "state", "reason") == ("retired", "retry.reassigned")


def test_a_paused_agent_makes_it_wait_and_its_end_retires_it(conn: Conn) -> None:
    source = failed(conn)
    say(conn, producers.pause_agent(ACME, CODER))
    wake = retry(conn, source)
    assert parked(admit(conn, wake), wake) == "agent.paused_manual"
    say(conn, producers.terminate_agent(ACME, CODER))
    admit(conn, wake, signalled=True)
    assert row(conn, wake, "state", "reason") == ("retired", "agent.terminated")


def test_no_stop_pause_or_hold_ever_cancels_it(conn: Conn) -> None:
    """One brake after another: it waits behind each, is never ended by one, and runs when the last is off."""
    source = failed(conn)
    wake = retry(conn, source)
    say(
        conn,
        producers.pause_company(ACME),
        producers.set_budget(ACME, "company", 5),
        producers.pause_agent(ACME, CODER),
        producers.set_budget(ACME, "agent:coder", 5),
        producers.set_budget(ACME, "project:web", 5),
        producers.hold_issue(ACME, "I-1", mode="pause"),
        producers.add_spend(ACME, 5, agent=CODER, project="web"),
    )
    waited = [parked(admit(conn, wake), wake)]
    for opens in (
        producers.resume_company(ACME),
        producers.raise_budget(ACME, "company", amount=9),
        producers.resume_agent(ACME, CODER),
        producers.raise_budget(ACME, "agent:coder", amount=9),
        producers.raise_budget(ACME, "project:web", amount=9),
    ):
        say(conn, opens)
        waited.append(parked(admit(conn, wake, signalled=True), wake))
    assert waited == [
        *("company.paused", "budget.exhausted", "agent.paused_manual"),
        *("budget.exhausted", "budget.exhausted", "hold.pause"),
    ]
    say(conn, producers.release_hold(ACME, "I-1"))
    assert admit(conn, wake, signalled=True).outcomes == {wake: Admit(source)}


# ── one retry for one source ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("when", ["saved", "waiting", "queued", "running", "failed", "succeeded"])
@pytest.mark.parametrize("key", ["another", "a", None])
def test_a_second_retry_is_existing_with_the_earlier_wake_and_its_run(conn: Conn, when: str, key: str | None) -> None:
    source = failed(conn)
    wake, run = retry(conn, source, key="a"), None
    if when == "waiting":
        say(conn, producers.pause_agent(ACME, CODER))
        admit(conn, wake)
    elif when != "saved":
        run = admit(conn, wake).runs[wake]
    if when in ("running", "failed", "succeeded"):
        (started,) = start(conn)
        if when != "running":
            end(conn, started, when)
    state = "deferred" if run is None else "linked"
    again = producers.run(conn, producers.request_retry(ACME, source, key=key, actor="user:bob"))
    assert (again.outcome, again.wake, again.state, again.run) == ("existing", wake, state, run)
    assert conn.execute("SELECT count(*) FROM wakeful.wake WHERE kind = 'task_retry'").fetchone() == (1,)


def test_one_that_ended_without_a_run_makes_room_for_another(conn: Conn) -> None:
    source = failed(conn)
    first = retry(conn, source, key="a")
    say(conn, producers.assign_issue(ACME, "I-1", "user:bob"))
    admit(conn, first)
    say(conn, producers.assign_issue(ACME, "I-1", "agent:coder"))
    # The very same click, delivered once more, is no second wish.
    again = producers.run(conn, producers.request_retry(ACME, source, key="a"))
    assert (again.outcome, again.wake, again.state) == ("existing", first, "cancelled")
    second = retry(conn, source, key="b")
    assert second != first
    assert row(conn, first, "state", "reason") == ("cancelled", "retry.reassigned")
    assert admit(conn, second).outcomes == {second: Admit(source)}


def test_a_run_that_succeeded_is_not_retried(conn: Conn) -> None:
    key = live(conn)
    end(conn, key, "succeeded")
    with pytest.raises(Conflict, match="nothing to retry"):
        producers.run(conn, producers.request_retry(ACME, key.run))


@pytest.mark.parametrize("point", ["admission_before_commit", "admission_after_commit"])
def test_a_second_click_while_the_first_is_admitted_is_the_same_wake_and_one_run(
    conn: Conn, database: Database, point: str
) -> None:
    source = failed(conn)
    first = retry(conn, source, key="a")
    hold = HoldAt(point)
    held = Held(lambda: admit(database.connect(), first, by=admission(crash=hold)))
    hold.wait_reached()
    click = producers.run(conn, producers.request_retry(ACME, source, key="b"))
    assert (click.outcome, click.wake) == ("existing", first)
    hold.release()
    run = held.result().runs[first]
    again = producers.run(conn, producers.request_retry(ACME, source, key="c"))
    assert (again.outcome, again.wake, again.run) == ("existing", first, run)
    assert runs(conn, "retry_of = %s", source) == [run]


def test_one_that_was_taken_back_makes_room_too(conn: Conn) -> None:
    source = failed(conn)
    first = retry(conn, source)
    say(conn, producers.retire_wake(ACME, first))
    second = retry(conn, source)
    assert second != first
    assert row(conn, first, "state") == ("cancelled",)
    assert set(admit(conn, first, second).runs) == {second}


# ── warm: the real clock, real processes ────────────────────────────────────────────────────────────────

SCRIPT = """
import os, sys
attempt = sys.argv[1]
try:
    os.mkdir(attempt)
except FileExistsError:
    print("the saved work, done")
else:
    print("not yet", flush=True)
    sys.exit(3)
"""


@pytest.fixture
def warm(database: Database, tmp_path: Path) -> Iterator[Scheduler]:
    """A scheduler on the real clock whose runs are real child processes."""
    made = local.scheduler(database, tmp_path / "data")
    made.start()
    assert made.wait_ready(30)
    yield made
    assert made.stop()


def test_a_budget_raise_releases_a_waiting_retry_to_one_run_with_its_output(
    conn: Conn, warm: Scheduler, tmp_path: Path
) -> None:
    """No restart, no clock of the test's: fail, spend, retry, wait, raise, run."""
    say(conn, producers.add_agent(ACME, CODER, [sys.executable, "-c", SCRIPT, str(tmp_path / "first")]))
    wake = request(conn)
    wait_until(lambda: runs(conn, "wake = %s AND state = 'failed'", wake), what="the failure")
    (source,) = runs(conn, "wake = %s", wake)
    say(
        conn,
        producers.set_budget(ACME, "project:web", 10, period="lifetime"),
        producers.add_spend(ACME, 12, project="web"),
    )
    saved = retry(conn, source, actor=ANN)
    wait_until(lambda: row(conn, saved, "wait_reason") == ("budget.exhausted",), what="its wait")
    assert len(runs(conn)) == 1
    say(conn, producers.raise_budget(ACME, "project:web", amount=100))
    wait_until(lambda: runs(conn, "wake = %s AND ended_at IS NOT NULL", saved), what="its run's end")
    ran = conn.execute(
        "SELECT state, retry_of, authority, stdout_tail, evidence FROM wakeful.run WHERE wake = %s", (saved,)
    ).fetchall()
    assert ran == [("succeeded", source, ANN, "the saved work, done\n", "contained")]
    assert len(runs(conn)) == 2
