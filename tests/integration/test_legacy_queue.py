"""What a cancelled run names is released by its end, whoever ended it, and after a restart: at once, without grace."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests import workplace
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.passes import admit, parked, row, runs, start
from tests.rows import request, say, wake_of
from tests.schedulers import BRISK, Schedulers
from tests.silence import silence
from tests.workplace import Workplace

import wakeful
from wakeful import host_loss, producers
from wakeful.executions import EndClass, Grade, RunKey
from wakeful.owners import NamesReceipts
from wakeful.results import Conclusion
from wakeful.scheduler import Tuning
from wakeful.terminals import Death, Ending, record
from wakeful.testing import Database, Statements
from wakeful.testing.clock import WatchedClock
from wakeful.testing.instant import InstantExecutor
from wakeful_plugins.interrupt import Interrupts

Conn = psycopg.Connection[Any]
ACME, CODER, ANN = "acme", "coder", "user:ann"

pytestmark = pytest.mark.usefixtures("assigned")


def working(conn: Conn) -> RunKey:
    admit(conn, request(conn, "I-1"))
    (key,) = start(conn)
    return key


def save(conn: Conn, id: str = "c-1") -> UUID:
    made = wakeful.run(conn, wakeful.save_comment(ACME, "I-1", "words", ANN, id=id)).wake
    assert made is not None
    return made


def interrupt(conn: Conn) -> None:
    wakeful.run(conn, wakeful.interrupt_issue(ACME, "I-1", actor=ANN))


def no_crash(point: str) -> None:
    pass


# ── every way in which a run is cancelled ───────────────────────────────────────────────────────────────


def ends_contained(conn: Conn, key: RunKey) -> None:
    conclusion = Conclusion("cancelled", EndClass.STOPPED, "run.stopped")
    record(conn, ACME, [Ending(key, conclusion, grade=Grade.CONTAINED)], crash=no_crash)


def dies_on_the_way(conn: Conn, key: RunKey) -> None:
    record(conn, ACME, [], [Death(key, Grade.WAITED, "its runner was killed")], crash=no_crash)


def panics(conn: Conn, key: RunKey) -> None:
    say(conn, producers.panic_company(ACME))
    ends_contained(conn, key)
    say(conn, producers.lift_panic(ACME))


def is_attested_dead(conn: Conn, key: RunKey) -> None:
    conn.execute("UPDATE wakeful.run SET uncertain_at = now(), generation = generation + 1 WHERE id = %s", (key.run,))
    [action] = conn.execute(
        "INSERT INTO wakeful.recovery_action (company, run, issue, cause) VALUES ('acme', %s, 'I-1', 'x') RETURNING id",
        (key.run,),
    ).fetchone()
    say(conn, producers.resolve_recovery(ACME, action, outcome="dead"))


def loses_its_host(conn: Conn, key: RunKey) -> None:
    conn.execute("INSERT INTO wakeful.host (id) VALUES ('test-host')")
    say(conn, producers.declare_host_dead("test-host"))
    host_loss.settle(conn)


ENDS: list[Callable[[Conn, RunKey], None]] = [ends_contained, dies_on_the_way, panics, is_attested_dead, loses_its_host]


@pytest.mark.parametrize("ends", ENDS, ids=lambda end: end.__name__)
def test_every_cancellation_releases_what_the_run_names(
    conn: Conn, listener: Listener, ends: Callable[[Conn, RunKey], None]
) -> None:
    key, wake = working(conn), save(conn)
    interrupt(conn)
    assert row(conn, wake, "due_at > wakeful.now()") == (True,)
    listener.heard()
    ends(conn, key)
    assert runs(conn, "state = 'cancelled'") == [key.run]
    assert row(conn, wake, "due_at <= wakeful.now()", "state") == (True, "deferred")
    assert [s["o"] for s in listener.heard() if s.get("w") == str(wake)] == ["interrupt"]
    assert len(admit(conn, wake).runs) == 1


def test_a_run_that_was_not_cancelled_releases_nothing_by_name(conn: Conn, listener: Listener) -> None:
    key, wake = working(conn), save(conn)
    interrupt(conn)
    before = wake_of(conn, wake)
    listener.heard()
    record(
        conn, ACME, [Ending(key, Conclusion("succeeded", EndClass.OK, "run.ok"), grade=Grade.CONTAINED)], crash=no_crash
    )
    assert wake_of(conn, wake) == before
    assert [s["g"] for s in listener.heard()] == ["execution"]  # the gate tells of it


def test_what_it_names_stays_behind_the_gate_that_really_blocks_it(conn: Conn, listener: Listener, clock: Any) -> None:
    key, wake = working(conn), save(conn)
    interrupt(conn)
    say(conn, producers.pause_agent(ACME, CODER))
    ends_contained(conn, key)
    assert parked(admit(conn, wake), wake) == "agent.paused_manual"
    clock.advance(31)
    admit(conn, wake)
    assert row(conn, wake, "due_at", "owner") == (None, "interrupt")
    say(conn, producers.resume_agent(ACME, CODER))
    assert len(admit(conn, wake, signalled=True).runs) == 1


def test_what_has_ended_by_then_is_left_alone(conn: Conn, listener: Listener) -> None:
    key, wake = working(conn), save(conn)
    interrupt(conn)
    say(conn, producers.retire_wake(ACME, wake))
    before = wake_of(conn, wake)
    listener.heard()
    ends_contained(conn, key)
    assert wake_of(conn, wake) == before
    assert [s for s in listener.heard() if s.get("w")] == []


# ── after a start ───────────────────────────────────────────────────────────────────────────────────────


def legacy(conn: Conn, agent: str = CODER, issue: str = "I-1", **columns: Any) -> tuple[UUID, UUID]:
    """A cancelled run that names a saved receipt, as another version left them; returns both."""
    wake = request(conn, issue, agent=agent)
    changes = {"due_at": None, **columns}
    text = f"UPDATE wakeful.wake SET {', '.join(f'{n} = %({n})s' for n in changes)} WHERE id = %(id)s"  # noqa: S608 - this test's own names
    conn.execute(text, {**changes, "id": wake})
    [run] = conn.execute(
        "INSERT INTO wakeful.run (company, agent, state, ended_at, evidence, named_wake)"
        " VALUES ('acme', %s, 'cancelled', now(), 'contained', %s) RETURNING id",
        (agent, wake),
    ).fetchone()
    return run, wake


def test_names_are_read_in_pages_of_what_nothing_else_would_look_at(conn: Conn) -> None:
    waits = {"wait_gate": "company", "wait_key": ACME, "wait_reason": "company.paused"}
    named = [legacy(conn, issue=f"L-{n}") for n in range(5)]
    legacy(conn, issue="L-6", **waits)
    legacy(conn, issue="L-7", due_at=conn.execute("SELECT wakeful.now()").fetchone()[0])
    _, ended = legacy(conn, issue="L-8")
    say(conn, producers.retire_wake(ACME, ended))
    owner = Interrupts()
    assert isinstance(owner, NamesReceipts)
    found, after = [], None
    while page := owner.named(conn, after, 2):
        assert len(page) <= 2
        found += [(company, wake) for company, wake, _ in page]
        after = page[-1][2]
    assert found == [(ACME, wake) for _, wake in named]


def test_a_start_releases_what_cancelled_runs_name(conn: Conn, fleet: Schedulers, watched: WatchedClock) -> None:
    _, wake = legacy(conn)
    tomorrow = conn.execute("SELECT wakeful.now() + interval '1 day'").fetchone()[0]
    _, sleeper = legacy(conn, issue="I-2", due_at=tomorrow)
    fleet.start(Tuning(clock=watched, pace=BRISK))
    wait_until(
        lambda: len(runs(conn, "wake = ANY (%s) AND state = 'succeeded'", [wake, sleeper])) == 2, what="both runs"
    )


def test_behind_a_closed_gate_a_start_parks_it_once_and_is_silent(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    _, wake = legacy(conn)
    say(conn, producers.pause_agent(ACME, CODER))
    scheduler = fleet.start(Tuning(clock=watched, pace=BRISK))
    wait_until(lambda: row(conn, wake, "wait_reason") == ("agent.paused_manual",), what="the wait")
    watched.settle()
    assert row(conn, wake, "failures", "due_at > wakeful.now()") == (0, True)
    watched.step(31)
    assert row(conn, wake, "failures", "due_at", "version") == (0, None, 2)
    silence(statements, watched, minutes=25)
    passes = scheduler.driver.passes
    say(conn, producers.resume_agent(ACME, CODER))
    wait_until(lambda: len(runs(conn, "wake = %s AND state = 'succeeded'", wake)) == 1, what="its run")
    assert scheduler.driver.passes > passes


def test_an_interrupted_receipt_behind_an_unproven_run_is_silent_after_its_grace(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    key, wake = working(conn), save(conn)
    interrupt(conn)
    conclusion = Conclusion("cancelled", EndClass.STOPPED, "run.stopped")
    record(conn, ACME, [Ending(key, conclusion, grade=Grade.REPORTED)], crash=no_crash)
    executor = InstantExecutor()
    fleet.start(Tuning(clock=watched, pace=BRISK), executor=executor)
    wait_until(lambda: row(conn, wake, "wait_reason") == ("execution.unproven",), what="the wait")
    watched.settle()
    watched.step(31)
    assert row(conn, wake, "due_at", "failures", "interrupt_by") == (None, 0, ANN)
    silence(statements, watched, minutes=25)
    assert executor.submitted == []


def test_a_running_program_is_interrupted_and_the_messages_run_next(
    conn: Conn, database: Database, tmp_path: Path
) -> None:
    """Real children and the real clock: TERM to the tree, the proof, and the next run at once."""
    place = Workplace(conn, tmp_path)
    place.agent(CODER, stop_grace=timedelta(seconds=5))
    scheduler = workplace.scheduler(database.dsn, tmp_path)
    try:
        first = place.wake({"block": True}, "I-1")
        place.blocked(first)
        wake = save(conn)
        interrupt(conn)
        second = place.end(place.run_of(wake))
    finally:
        assert scheduler.stop()
    assert (second.state, second.attempt) == ("succeeded", 1)
    [old, new] = place.rows(
        "SELECT state, end_class, evidence, comments, authority, created_at, ended_at FROM wakeful.run ORDER BY id"
    )
    assert old[:3] == ("cancelled", "stopped", "contained")
    assert (new[3], new[4]) == (["c-1"], ANN)
    grace_end = row(conn, wake, "interrupt_at + interval '30 seconds'")[0]
    assert old[6] <= new[5] < grace_end
    ended = wake_of(conn, wake)
    assert (ended.interrupt_by, ended.interrupted_run, ended.run) == (ANN, first, second.id)
