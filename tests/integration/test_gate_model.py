"""Random sequences of producers on one company, against a small pure model of the gates.

What the model says may run has run, once; what it says may not, has not.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg import Connection
from tests.conditions import wait_until

from wakeful import config, plugins
from wakeful.scheduler import Scheduler
from wakeful.testing import Database

AGENTS = ("ann", "bob")
ISSUES = {"A1": "ann", "B": "bob"}  # issue -> the agent its wakes are for
PARENT = {"A1": "A"}
PROJECT = {"A1": "site"}


@dataclass
class Model:
    """The company as the gates see it; money in whole units, all estimates 0."""

    company_paused: bool = False
    panic: bool = False
    paused_agents: set[str] = field(default_factory=set)
    project_manual: bool = False
    held: set[str] = field(default_factory=set)
    blocked: set[str] = field(default_factory=set)
    leased: set[str] = field(default_factory=set)
    limited: bool = False
    done: set[str] = field(default_factory=set)
    budget: dict[str, int] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    live: dict[str, bool] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)

    def settle(self) -> None:
        """Let everything happen that may happen now."""
        for issue, agent in ISSUES.items():
            if self.pending.get(issue, 0) == 0 or self._closed_before_issue(issue, agent):
                continue
            if issue in self.done:
                self.pending[issue] = 0
            elif not (issue in self.blocked or self.live.get(issue) or issue in self.leased or self.limited):
                self.pending[issue] -= 1
                self.live[issue] = True
                self.runs[issue] = self.runs.get(issue, 0) + 1

    def _closed_before_issue(self, issue: str, agent: str) -> bool:
        policies = ["company", f"agent:{agent}"] + ([f"project:{PROJECT[issue]}"] if issue in PROJECT else [])
        gone = any(self.budget.get(policy, 10**9) <= self.spent.get(policy, 0) for policy in policies)
        project = issue in PROJECT and self.project_manual
        held = issue in self.held or PARENT.get(issue) in self.held
        return self.company_paused or self.panic or agent in self.paused_agents or gone or project or held


class Company:
    """One company in the database, and its model."""

    def __init__(self, conn: Connection[Any], name: str) -> None:
        self.conn = conn
        self.name = name
        self.model = Model()
        self.call("add_company")
        self.call("add_project", "site")
        for agent in AGENTS:
            conn.execute(
                "SELECT wakeful.add_agent(%s, %s, ARRAY['true'], provider => 'ai', executor => 'nowhere')",
                (name, agent),
            )
        self.call("create_issue", "A")
        for issue in ISSUES:
            conn.execute(
                "SELECT wakeful.create_issue(%s, %s, project => %s, parent => %s)",
                (name, issue, PROJECT.get(issue), PARENT.get(issue)),
            )
            self.call("create_issue", f"{issue}-blocker")

    def call(self, producer: str, *arguments: object) -> None:
        places = ", ".join(["%s"] * (len(arguments) + 1))
        self.conn.execute(f"SELECT wakeful.{producer}({places})", (self.name, *arguments))  # type: ignore[arg-type]

    def runs(self) -> dict[str, int]:
        rows = self.conn.execute(
            "SELECT issue, count(*) FROM wakeful.run WHERE company = %s GROUP BY issue", (self.name,)
        ).fetchall()
        return {str(issue): int(count) for issue, count in rows}

    def pending(self) -> dict[str, int]:
        rows = self.conn.execute(
            "SELECT issue, count(*) FROM wakeful.wake WHERE company = %s AND state = 'deferred' GROUP BY issue",
            (self.name,),
        ).fetchall()
        return {str(issue): int(count) for issue, count in rows}

    def agrees(self) -> bool:
        model = self.model
        return (self.runs(), self.pending()) == (
            {issue: count for issue, count in model.runs.items() if count},
            {issue: count for issue, count in model.pending.items() if count},
        )

    # ── steps: the producer, and what it means to the model ─────────────────────────────────────────────

    def step(self, what: str, who: str, number: int) -> None:
        getattr(self, f"do_{what}")(who, number)
        self.model.settle()

    def _toggle(self, closed: set[str], what: str, close: str, reopen: str, *arguments: object) -> None:
        self.call(reopen if what in closed else close, *arguments)
        closed ^= {what}

    def do_wake(self, who: str, number: int) -> None:
        self.call("request_wake", ISSUES[who], who)
        self.model.pending[who] = self.model.pending.get(who, 0) + 1

    def do_end(self, who: str, number: int) -> None:
        self.conn.execute(
            "SELECT wakeful.stop_run(company, id) FROM wakeful.run"
            " WHERE company = %s AND issue = %s AND state = 'queued'",
            (self.name, who),
        )
        self.model.live[who] = False

    def do_company(self, who: str, number: int) -> None:
        if not (self.model.company_paused or self.model.panic):
            self.call("pause_company")
            self.model.company_paused = True
        else:
            self.call("resume_company")
            self.model.company_paused = self.model.panic = False

    def do_panic(self, who: str, number: int) -> None:
        self.call("panic_company")
        self.model.panic = True

    def do_agent(self, who: str, number: int) -> None:
        agent = ISSUES[who]
        self._toggle(self.model.paused_agents, agent, "pause_agent", "resume_agent", agent)

    def do_project(self, who: str, number: int) -> None:
        self.model.project_manual = not self.model.project_manual
        self.call("pause_project" if self.model.project_manual else "resume_project", "site")

    def do_budget(self, who: str, number: int) -> None:
        policy = ("company", f"agent:{ISSUES[who]}", "project:site")[number % 3]
        self.model.budget[policy] = self.model.spent.get(policy, 0) + number
        self.call("set_budget", policy, self.model.budget[policy])

    def do_spend(self, who: str, number: int) -> None:
        self.conn.execute(
            "SELECT wakeful.add_spend(%s, %s, agent => %s, issue => %s)", (self.name, number, ISSUES[who], who)
        )
        for policy in ["company", f"agent:{ISSUES[who]}"] + ([f"project:{PROJECT[who]}"] if who in PROJECT else []):
            self.model.spent[policy] = self.model.spent.get(policy, 0) + number

    def do_hold(self, who: str, number: int) -> None:
        root = PARENT.get(who, who) if number % 2 else who
        self._toggle(self.model.held, root, "hold_issue", "release_hold", root)

    def do_depend(self, who: str, number: int) -> None:
        self._toggle(self.model.blocked, who, "add_dependency", "remove_dependency", who, f"{who}-blocker")

    def do_lease(self, who: str, number: int) -> None:
        if who not in self.model.leased:
            lease = f"lease-{who}-{next(_serial)}"
            self.call("open_lease", lease, who)
            self.model.leased.add(who)
        else:
            self.conn.execute(
                "SELECT wakeful.close_lease(company, id) FROM wakeful.environment_lease"
                " WHERE company = %s AND issue = %s AND state = 'active'",
                (self.name, who),
            )
            self.model.leased.discard(who)

    def do_limit(self, who: str, number: int) -> None:
        if number == 3 and not self.model.limited:  # it never reopens here: a ramp has a clock
            self.call("close_account", "ai/default")
            self.model.limited = True

    def do_status(self, who: str, number: int) -> None:
        self.call("set_issue_status", who, "done" if number % 3 == 0 else "todo")
        (self.model.done.add if number % 3 == 0 else self.model.done.discard)(who)


_serial = itertools.count()
STEPS = sorted(name[3:] for name in vars(Company) if name.startswith("do_"))
SEQUENCES = st.lists(
    # Wakes and ends come often, or little would be at stake; numbers are small, so that gates close and open.
    st.tuples(
        st.sampled_from(["wake", "wake", "wake", "end", "end", *STEPS]),
        st.sampled_from(sorted(ISSUES)),
        st.integers(0, 3),
    ),
    min_size=30,
    max_size=60,
)


@pytest.fixture
def conn(database: Database) -> psycopg.Connection[Any]:
    return database.connect()


@pytest.fixture
def scheduler(database: Database, tmp_path: Path) -> Iterator[Scheduler]:
    settings_ = config.load({"dsn": database.dsn, "data": str(tmp_path)}, os.environ, tmp_path)
    running = Scheduler(settings_, plugins.load(settings_))
    running.start()
    assert running.wait_ready(30)
    yield running
    assert running.stop()


# Without shrinking: each failing step waits out its deadline.
@settings(
    max_examples=25,
    deadline=None,
    report_multiple_bugs=False,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(sequence=SEQUENCES)
def test_what_may_run_has_run_once_and_what_may_not_has_not(
    scheduler: Scheduler, conn: psycopg.Connection[Any], sequence: list[tuple[str, str, int]]
) -> None:
    company = Company(conn, f"model-{next(_serial)}")
    for what, who, number in sequence:
        company.step(what, who, number)
        wait_until(
            company.agrees,
            within=5,
            what=f"agreement after {what} {who} {number}: {company.runs()} {company.pending()} {company.model}",
        )
    # A sentinel of another company has gone all the way, so whatever was still on its way has arrived.
    other = Company(conn, f"sentinel-{next(_serial)}")
    other.step("wake", "A1", 0)
    wait_until(other.agrees, within=10, what="the sentinel")
    assert company.agrees()
