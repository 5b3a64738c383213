"""Producers called at random from many sessions, against two schedulers: nobody deadlocks, nothing is forgotten.

Afterwards every gate is opened. Then every wake has become its one run, or has ended for a reason; every
reservation is settled; and no hard limit was ever exceeded by what was admitted under it.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from psycopg.rows import dict_row
from tests.conditions import wait_until
from tests.schedulers import InstantExecutor, schedulers

import wakeful
from wakeful import producers
from wakeful.errors import Conflict, InvalidInput, NotFound, WaitRefusal, WakefulError
from wakeful.executions import RunKey
from wakeful.producers import Statement
from wakeful.testing import Database

SECONDS = 40.0
THREADS = 5
LIMIT = 40  # of the policy under which nothing is spent but what runs reserve
AGENTS = ("ann", "bob", "cat")
PROJECTS = ("site", "shop")
ISSUES = tuple(f"I-{number}" for number in range(8))
ACCOUNTS = ("acme/one", "acme/two")
PEOPLE = ("user:eve", "user:fay")
REFUSALS = (Conflict, InvalidInput, NotFound, WaitRefusal)
FINAL_WAKES = ("linked", "coalesced", "skipped", "retired", "settled", "cancelled", "failed")
OVERDRAWN = """
SELECT b.amount, b.spent, b.live FROM (
    SELECT b.amount,
           (SELECT coalesce(sum(s.amount), 0) FROM wakeful.spend s
            WHERE s.company = b.company AND s.agent = 'cat') AS spent,
           (SELECT coalesce(sum(r.amount), 0) FROM wakeful.reservation r
            WHERE r.company = b.company AND r.policy = b.id
              AND r.state IN ('reserved', 'in_flight', 'indeterminate')) AS live
    FROM wakeful.budget b WHERE b.company = 'acme' AND b.id = 'agent:cat') AS b
WHERE b.spent + b.live > b.amount
"""

LEFT = """
SELECT (SELECT count(*) FROM wakeful.wake WHERE state <> ALL (%s))
       + (SELECT count(*) FROM wakeful.run WHERE ended_at IS NULL) AS n
"""


class Moody(InstantExecutor):
    """Every third run fails."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = 0

    def _report(self, key: RunKey) -> Any:
        self._turn += 1
        self.exit_code = int(self._turn % 3 == 0)
        return super()._report(key)


class Crowd:
    """Threads that call producers."""

    def __init__(self, database: Database, seed: int) -> None:
        self._database = database
        self._seed = seed
        self._over = threading.Event()
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.overdrawn: list[Any] = []

    def work(self, seconds: float) -> None:
        threads = [threading.Thread(target=self._one, args=(place,)) for place in range(THREADS)]
        threads.append(threading.Thread(target=self._watch))
        for thread in threads:
            thread.start()
        self._over.wait(seconds)
        self._over.set()
        for thread in threads:
            thread.join(30)

    def _watch(self) -> None:
        conn = self._database.connect()
        while not self._over.wait(0.02):
            self.overdrawn += conn.execute(OVERDRAWN).fetchall()

    def _one(self, place: int) -> None:
        draw = random.Random(f"{self._seed}-{place}")  # noqa: S311 - what happens next is no secret
        conn = self._database.connect()
        conn.row_factory = dict_row
        while not self._over.is_set():
            name, statement = self._choose(draw, conn)
            if statement is None:
                continue
            try:
                result = wakeful.run(conn, statement)
                self.outcomes[f"{name} {result.outcome}"] += 1
            except WakefulError as error:
                self.outcomes[f"{name} refused"] += 1
                if not isinstance(error, REFUSALS):
                    self.faults.append(f"{name}: {error}")
            except Exception as error:
                self.faults.append(f"{name}: {type(error).__name__} {error}")
            self._over.wait(draw.uniform(0, 0.05))

    def _choose(self, draw: random.Random, conn: Any) -> tuple[str, Statement | None]:
        issue, other, project = draw.choice(ISSUES), draw.choice(ISSUES), draw.choice(PROJECTS)
        agent = agent_of(issue)

        def one(table: str, where: str) -> Any:
            row = conn.execute(
                f"SELECT id FROM wakeful.{table} WHERE company = 'acme' AND {where} ORDER BY random() LIMIT 1"  # noqa: S608
            ).fetchone()
            return row["id"] if row else None

        def on(table: str, where: str, make: Any) -> Statement | None:
            found = one(table, where)
            return None if found is None else make("acme", found)

        def changed(make: Any, *words: str) -> Statement | None:
            row = conn.execute(
                "SELECT id, revision FROM wakeful.comment WHERE deleted_at IS NULL ORDER BY random() LIMIT 1"
            ).fetchone()
            return None if row is None else make("acme", row["id"], *words, row["revision"], force=True)

        soon = datetime.now(UTC) + timedelta(seconds=draw.uniform(0, 1))
        choices: list[tuple[float, str, Any]] = [
            (
                8,
                "wake",
                lambda: wakeful.request_wake(
                    "acme", agent, draw.choice((issue, None)), priority=draw.choice((None, -5, 3))
                ),
            ),
            (3, "wake at", lambda: wakeful.request_wake("acme", agent, issue, soon)),
            (3, "wake key", lambda: wakeful.request_wake("acme", agent, issue, key=f"k{draw.randrange(30)}")),
            (4, "retry", lambda: on("run", "state = 'failed'", wakeful.request_retry)),
            (2, "chat", lambda: on("run", "state = 'failed'", asked_in_a_chat)),
            (1, "begin", lambda: on("chat_action", "state = 'pending'", producers.begin_chat_action)),
            (
                2,
                "settle",
                lambda: on(
                    "chat_action",
                    "settled_at IS NULL",
                    lambda company, action: settled(
                        company, action, draw.choice(("processed", "failed")), one("run", "ended_at IS NOT NULL")
                    ),
                ),
            ),
            (3, "comment", lambda: wakeful.save_comment("acme", issue, "words", draw.choice(PEOPLE), agent=agent)),
            (2, "edit", lambda: changed(wakeful.edit_comment, f"words {draw.random()}")),
            (1, "discard", lambda: changed(wakeful.discard_comment)),
            (1, "delete", lambda: changed(wakeful.delete_comment)),
            (2, "ask", lambda: wakeful.create_card("acme", issue, agent, "really?")),
            (
                2,
                "answer",
                lambda: on(
                    "card",
                    "status = 'pending'",
                    lambda company, card: wakeful.answer_card(company, card, "yes", actor=draw.choice(PEOPLE)),
                ),
            ),
            (1, "withdraw", lambda: on("card", "status <> 'superseded'", wakeful.withdraw_card)),
            (
                3,
                "take",
                lambda: on("run", "state = 'running'", lambda company, run: wakeful.take_issue(company, run, 1, issue)),
            ),
            (2, "interrupt", lambda: wakeful.interrupt_issue("acme", issue, actor=draw.choice(PEOPLE))),
            (1, "stop", lambda: on("run", "ended_at IS NULL", wakeful.stop_run)),
            (1, "rearm", lambda: on("wake", "state IN ('cancelled', 'failed', 'retired')", wakeful.rearm_wake)),
            (1, "retire", lambda: on("wake", "state = 'deferred'", wakeful.retire_wake)),
            (1, "pause company", lambda: wakeful.pause_company("acme")),
            (2, "resume company", lambda: wakeful.resume_company("acme")),
            (1, "pause agent", lambda: wakeful.pause_agent("acme", agent)),
            (2, "resume agent", lambda: wakeful.resume_agent("acme", agent)),
            (1, "pause project", lambda: wakeful.pause_project("acme", project)),
            (2, "resume project", lambda: wakeful.resume_project("acme", project)),
            (1, "hold", lambda: producers.hold_issue("acme", issue, mode=draw.choice(("pause", "cancel")))),
            (2, "release", lambda: producers.release_hold("acme", issue)),
            (2, "restore", lambda: producers.restore_hold("acme", issue)),
            (2, "depend", lambda: producers.add_dependency("acme", issue, other)),
            (3, "undepend", lambda: producers.remove_dependency("acme", issue, other)),
            (
                1,
                "status",
                lambda: wakeful.set_issue_status(
                    "acme", issue, draw.choice(("todo", "in_progress", "done", "backlog"))
                ),
            ),
            (
                4,
                "commit",
                lambda: wakeful.commit_status(
                    "acme",
                    issue,
                    draw.choice(("todo", "in_progress", "in_review", "done", "cancelled")),
                    key=draw.choice((None, f"d{draw.randrange(30)}")),
                    expected_version=draw.choice((None, None, None, 3)),
                ),
            ),
            (
                1,
                "review",
                lambda: wakeful.assign_review("acme", issue, draw.choice((f"agent:{agent}", "agent:ann", None))),
            ),
            (1, "assign", lambda: wakeful.assign_issue("acme", issue, draw.choice((f"agent:{agent}", "user:eve")))),
            (
                2,
                "spend",
                lambda: wakeful.add_spend(
                    "acme", 1, agent=draw.choice(("ann", "bob")), project=draw.choice((None, project))
                ),
            ),
            (2, "raise", lambda: wakeful.raise_budget("acme", draw.choice(("project:site", "agent:ann")), by_amount=2)),
            (0.5, "raise cat", lambda: wakeful.raise_budget("acme", "agent:cat", by_amount=1)),
            (1, "open recovery", lambda: producers.open_recovery("acme", issue, "why not")),
            (2, "resolve", lambda: on("recovery_action", "state = 'open'", producers.resolve_recovery)),
            (1, "lease", lambda: producers.open_lease("acme", f"L-{issue}", issue)),
            (2, "unlease", lambda: producers.close_lease("acme", f"L-{issue}")),
            (
                1,
                "close account",
                lambda: producers.close_account("acme", draw.choice(ACCOUNTS), until=draw.choice((None, soon))),
            ),
            (2, "clear account", lambda: producers.clear_account("acme", draw.choice(ACCOUNTS))),
            (1, "reset", lambda: producers.reset_circuit("acme", agent)),
            (1, "limit", lambda: producers.limit_company("acme", draw.choice((1, 2, None)))),
            (0.1, "panic", lambda: wakeful.panic_company("acme")),
            (1, "lift", lambda: wakeful.lift_panic("acme")),
        ]
        _, name, make = draw.choices(choices, [weight for weight, _, _ in choices])[0]
        return name, make()


def agent_of(issue: str) -> str:
    return AGENTS[ISSUES.index(issue) % len(AGENTS)]


def asked_in_a_chat(company: str, run: UUID) -> Statement:
    return producers.open_chat_action(company, run, "user:eve")


def settled(company: str, action: UUID, state: str, run: UUID | None) -> Statement:
    """A failed action, one that led to some run, or (half of the processed ones) one that led to none."""
    led = run if state == "processed" and action.int % 2 else None
    return producers.settle_chat_action(company, action, state, run=led)


def open_everything(conn: Any) -> None:
    """Open all gates, in any order."""

    def quietly(statement: Statement) -> None:
        try:
            wakeful.run(conn, statement)
        except REFUSALS:
            return

    for statement in (
        wakeful.lift_panic("acme"),
        wakeful.resume_company("acme"),
        producers.limit_company("acme", None),
    ):
        quietly(statement)
    for agent in AGENTS:
        quietly(wakeful.resume_agent("acme", agent))
        quietly(producers.reset_circuit("acme", agent))
        quietly(wakeful.raise_budget("acme", f"agent:{agent}", amount=10**6))
    for project in PROJECTS:
        quietly(wakeful.raise_budget("acme", f"project:{project}", amount=10**6))
        quietly(wakeful.resume_project("acme", project))
    for issue in ISSUES:
        quietly(producers.restore_hold("acme", issue))
        quietly(producers.release_hold("acme", issue))
        quietly(producers.close_lease("acme", f"L-{issue}"))
        quietly(wakeful.assign_issue("acme", issue, f"agent:{agent_of(issue)}"))
        for other in ISSUES:
            quietly(producers.remove_dependency("acme", issue, other))
    for account in ACCOUNTS:
        quietly(producers.clear_account("acme", account))
    for row in conn.execute("SELECT id FROM wakeful.recovery_action WHERE state = 'open'").fetchall():
        quietly(producers.resolve_recovery("acme", row["id"]))
    for row in conn.execute("SELECT id FROM wakeful.chat_action WHERE settled_at IS NULL").fetchall():
        quietly(producers.settle_chat_action("acme", row["id"], "processed"))


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [3])
def test_nothing_is_lost_between_many_hands(database: Database, tmp_path: Path, seed: int) -> None:
    conn = database.connect()
    conn.row_factory = dict_row
    wakeful.run(conn, wakeful.add_company("acme"))
    for project in PROJECTS:
        wakeful.run(conn, wakeful.add_project("acme", project))
    for place, agent in enumerate(AGENTS):
        provider, account = ACCOUNTS[place % 2].split("/")
        wakeful.run(
            conn,
            wakeful.add_agent(
                "acme", agent, ["true"], estimate=1, provider=provider, account=account, max_concurrent_runs=3
            ),
        )
    for place, issue in enumerate(ISSUES):
        parent = ISSUES[place - 1] if place % 3 else None
        wakeful.run(conn, producers.create_issue("acme", issue, project=(None, *PROJECTS)[place % 3], parent=parent))
        wakeful.run(conn, wakeful.assign_issue("acme", issue, f"agent:{agent_of(issue)}"))
    for policy, amount in (("project:site", 20), ("agent:ann", 20), ("agent:cat", LIMIT)):
        wakeful.run(conn, wakeful.set_budget("acme", policy, amount, hard_stop=True))
    wakeful.run(conn, producers.set_setting("ramp_starts", 1000))
    with schedulers(database, tmp_path) as many:
        for _ in range(2):
            many.start(executor=Moody())
        crowd = Crowd(database, seed)
        crowd.work(SECONDS)
        open_everything(conn)

        def left() -> int:
            return conn.execute(LEFT, (list(FINAL_WAKES),)).fetchone()["n"]

        # However many there are: while some are left, their number falls. A gate's signals are coalesced for 30 s.
        while before := left():
            wait_until(lambda: left() < before, within=45, what=f"an end of one of {before} wakes and runs")
    assert crowd.faults == []
    assert crowd.overdrawn == []
    live = conn.execute(
        "SELECT count(*) AS n FROM wakeful.reservation WHERE state IN ('reserved', 'in_flight')"
    ).fetchone()
    assert live["n"] == 0
    doubled = conn.execute(
        "SELECT wake FROM wakeful.run WHERE wake IS NOT NULL GROUP BY wake HAVING count(*) > 1"
    ).fetchall()
    assert doubled == []
    locked = conn.execute("SELECT id FROM wakeful.issue WHERE execution_run IS NOT NULL").fetchall()
    assert locked == []
