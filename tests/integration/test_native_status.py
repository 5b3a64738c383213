"""Status decisions wake agents: real schedulers and real children, from the saved decision to what the child said."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.conditions import wait_until
from tests.integration.local import scheduler as real_scheduler
from tests.intents import ACME, intent, own, state
from tests.passes import row, runs
from tests.rows import say
from tests.schedulers import Schedulers, running

import wakeful
from wakeful.admission import PASS
from wakeful.scheduler import Tuning
from wakeful.scopes import dispatch_id
from wakeful.testing import Database, HoldAt, InstantExecutor, Statements, WatchedClock

Conn = psycopg.Connection[Any]
TRUTH = ["sh", "-c", 'echo "$WAKEFUL_AGENT on $WAKEFUL_ISSUE"']


@pytest.fixture
def acme(conn: Conn) -> None:
    for company in (ACME, "other"):
        say(conn, wakeful.add_company(company), wakeful.add_agent(company, "coder", TRUTH))
        own(conn, "I-1", company)
    own(conn, "I-2")


def over(conn: Conn, number: int) -> bool:
    """Whether that many runs there are have ended, and nothing is pending."""
    unended = "SELECT count(*) FROM wakeful.wake WHERE ended_at IS NULL"
    return len(runs(conn, "ended_at IS NOT NULL")) == number and conn.execute(unended).fetchone() == (0,)


@pytest.mark.usefixtures("acme")
def test_two_intents_saved_before_the_start_are_one_run_and_other_issues_and_companies_their_own(
    conn: Conn, database: Database, tmp_path: Path
) -> None:
    pair = [intent(conn), intent(conn)]
    others = [intent(conn, "I-2"), intent(conn, company="other")]
    tmp_path.chmod(0o755)
    with running(real_scheduler(database, tmp_path / "data")):
        wait_until(lambda: over(conn, 3), what="three runs")
    [run] = runs(conn, "wake = %s", pair[0])
    assert row(conn, pair[1], "state", "run", "coalesced_into") == ("coalesced", run, pair[0])
    assert [state(conn, wake) for wake in (pair[0], *others)] == ["linked"] * 3
    said = conn.execute("SELECT company, state, stdout_tail FROM wakeful.run ORDER BY company, issue").fetchall()
    assert said == [
        (ACME, "succeeded", "coder on I-1\n"),
        (ACME, "succeeded", "coder on I-2\n"),
        ("other", "succeeded", "coder on I-1\n"),
    ]


@pytest.mark.usefixtures("acme")
def test_a_late_intent_gets_a_run_of_its_own_once_the_first_has_ended(
    conn: Conn, database: Database, fleet: Schedulers
) -> None:
    """A real lock holds the admission; what is committed meanwhile is older by its own word, and still comes later."""
    executor = InstantExecutor()
    executor.holding = True
    pair = [intent(conn), intent(conn)]
    holder = database.connect(autocommit=False)
    holder.execute("SELECT FROM wakeful.issue WHERE company = 'acme' AND id = 'I-1' FOR NO KEY UPDATE")
    fleet.build(executor=executor).start()
    waiting = "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    wait_until(lambda: conn.execute(waiting, (holder.info.backend_pid,)).fetchone() is not None, what="the wait")
    assert [state(conn, wake) for wake in pair] == ["claimed"] * 2
    late = wakeful.run(holder, wakeful.commit_status(ACME, "I-1", "in_progress")).wake
    assert late is not None
    holder.execute("UPDATE wakeful.wake SET requested_at = '2001-01-01' WHERE id = %s", (late,))
    holder.commit()
    wait_until(lambda: state(conn, late) == "coalesced", what="the pass after it")
    assert [state(conn, wake) for wake in pair] == ["linked", "coalesced"]
    receipt = dispatch_id(late)
    assert row(conn, receipt, "state", "wait_reason") == ("deferred", "execution.live_run")
    wait_until(lambda: len(executor.submitted) == 1, what="the first child")
    executor.let_go()
    wait_until(lambda: over(conn, 2), what="the second run")
    assert len(runs(conn, "wake = %s", receipt)) == 1
    assert len(executor.submitted) == 2


@pytest.mark.usefixtures("acme")
def test_after_all_is_settled_25_minutes_are_silent(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    executor = InstantExecutor()
    fleet.start(Tuning(clock=watched), executor=executor)
    for issue in ("I-1", "I-1", "I-2"):
        intent(conn, issue)
    say(conn, wakeful.add_agent(ACME, "idle", ["true"]), wakeful.pause_agent(ACME, "idle"))
    asleep = wakeful.run(conn, wakeful.commit_status(ACME, "I-3", "in_progress", agent="idle")).wake
    assert asleep is not None
    receipt = dispatch_id(asleep)
    wait_until(lambda: not runs(conn, "ended_at IS NULL") and len(runs(conn)) >= 2, what="the ends")
    wait_until(lambda: state(conn, asleep) == "coalesced", what="the dispatch receipt")
    for _ in range(4):
        watched.step(31)
    assert row(conn, receipt, "state", "due_at", "wait_reason") == ("deferred", None, "agent.paused_manual")
    pending = conn.execute("SELECT count(*) FROM wakeful.wake WHERE ended_at IS NULL").fetchone()
    assert pending == (1,)
    executed = len(executor.submitted)
    statements.reset()
    for _ in range(25):
        watched.step(60)
    ran = {one.text: one.calls for one in statements.executed()}
    ran.pop("SET LOCAL ROLE wakeful_owner", None)  # the clock's own, as are these
    of_the_clock = ("UPDATE wakeful.clock SET shift = $1", "BEGIN ISOLATION LEVEL READ COMMITTED", "COMMIT")
    assert ran == dict.fromkeys(of_the_clock, 25)
    assert len(executor.submitted) == executed
    say(conn, wakeful.resume_agent(ACME, "idle"))
    wait_until(lambda: state(conn, receipt) == "linked", what="the run of what waited")


@pytest.mark.usefixtures("acme")
def test_one_more_than_a_pass_and_all_run_though_a_hundred_claimed_ones_stand_in_front(
    conn: Conn, fleet: Schedulers
) -> None:
    for number in range(PASS):
        own(conn, f"J-{number}")
        wake = intent(conn, f"J-{number}")
        conn.execute(
            "UPDATE wakeful.wake SET state = 'claimed', claimed_at = wakeful.now(), claimed_by = 'another',"
            " due_at = wakeful.now() + interval '60 seconds' WHERE id = %s",
            (wake,),
        )
    for number in range(PASS + 1):
        own(conn, f"K-{number}")
        intent(conn, f"K-{number}")
    scheduler = fleet.start()
    wait_until(lambda: len(runs(conn, "ended_at IS NOT NULL")) == PASS + 1, what="their runs")
    claimed = "SELECT count(*) FROM wakeful.wake WHERE state = 'claimed' AND claimed_by = 'another'"
    assert conn.execute(claimed).fetchone() == (PASS,)
    assert scheduler.driver.passes >= 2


@pytest.mark.usefixtures("acme")
def test_a_drain_gives_settled_claims_back_keeps_the_others_and_an_undrain_finds_all(
    conn: Conn, fleet: Schedulers, watched: WatchedClock
) -> None:
    lost, mine = intent(conn, "I-2"), intent(conn)
    conn.execute(
        "UPDATE wakeful.wake SET state = 'claimed', claimed_at = wakeful.now(), claimed_by = 'one that died',"
        " due_at = wakeful.now() + interval '60 seconds' WHERE id = %s",
        (lost,),
    )
    held = HoldAt("intent_after_commit")
    scheduler = fleet.build(Tuning(clock=watched, crash=held))
    scheduler.start()
    try:
        held.wait_reached()
        say(conn, wakeful.set_setting("draining", True))
    finally:
        held.release()
    wait_until(lambda: state(conn, mine) == "queued", what="the claim given back")
    assert row(conn, mine, "claimed_at", "claimed_by") == (None, None)
    assert row(conn, lost, "state", "claimed_by") == ("claimed", "one that died")
    say(conn, wakeful.set_setting("draining", False))
    wait_until(lambda: state(conn, mine) == "linked", what="the run after the undrain")
    assert state(conn, lost) == "claimed"
    watched.advance(timedelta(seconds=61))
    wait_until(lambda: over(conn, 2), what="the run of the lapsed claim")


# ── by hand ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("acme")
def test_a_pass_by_hand_does_the_same_without_a_scheduler_and_says_what_it_did(
    conn: Conn, cli: CommandLine, database: Database, tmp_path: Path
) -> None:
    first, second, elsewhere = intent(conn), intent(conn), intent(conn, company="other")
    said = cli("dispatch", "--json").json["wakes"]
    [run] = runs(conn, "wake = %s", first)
    [other_run] = runs(conn, "wake = %s", elsewhere)
    assert {(one["company"], one["wake"], one["state"], one["run"], one["into"]) for one in said} == {
        (ACME, str(first), "linked", str(run), None),
        (ACME, str(second), "coalesced", None, str(first)),
        ("other", str(elsewhere), "linked", str(other_run), None),
    }
    third = intent(conn)
    done = cli("dispatch", "--company", ACME)
    assert done.code == 0
    assert str(third) in done.out
    assert str(dispatch_id(third)) in done.out
    assert "has a live run" in done.out
    assert cli("dispatch").out == "no status intent is due\n"
    # A scheduler that starts now takes up what the passes left.
    tmp_path.chmod(0o755)
    with running(real_scheduler(database, tmp_path / "scheduler")):
        wait_until(lambda: over(conn, 3), what="three runs")
    assert {out for (out,) in conn.execute("SELECT stdout_tail FROM wakeful.run")} == {"coder on I-1\n"}


@pytest.mark.usefixtures("acme")
def test_passes_by_hand_beside_a_scheduler_double_nothing(conn: Conn, cli: CommandLine, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    fleet.start(executor=executor)
    for _ in range(3):
        for issue in ("I-1", "I-2"):
            intent(conn, issue)
        assert cli("dispatch", "--json").code == 0
    wait_until(lambda: conn.execute(PENDING).fetchone() == (0,), what="the end of all wakes")
    wait_until(lambda: not runs(conn, "ended_at IS NULL"), what="the end of all runs")
    carried = "SELECT count(*) FROM wakeful.wake WHERE state = 'linked'"
    assert conn.execute(carried).fetchone() == (len(runs(conn)),)
    assert len(executor.submitted) == len(runs(conn)) <= 6


PENDING = "SELECT count(*) FROM wakeful.wake WHERE ended_at IS NULL"


@pytest.mark.usefixtures("acme")
def test_no_pass_by_hand_while_the_instance_drains(conn: Conn, cli: CommandLine) -> None:
    wake = intent(conn)
    say(conn, wakeful.set_setting("draining", True))
    done = cli("dispatch")
    assert (done.code, done.out) == (4, "")
    assert "drains" in done.err
    assert state(conn, wake) == "queued"


@pytest.mark.usefixtures("acme")
def test_decisions_and_reviews_on_the_command_line(conn: Conn, cli: CommandLine) -> None:
    acme = ("--company", ACME)
    assert cli("issue", "review", "I-1", "agent:coder", *acme).out == "issue I-1: agent:coder reviews it\n"
    assert "as before" in cli("issue", "review", "I-1", "agent:coder", *acme).out
    commit = (
        "status",
        "commit",
        "I-1",
        "in_review",
        "--expect",
        "1",
        "--key",
        "k",
        "--review",
        "R-1",
        "--reason",
        "ok",
    )
    made = cli(*commit, "--json", *acme).json
    assert (made["outcome"], made["state"], made["issue"]) == ("merged", "in_review", "I-1")
    assert row(conn, UUID(made["wake"]), "agent", "review") == ("coder", "R-1")
    assert cli(*commit, *acme).out == f"issue I-1: in_review, as before, wake {made['wake']}\n"
    late = cli("status", "commit", "I-1", "done", "--expect", "1", *acme)
    assert late.code == 4
    assert "fresh facts" in late.err
    assert cli("status", "commit", "I-1", "finished", *acme).code == 2
    assert cli("issue", "review", "I-1", *acme).code == 2
    assert cli("issue", "review", "I-1", "--nobody", *acme).out == "issue I-1: nobody reviews it\n"
    unread = cli("status", "commit", "I-9", "in_review", *acme).out
    assert unread == "issue I-9: in_review; no agent is woken; who reviews it: wakeful issue review ISSUE agent:ID\n"
    assert cli("status", "commit", "I-9", "in_review", *acme).out == "issue I-9: in_review, as before\n"
    assert cli("status", "commit", "I-9", "cancelled", *acme).out == "issue I-9: cancelled; no agent is woken\n"
    [listed] = cli("status", "list", "--issue", "I-1", "--json", *acme).json["rows"]
    assert [listed[name] for name in ("former", "status", "version", "review", "reason", "key")] == [
        *("todo", "in_review", 2, "R-1", "ok", "k"),
    ]
    assert cli("status", "list", "--issue", "I-2", "--json", *acme).json["rows"] == []
    assert "in_review" in cli("status", "list", *acme).out
    assert cli("why", made["wake"], "--json", *acme).json["state"] == "queued"
