"""The core's gates: pure, in one order, over facts read under the receipts' locks.

Company, project and agent are read, not locked: the dispatcher judges them again at its claim, and a parking
pass looks again after its commit. Budgets and concurrency are judged against a ledger that counts what the
same pass has already admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal

from wakeful.outcomes import Refusal
from wakeful.receipts import AgentLimit, Fact, Limits, Policy

ZERO = Decimal(0)


class Ledger:
    """A pass's own view of a company's limits: what was read, plus what this pass admits.

    Arguments:
        limits: as read.
        own: reservations of the run under judgement, by policy; left out of what others hold.
    """

    def __init__(self, limits: Limits, own: Mapping[str, Decimal] | None = None) -> None:
        self._policies = dict(limits.policies)
        self._agents = dict(limits.agents)
        self._own = own or {}
        self._issues: set[str] = set()

    def policies(self, fact: Fact) -> Iterator[Policy]:
        """Yield the policies that apply to a receipt, in gate order."""
        for policy in ("company", f"agent:{fact.agent}", f"project:{fact.project}" if fact.project else ""):
            if policy in self._policies:
                yield self._policies[policy]

    def policy(self, name: str) -> Policy | None:
        """Return one policy, or None where nothing limits."""
        return self._policies.get(name)

    def agent(self, fact: Fact) -> AgentLimit | None:
        """Return the agent's concurrency, or None where it was not read."""
        return self._agents.get(fact.agent)

    def estimate(self, fact: Fact, policy: Policy) -> Decimal:
        """Return what a run reserves in a policy: the wake's estimate, else the agent's, else the policy's, else 0."""
        agent = self.agent(fact)
        for value in (fact.estimate, agent.estimate if agent else None, policy.estimate):
            if value is not None:
                return value
        return ZERO

    def held_by_others(self, policy: Policy) -> Decimal:
        """Return what live reservations hold, one's own left out."""
        return policy.reserved - self._own.get(policy.id, ZERO)

    def holds_issue(self, issue: str) -> bool:
        """Whether this pass has admitted a run for the issue."""
        return issue in self._issues

    def limited(self, fact: Fact) -> bool:
        """Whether a limit applies that must be judged again under the company's limits lock."""
        agent = self.agent(fact)
        hard = any(policy.hard_stop for policy in self.policies(fact))
        return hard or (agent is not None and agent.limit is not None)

    def reservations(self, fact: Fact) -> list[tuple[str, Decimal]]:
        """Return (policy, amount) for every hard stop the run must reserve under."""
        return [(policy.id, self.estimate(fact, policy)) for policy in self.policies(fact) if policy.hard_stop]

    def take(self, fact: Fact) -> None:
        """Count an admission against the rest of the pass."""
        for name, amount in self.reservations(fact):
            policy = self._policies[name]
            self._policies[name] = replace(policy, reserved=policy.reserved + amount)
        agent = self._agents.get(fact.agent)
        if agent is not None:
            self._agents[fact.agent] = replace(agent, live=agent.live + 1)
        if fact.issue is not None:
            self._issues.add(fact.issue)


Gate = Callable[[Fact, Ledger], Refusal | None]


def company_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(company): active, and no panic."""
    if fact.company_state == "archived":
        return Refusal("company", fact.company, "company.archived", "the company is archived", "nothing", final=True)
    if fact.panic:
        return Refusal("company", fact.company, "company.panic", "everything was stopped (panic)", "wakeful resume")
    if fact.company_state == "paused":
        opens = f"wakeful resume company {fact.company}"
        return Refusal("company", fact.company, "company.paused", "the company is paused", opens)
    return None


def _budget(name: str, fact: Fact, ledger: Ledger) -> Refusal | None:
    policy = ledger.policy(name)
    if policy is None or not policy.hard_stop:
        return None
    held = ledger.held_by_others(policy)
    estimate = ledger.estimate(fact, policy)
    if policy.spent + held + estimate <= policy.amount and policy.spent + held < policy.amount:
        return None
    parts = [f"{money(policy.spent)} of {money(policy.amount)} spent"]
    if held:
        parts.append(f"{money(held)} reserved by other runs")
    if estimate:
        parts.append(f"this run reserves {money(estimate)}")
    opens = f"wakeful budget raise {name}"
    if policy.window_ends is not None:
        opens += ", or the start of the next window"
    return Refusal(
        "budget", name, "budget.exhausted", f"budget {name}: {', '.join(parts)}", opens, reopens_at=policy.window_ends
    )


def money(amount: Decimal) -> str:
    """Return an amount without trailing zeros, but with at least two decimals."""
    text = f"{amount:f}"
    whole, _, decimals = text.partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def company_budget_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(budget, company)."""
    return _budget("company", fact, ledger)


def agent_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(agent, id): active."""
    if fact.agent_state == "active":
        return None
    if fact.agent_state in ("terminated", "archived"):
        reason = f"agent.{fact.agent_state}"
        return Refusal("agent", fact.agent, reason, f"agent {fact.agent} is {fact.agent_state}", "nothing", final=True)
    if fact.agent_state == "pending_approval":
        opens = f"wakeful agent approve {fact.agent}"
        return Refusal("agent", fact.agent, "agent.pending_approval", f"agent {fact.agent} awaits approval", opens)
    reason = f"agent.paused_{fact.agent_pause_reason or 'manual'}"
    opens = f"wakeful resume agent {fact.agent}"
    return Refusal("agent", fact.agent, reason, f"agent {fact.agent} is paused ({fact.agent_pause_reason})", opens)


def agent_budget_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(budget, agent)."""
    return _budget(f"agent:{fact.agent}", fact, ledger)


def project_budget_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(budget, project)."""
    return _budget(f"project:{fact.project}", fact, ledger) if fact.project else None


def project_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(project, id): neither paused nor archived."""
    if fact.project is None:
        return None
    if fact.project_archived:
        message = f"project {fact.project} is archived"
        return Refusal("project", fact.project, "project.archived", message, "nothing", final=True)
    if fact.project_pause_reason is None:
        return None
    opens = f"wakeful resume project {fact.project}"
    if fact.project_pause_reason == "budget":
        opens = f"wakeful budget raise project:{fact.project}"
    message = f"project {fact.project} is paused ({fact.project_pause_reason})"
    return Refusal("project", fact.project, f"project.paused_{fact.project_pause_reason}", message, opens)


def issue_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(issue, id): not terminal, and assigned to this agent or to nobody."""
    if fact.issue is None:
        return None
    if fact.issue_is_terminal:
        message = f"issue {fact.issue} is {fact.issue_status}"
        return Refusal("issue", fact.issue, "issue.terminal", message, "nothing", final=True)
    if fact.assignee is not None and (fact.assignee_kind, fact.assignee) != ("agent", fact.agent):
        message = f"issue {fact.issue} is assigned to {fact.assignee_kind} {fact.assignee}"
        opens = f"wakeful issue assign {fact.issue} agent:{fact.agent}"
        return Refusal("issue", fact.issue, "issue.assignee", message, opens)
    return None


def execution_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(execution, issue): no live run, and no ended run whose death is unproven."""
    if fact.issue is None:
        return None
    if fact.live_run is not None or ledger.holds_issue(fact.issue):
        message = f"issue {fact.issue} has a live run" + (f" ({fact.live_run})" if fact.live_run else "")
        return Refusal("execution", fact.issue, "execution.live_run", message, "the end of that run")
    if fact.unproven_run is not None:
        message = f"nobody has proven that the processes of run {fact.unproven_run} are gone"
        opens = "its host's scheduler, or wakeful recovery resolve"
        return Refusal("execution", fact.issue, "execution.unproven", message, opens)
    return None


def concurrency_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(concurrency, agent): fewer live runs than the agent may have."""
    agent = ledger.agent(fact)
    if agent is None or agent.limit is None or agent.live < agent.limit:
        return None
    message = f"agent {fact.agent} has {agent.live} of {agent.limit} runs"
    return Refusal("concurrency", fact.agent, "concurrency.agent", message, f"the end of a run of agent {fact.agent}")


ORDER: tuple[Gate, ...] = (
    company_gate,
    company_budget_gate,
    agent_gate,
    agent_budget_gate,
    project_budget_gate,
    project_gate,
    issue_gate,
    execution_gate,
)
# Judged after the hosts' own gates.
LATE_ORDER: tuple[Gate, ...] = (concurrency_gate,)
# What a claim judges again: all that the admission read unlocked. Its own run is the live one.
CLAIM_ORDER: tuple[Gate, ...] = tuple(gate for gate in ORDER if gate is not execution_gate)


def judge(fact: Fact, ledger: Ledger, order: tuple[Gate, ...] = ORDER) -> Refusal | None:
    """Return the first closed gate's refusal, or None when all are open."""
    for gate in order:
        refusal = gate(fact, ledger)
        if refusal is not None:
            return refusal
    return None
