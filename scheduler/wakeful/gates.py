"""The core's gates: pure, in one order, over facts read under the receipts' locks.

Company, project and agent are read, not locked: the dispatcher judges them again at its claim, and a parking
pass looks again after its commit. Budgets and concurrency are judged against a ledger that counts what the
same pass has already admitted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal

from wakeful.ledger import Ledger
from wakeful.outcomes import Refusal
from wakeful.ramp import Ramp
from wakeful.receipts import Fact

ROUNDING = 1e-5  # seconds by which a stored slot may lie before the exact one

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


def circuit_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(circuit, agent): its last runs did not all end in one and the same way."""
    if fact.circuit is None:
        return None
    message = f"agent {fact.agent} ended several times in a row alike: {fact.circuit}"
    return Refusal("circuit", fact.agent, "circuit.open", message, f"wakeful agent reset-circuit {fact.agent}")


def hold_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(hold, root issue): neither the issue nor one of its ancestors is held."""
    if fact.hold_root is None:
        return None
    message = f"issue {fact.hold_root} and all below it are held ({fact.hold_mode})"
    opens = f"wakeful release {fact.hold_root}" + (", or wakeful restore" if fact.hold_mode == "cancel" else "")
    return Refusal("hold", fact.hold_root, f"hold.{fact.hold_mode}", message, opens)


def recovery_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(recovery, action): nobody has to look at the issue first."""
    if fact.recovery is None:
        return None
    message = f"issue {fact.issue} awaits recovery action {fact.recovery}"
    return Refusal(
        "recovery", str(fact.recovery), "recovery.open", message, f"wakeful recovery resolve {fact.recovery}"
    )


def dependency_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(dependency, issue): every issue it depends on is done."""
    if fact.issue is None or fact.open_blocker is None:
        return None
    message = f"issue {fact.issue} depends on issue {fact.open_blocker}, which is not done"
    opens = f"wakeful issue status {fact.open_blocker} done, or wakeful issue undepend"
    return Refusal("dependency", fact.issue, "dependency.open", message, opens)


def provider_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(provider, account): the provider's limit is not reached."""
    account = ledger.account(fact)
    if account is None or not account.closed:
        return None
    reopens_at = None if account.ask else account.closed_until
    if reopens_at is not None and reopens_at <= fact.now:
        return None
    message = f"account {account.id} is closed" + (f": {account.reason}" if account.reason else "")
    opens = f"wakeful limit clear {account.id}" + (", or its reset" if reopens_at is not None else "")
    return Refusal("provider", account.id, "provider.limited", message, opens, reopens_at=reopens_at)


def issue_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(issue, id): not terminal, and assigned to this agent or to nobody; for a review, reviewed by this agent."""
    if fact.issue is None:
        return None
    if fact.issue_is_terminal:
        message = f"issue {fact.issue} is {fact.issue_status}"
        return Refusal("issue", fact.issue, "issue.terminal", message, "nothing", final=True)
    if fact.belongs_to_another and fact.review is not None:
        message = f"the review of issue {fact.issue} is {fact.reviewer or 'nobody'}'s"
        return Refusal("issue", fact.issue, "issue.reviewer", message, "nothing", final=True)
    if fact.belongs_to_another:
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
    if fact.open_lease is not None:
        message = f"environment lease {fact.open_lease} of issue {fact.issue} is open"
        return Refusal("execution", fact.issue, "execution.environment", message, "the end of that lease")
    return None


def concurrency_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(concurrency, agent:ID) and (concurrency, company): fewer live runs than either may have."""
    agent = ledger.agent(fact)
    if agent is not None and agent.limit is not None and agent.live >= agent.limit:
        message = f"agent {fact.agent} has {agent.live} of {agent.limit} runs"
        opens = f"the end of a run of agent {fact.agent}"
        return Refusal("concurrency", f"agent:{fact.agent}", "concurrency.agent", message, opens)
    live, limit = ledger.company_runs()
    if limit is not None and live >= limit:
        message = f"the company has {live} of {limit} runs"
        return Refusal("concurrency", "company", "concurrency.company", message, "the end of a run of the company")
    return None


def rate_gate(fact: Fact, ledger: Ledger) -> Refusal | None:
    """(rate, account): its reopening ramp, and its steady start rate, allow another start now."""
    account = ledger.account(fact)
    if account is None:
        return None
    reopens_at: datetime | None = None
    if account.ramp_from is not None:
        ramp = Ramp(account.ramp_rate, account.ramp_period)
        since = (fact.now - account.ramp_from).total_seconds()
        if ramp.allowed(since + ROUNDING) < account.started + 1:
            seconds = ramp.slot(account.started + account.queued + 1)
            reopens_at = account.ramp_from + timedelta(seconds=max(seconds, since))
    if account.starts_per_second is not None and account.recent + 1 > max(float(account.starts_per_second), 1.0):
        wait = timedelta(seconds=(account.queued + 1) / float(account.starts_per_second))
        reopens_at = max(reopens_at or fact.now, fact.now + wait)
    if reopens_at is None:
        return None
    ledger.queue_for_account(fact)
    message = f"account {account.id} starts its sleepers one after another"
    return Refusal("rate", account.id, "rate.ramp", message, "its turn, by the clock", reopens_at=reopens_at)


ORDER: tuple[Gate, ...] = (
    company_gate,
    company_budget_gate,
    agent_gate,
    agent_budget_gate,
    circuit_gate,
    project_budget_gate,
    project_gate,
    hold_gate,
    recovery_gate,
    issue_gate,
    dependency_gate,
    execution_gate,
    provider_gate,
)
# Judged after the hosts' own gates.
LATE_ORDER: tuple[Gate, ...] = (concurrency_gate, rate_gate)
# What a claim judges again: all that the admission read unlocked. Its own run is the live one.
CLAIM_ORDER: tuple[Gate, ...] = tuple(gate for gate in ORDER if gate is not execution_gate)


def judge(fact: Fact, ledger: Ledger, order: tuple[Gate, ...] = ORDER) -> Refusal | None:
    """Return the first closed gate's refusal, or None when all are open."""
    for gate in order:
        refusal = gate(fact, ledger)
        if refusal is not None:
            return refusal
    return None
