"""A pass's ledger: its own view of a company's limits, counting what the same pass has already admitted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal

from wakeful.receipts import Account, AgentLimit, Fact, Limits, Policy

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
        self._accounts = dict(limits.accounts)
        self._company_live = limits.company_live
        self._company_limit = limits.company_limit
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
        crowded = self._company_limit is not None or (agent is not None and agent.limit is not None)
        return hard or crowded or self._is_rated(fact)

    def account(self, fact: Fact) -> Account | None:
        """Return the provider's account that a receipt's agent uses, or None."""
        return self._accounts.get(fact.account) if fact.account else None

    def company_runs(self) -> tuple[int, int | None]:
        """Return the company's live runs and its limit."""
        return self._company_live, self._company_limit

    def queue_for_account(self, fact: Fact) -> None:
        """Count a receipt that will wait for a slot of its account's ramp, so that the next one gets a later slot."""
        account = self.account(fact)
        if account is not None:
            self._accounts[account.id] = replace(account, queued=account.queued + 1)

    def _is_rated(self, fact: Fact) -> bool:
        account = self.account(fact)
        return account is not None and (account.ramp_from is not None or account.starts_per_second is not None)

    def reservations(self, fact: Fact) -> list[tuple[str, Decimal]]:
        """Return (policy, amount) for every hard stop the run must reserve under."""
        return [(policy.id, self.estimate(fact, policy)) for policy in self.policies(fact) if policy.hard_stop]

    def joined(self, limits: Limits) -> Ledger:
        """Take over the limits of further receipts; what this ledger counts already goes on counting."""
        self._policies = {**limits.policies, **self._policies}
        self._agents = {**limits.agents, **self._agents}
        self._accounts = {**limits.accounts, **self._accounts}
        return self

    def take(self, fact: Fact) -> None:
        """Count an admission against the rest of the pass."""
        for name, amount in self.reservations(fact):
            policy = self._policies[name]
            self._policies[name] = replace(policy, reserved=policy.reserved + amount)
        agent = self._agents.get(fact.agent)
        if agent is not None:
            self._agents[fact.agent] = replace(agent, live=agent.live + 1)
        self._company_live += 1
        account = self.account(fact)
        if account is not None:
            self._accounts[account.id] = replace(account, started=account.started + 1, recent=account.recent + 1)
        if fact.issue is not None:
            self._issues.add(fact.issue)
