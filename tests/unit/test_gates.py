"""Each gate in each state: who closes, why, what opens it, and that all stand in the spec's order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from tests.facts import RUN, fact

from wakeful import gates
from wakeful.ledger import Ledger
from wakeful.receipts import AgentLimit, Limits, Policy

MONTH_END = datetime(2026, 6, 1, tzinfo=UTC)


def policy(id: str, amount: int, **changes: Any) -> Policy:
    made = Policy(id, Decimal(amount), True, None, Decimal(0), Decimal(0), None)
    return replace(made, **changes)


def ledger(*policies: Policy, agent: AgentLimit | None = None, own: dict[str, Decimal] | None = None) -> Ledger:
    agents = {agent.id: agent} if agent else {}
    return Ledger(Limits({one.id: one for one in policies}, agents), own)


# what is changed, then (gate, key, reason, final), or None: open
STATES: list[tuple[str, dict[str, Any], tuple[str, str, str, bool] | None]] = [
    ("nothing", {}, None),
    ("company paused", {"company_state": "paused"}, ("company", "acme", "company.paused", False)),
    ("company archived", {"company_state": "archived"}, ("company", "acme", "company.archived", True)),
    ("panic", {"panic": True}, ("company", "acme", "company.panic", False)),
    (
        "panic of a paused company",
        {"panic": True, "company_state": "paused"},
        ("company", "acme", "company.panic", False),
    ),
    (
        "agent paused",
        {"agent_state": "paused", "agent_pause_reason": "manual"},
        ("agent", "coder", "agent.paused_manual", False),
    ),
    (
        "agent paused by system",
        {"agent_state": "paused", "agent_pause_reason": "system"},
        ("agent", "coder", "agent.paused_system", False),
    ),
    ("agent unapproved", {"agent_state": "pending_approval"}, ("agent", "coder", "agent.pending_approval", False)),
    ("agent terminated", {"agent_state": "terminated"}, ("agent", "coder", "agent.terminated", True)),
    ("agent archived", {"agent_state": "archived"}, ("agent", "coder", "agent.archived", True)),
    ("project paused", {"project_pause_reason": "manual"}, ("project", "web", "project.paused_manual", False)),
    (
        "project paused by its budget",
        {"project_pause_reason": "budget"},
        ("project", "web", "project.paused_budget", False),
    ),
    ("project archived", {"project_archived": True}, ("project", "web", "project.archived", True)),
    ("no project", {"project": None, "project_pause_reason": "manual"}, None),
    ("issue done", {"issue_status": "done"}, ("issue", "I-1", "issue.terminal", True)),
    ("issue cancelled", {"issue_status": "cancelled"}, ("issue", "I-1", "issue.terminal", True)),
    ("issue blocked is a word, not a gate", {"issue_status": "blocked"}, None),
    (
        "issue of another agent",
        {"assignee_kind": "agent", "assignee": "other"},
        ("issue", "I-1", "issue.assignee", False),
    ),
    (
        "issue of a user of the agent's name",
        {"assignee_kind": "user", "assignee": "coder"},
        ("issue", "I-1", "issue.assignee", False),
    ),
    ("issue of this agent", {"assignee_kind": "agent", "assignee": "coder"}, None),
    ("no issue", {"issue": None, "issue_status": None}, None),
    ("a live run", {"live_run": RUN}, ("execution", "I-1", "execution.live_run", False)),
    ("an unproven run", {"unproven_run": RUN}, ("execution", "I-1", "execution.unproven", False)),
    ("a live run of no issue", {"issue": None, "issue_status": None, "live_run": RUN}, None),
]


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in STATES], ids=[row[0] for row in STATES])
def test_each_state(changes: dict[str, Any], expected: tuple[str, str, str, bool] | None) -> None:
    refusal = gates.judge(fact(**changes), ledger())
    if expected is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert (refusal.gate, refusal.key, refusal.reason, refusal.final) == expected
        assert refusal.message
        assert refusal.opens_on
        assert refusal.reason.split(".")[0] == refusal.gate
        assert refusal.reopens_at is None


@pytest.mark.parametrize("name", ["company", "agent:coder", "project:web"])
@pytest.mark.parametrize(
    ("spent", "reserved", "estimate", "open_"),
    [
        (0, 0, None, True),
        (9, 0, 1, True),  # up to the limit, not past it
        (9, 0, 2, False),
        (8, 1, 1, True),
        (8, 1, 2, False),
        (10, 0, None, False),  # all spent, even for a run that costs nothing
        (10, 0, 0, False),
        (5, 5, 0, False),  # all held by others
        (9, 0, 0, True),
        (12, 0, 0, False),
    ],
)
def test_budget_is_closed_exactly_past_its_limit(
    name: str, spent: int, reserved: int, estimate: int | None, open_: bool
) -> None:
    held = policy(name, 10, spent=Decimal(spent), reserved=Decimal(reserved), window_ends=MONTH_END)
    wanted = None if estimate is None else Decimal(estimate)
    refusal = gates.judge(fact(estimate=wanted), ledger(held))
    if open_:
        assert refusal is None
    else:
        assert refusal is not None
        assert (refusal.gate, refusal.key, refusal.reason) == ("budget", name, "budget.exhausted")
        assert refusal.reopens_at == MONTH_END
        assert f"budget raise {name}" in refusal.opens_on


def test_budget_of_another_agent_or_project_does_not_matter() -> None:
    others = [policy(name, 10, spent=Decimal(10)) for name in ("agent:other", "project:other")]
    assert gates.judge(fact(), ledger(*others)) is None


def test_budget_without_a_hard_stop_only_warns() -> None:
    assert gates.judge(fact(), ledger(policy("company", 10, spent=Decimal(99), hard_stop=False))) is None


def test_lifetime_budget_is_opened_by_no_clock() -> None:
    refusal = gates.judge(fact(), ledger(policy("company", 10, spent=Decimal(10))))
    assert refusal is not None
    assert refusal.reopens_at is None
    assert "window" not in refusal.opens_on


def test_estimate_is_the_wakes_else_the_agents_else_the_policys_else_nothing() -> None:
    by_policy = policy("company", 10, estimate=Decimal(3))
    by_agent = ledger(by_policy, agent=AgentLimit("coder", 0, None, Decimal(2)))
    assert by_agent.estimate(fact(estimate=Decimal(1)), by_policy) == 1
    assert by_agent.estimate(fact(estimate=Decimal(0)), by_policy) == 0
    assert by_agent.estimate(fact(), by_policy) == 2
    assert ledger(by_policy).estimate(fact(), by_policy) == 3
    assert ledger().estimate(fact(), policy("company", 10)) == 0


def test_a_claim_leaves_the_runs_own_reservation_out() -> None:
    full = policy("company", 10, reserved=Decimal(10))
    one = fact(estimate=Decimal(4))
    assert gates.judge(one, ledger(full)) is not None
    assert gates.judge(one, ledger(full, own={"company": Decimal(4)})) is None
    assert gates.judge(one, ledger(full, own={"company": Decimal(3)})) is not None


@pytest.mark.parametrize(("live", "limit", "open_"), [(0, 1, True), (1, 1, False), (5, 3, False), (9, None, True)])
def test_concurrency(live: int, limit: int | None, open_: bool) -> None:
    refusal = gates.concurrency_gate(fact(), ledger(agent=AgentLimit("coder", live, limit, None)))
    if open_:
        assert refusal is None
    else:
        assert refusal is not None
        assert (refusal.gate, refusal.key, refusal.reason) == ("concurrency", "agent:coder", "concurrency.agent")


def test_the_order_is_the_specs() -> None:
    """Each gate opened in turn shows the next one."""
    steps: list[tuple[str, dict[str, Any], dict[str, int]]] = [
        ("company.paused", {"company_state": "active"}, {}),
        ("budget.exhausted company", {}, {"company": 0}),
        ("agent.paused_manual", {"agent_state": "active"}, {}),
        ("budget.exhausted agent:coder", {}, {"agent:coder": 0}),
        ("budget.exhausted project:web", {}, {"project:web": 0}),
        ("project.paused_manual", {"project_pause_reason": None}, {}),
        ("issue.assignee", {"assignee": "coder"}, {}),
        ("execution.live_run", {"live_run": None}, {}),
        ("execution.unproven", {"unproven_run": None}, {}),
    ]
    closed: dict[str, Any] = {
        "company_state": "paused",
        "agent_state": "paused",
        "agent_pause_reason": "manual",
        "project_pause_reason": "manual",
        "assignee_kind": "agent",
        "assignee": "other",
        "live_run": RUN,
        "unproven_run": RUN,
    }
    spent = {"company": 10, "agent:coder": 10, "project:web": 10}
    seen = []
    for _, opened, budgets in steps:
        refusal = gates.judge(fact(**closed), ledger(*(policy(n, 10, spent=Decimal(s)) for n, s in spent.items())))
        assert refusal is not None
        seen.append(refusal.reason + (f" {refusal.key}" if refusal.gate == "budget" else ""))
        closed |= opened
        spent |= budgets
    assert seen == [name for name, _, _ in steps]
    assert gates.judge(fact(**closed), ledger()) is None


def test_a_claim_judges_all_but_the_execution_gate() -> None:
    assert set(gates.CLAIM_ORDER) == set(gates.ORDER) - {gates.execution_gate}
    assert gates.judge(fact(live_run=RUN), ledger(), gates.CLAIM_ORDER) is None


def test_what_a_pass_takes_counts_for_the_rest_of_it() -> None:
    held = ledger(policy("company", 10), policy("project:web", 5), agent=AgentLimit("coder", 0, 2, Decimal(4)))
    first = fact()
    assert held.limited(first)
    assert held.reservations(first) == [("company", Decimal(4)), ("project:web", Decimal(4))]
    held.take(first)
    assert held.holds_issue("I-1")
    refusal = gates.judge(fact(issue="I-2"), held)
    assert refusal is not None
    assert refusal.key == "project:web"
    other = fact(issue="I-2", project=None)
    assert gates.judge(other, held) is None
    held.take(other)
    assert gates.concurrency_gate(other, held) is not None
    refusal = gates.judge(fact(), ledger())
    assert refusal is None, "a ledger changes nothing but itself"


def test_nothing_limits_where_no_limit_was_read() -> None:
    assert not ledger(policy("company", 1, hard_stop=False), agent=AgentLimit("coder", 9, None, None)).limited(fact())


@pytest.mark.parametrize(
    ("amount", "text"),
    [("1", "1.00"), ("1.5", "1.50"), ("0.000001", "0.000001"), ("12.340000", "12.34"), ("1E+3", "1000.00")],
)
def test_money_reads_without_trailing_zeros(amount: str, text: str) -> None:
    assert gates.money(Decimal(amount)) == text
