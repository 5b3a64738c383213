"""All duties at once: they are silent together, survive a restart together, and are found by the first start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from psycopg import Connection
from tests.conditions import wait_until
from tests.duties import CASES, PLUGINS, failed_run_on
from tests.integration.local import scheduler as real_scheduler
from tests.rows import say

from wakeful import config, producers
from wakeful.plugins import Hooks
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing import Database, InstantExecutor, Statements, WatchedClock
from wakeful.testing.conformance import Place
from wakeful.testing.conformance.stage import hooks_of

Conn = Connection[Any]
LONG = timedelta(minutes=25)
# What each receipt waits behind; each agent's name says which.
GATES = ("paused", "poor", "project", "held")


@pytest.fixture
def clock(database: Database) -> WatchedClock:
    return WatchedClock(database.connect(purpose="test clock"))


@pytest.fixture
def acme(conn: Conn) -> None:
    """A company with an agent that may run, and one for each gate."""
    say(conn, producers.add_company("acme"))
    for agent in ("free", *GATES):
        say(conn, producers.add_agent("acme", agent, ["echo", "awake"]))
    say(conn, producers.add_project("acme", "broke"), producers.create_issue("acme", "ROOT"))


def close(conn: Conn) -> None:
    say(conn, producers.pause_agent("acme", "paused"), producers.hold_issue("acme", "ROOT"))
    say(conn, producers.set_budget("acme", "agent:poor", 0, period="lifetime"))
    say(conn, producers.set_budget("acme", "project:broke", 0, period="lifetime"))


def reopen(conn: Conn) -> None:
    say(conn, producers.resume_agent("acme", "paused"), producers.release_hold("acme", "ROOT"))
    say(
        conn,
        producers.raise_budget("acme", "agent:poor", amount=10),
        producers.raise_budget("acme", "project:broke", amount=10),
    )


def save(conn: Conn, agent: str) -> dict[str, UUID]:
    """Save one receipt of each duty for an agent, behind its gate; return the wakes by duty."""
    saved = {}
    for duty, case in CASES.items():
        issue = f"{agent} {duty}"
        with conn.transaction():
            parent, project = ("ROOT" if agent == "held" else None), ("broke" if agent == "project" else None)
            say(conn, producers.create_issue("acme", issue, parent=parent, project=project))
            saved[duty] = case.save(conn, Place("acme", agent, issue))
    return saved


def pending(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT id, kind, owner, state, agent, issue, wait_gate, wait_key, wait_reason, due_at, version, comments"
        " FROM wakeful.wake WHERE ended_at IS NULL ORDER BY id"
    ).fetchall()


def runs(conn: Conn) -> Counter[str]:
    """Runs that schedulers made, by issue."""
    found = conn.execute("SELECT issue FROM wakeful.run WHERE host IS DISTINCT FROM 'elsewhere'").fetchall()
    return Counter(issue for (issue,) in found)


class Life:
    """Schedulers that live one after another on one database."""

    def __init__(self, database: Database, directory: Path, clock: WatchedClock) -> None:
        flags = {"dsn": database.dsn, "data": str(directory), "host": "here"}
        self._settings = config.load(flags, {}, directory)
        self._clock = clock
        self.executor = InstantExecutor()
        self._scheduler: Scheduler | None = None

    def _hooks(self) -> Hooks:
        return hooks_of(self._settings, PLUGINS, self.executor)

    def begin(self) -> None:
        self._scheduler = Scheduler(self._settings, self._hooks(), tuning=Tuning(clock=self._clock))
        self._scheduler.start()
        assert self._scheduler.wait_ready(30)
        self._clock.settle()

    def end(self) -> None:
        if self._scheduler is not None:
            assert self._scheduler.stop()
            self._scheduler = None


@pytest.fixture
def life(database: Database, tmp_path: Path, clock: WatchedClock) -> Iterator[Life]:
    made = Life(database, tmp_path, clock)
    yield made
    made.end()


def expected(*agents: str) -> Counter[str]:
    return Counter(f"{agent} {duty}" for agent in agents for duty in CASES)


def settled(conn: Conn, *agents: str, more: Sequence[str] = ()) -> bool:
    unended = conn.execute("SELECT count(*) FROM wakeful.run WHERE ended_at IS NULL").fetchone()
    return unended == (0,) and runs(conn) == expected(*agents) + Counter(more)


@pytest.mark.usefixtures("acme")
def test_they_are_silent_together_and_a_restart_keeps_what_was_pending_and_only_that(
    conn: Conn, clock: WatchedClock, life: Life, database: Database
) -> None:
    close(conn)
    for agent in ("free", *GATES):
        save(conn, agent)
    life.begin()
    wait_until(lambda: settled(conn, "free"), what="the runs of what may run")
    # A start judges it like any retry; this one is saved afterwards.
    unsettled = producers.run(conn, producers.open_chat_action("acme", failed_run(conn), actor="user:ann")).wake
    for _ in range(4):
        clock.step(31)
    before = pending(conn)
    assert {row[0] for row in before} >= {unsettled}
    assert {row[4] for row in before} == {*GATES, "free"}
    assert all(row[6] for row in before), "each says what it waits for"
    executed = len(life.executor.submitted)
    with Statements(database) as statements:
        statements.reset()
        clock.advance(0)
        own = Counter({one.text: one.calls * 5 for one in statements.executed()})
        clock.settle()
        statements.reset()
        for _ in range(5):
            clock.step(LONG / 5)
        assert Counter({one.text: one.calls for one in statements.executed()}) - own == Counter()
    assert len(life.executor.submitted) == executed
    assert pending(conn) == before

    life.end()
    life.begin()
    for _ in range(2):
        clock.step(31)
    wait_until(lambda: settled(conn, "free", more=["chat retry"]), what="the retry that a start judges like any other")
    assert pending(conn) == [row for row in before if row[0] != unsettled]

    reopen(conn)
    wait_until(lambda: settled(conn, "free", *GATES, more=["chat retry"]), what="one run for all that waited")
    assert pending(conn) == []


def failed_run(conn: Conn) -> UUID:
    return failed_run_on(conn, Place("acme", "free", "chat retry"))


@pytest.mark.usefixtures("acme")
def test_history_that_was_saved_before_any_worker_registered_runs_once_with_real_output(
    conn: Conn, database: Database, tmp_path: Path
) -> None:
    save(conn, "free")
    tmp_path.chmod(0o755)
    first = real_scheduler(database, tmp_path / "data")
    first.start()
    try:
        wait_until(lambda: settled(conn, "free"), what="one run for each duty")
        assert pending(conn) == []
        outputs = conn.execute("SELECT state, stdout_tail FROM wakeful.run WHERE host IS DISTINCT FROM 'elsewhere'")
        assert set(outputs.fetchall()) == {("succeeded", "awake\n")}
    finally:
        assert first.stop()


@pytest.mark.parametrize("duty", CASES)
@pytest.mark.usefixtures("acme")
def test_a_saved_receipt_behind_a_project_budget_is_silent_after_its_grace_and_runs_once_when_it_is_raised(
    conn: Conn, clock: WatchedClock, life: Life, database: Database, duty: str
) -> None:
    say(conn, producers.set_budget("acme", "project:broke", 0, period="lifetime"))
    say(conn, producers.create_issue("acme", "I-1", project="broke"))
    with conn.transaction():
        CASES[duty].save(conn, Place("acme", "free", "I-1"))
    life.begin()
    wait_until(lambda: all(row[6] for row in pending(conn)), what="the park")
    clock.step(31)
    before = pending(conn)
    assert [row[9] for row in before] == [None]
    with Statements(database) as statements:
        for _ in range(5):
            clock.step(LONG / 5)
        assert not [one for one in statements.executed() if "wakeful.wake" in one.text or "wakeful.run" in one.text]
    assert pending(conn) == before
    say(conn, producers.raise_budget("acme", "project:broke", amount=10))
    wait_until(lambda: runs(conn) == Counter(["I-1"]), what="the run")
    wait_until(lambda: not pending(conn), what="the end of the receipt")
