"""One pass's decisions: limits hold within it, an issue gets one run, and waiting spends one grace per reason."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.facts import NOW, RUN, WAKE, fact

from wakeful import decisions
from wakeful.ledger import Ledger
from wakeful.outcomes import GRACE, Admit, End, Gone, Moved, Park, Proceed, Refusal, Wait, park
from wakeful.receipts import AgentLimit, Limits, Policy

CLOSED = Refusal("company", "acme", "company.paused", "the company is paused", "resume")
LATER = NOW + timedelta(hours=1)


def decide(one: Any, verdict: Any = None, *, signalled: bool = False, further: Refusal | None = None) -> Any:
    verdicts = {one.id: verdict or Proceed()}
    more = {one.id: further} if further else {}
    return decisions.decide([one], verdicts, Ledger(Limits()), more, frozenset({one.id} if signalled else ()))[one.id]


# ── limits within a pass ────────────────────────────────────────────────────────────────────────────────

amounts = st.integers(0, 12).map(Decimal)


@given(
    limits=st.dictionaries(st.sampled_from(["company", "agent:a", "agent:b", "project:p", "project:q"]), amounts),
    spent=amounts,
    reserved=amounts,
    slots=st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 4)),
    live=st.integers(0, 3),
    wanted=st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from(["p", "q", None]),
            st.sampled_from([None, "I-1", "I-2", "I-3"]),
            st.none() | amounts,
        ),
        max_size=30,
    ),
)
def test_no_pass_exceeds_a_limit_or_doubles_an_issue(
    limits: dict[str, Decimal],
    spent: Decimal,
    reserved: Decimal,
    slots: dict[str, int],
    live: int,
    wanted: list[tuple[str, str | None, str | None, Decimal | None]],
) -> None:
    policies = {name: Policy(name, amount, True, Decimal(1), spent, reserved, None) for name, amount in limits.items()}
    agents = {name: AgentLimit(name, live, slots.get(name), None) for name in ("a", "b")}
    facts = [
        fact(
            id=UUID(int=n), agent=agent, project=project, issue=issue, issue_status=issue and "todo", estimate=estimate
        )
        for n, (agent, project, issue, estimate) in enumerate(wanted)
    ]
    verdicts = {one.id: Proceed() for one in facts}
    outcomes = decisions.decide(facts, verdicts, Ledger(Limits(policies, agents)), {}, frozenset())
    admitted = [one for one in facts if isinstance(outcomes[one.id], Admit)]

    issues = [one.issue for one in admitted if one.issue]
    assert len(issues) == len(set(issues))
    for name, policy in policies.items():
        takers = [one for one in admitted if name in ("company", f"agent:{one.agent}", f"project:{one.project}")]
        taken = sum((one.estimate if one.estimate is not None else Decimal(1) for one in takers), Decimal(0))
        assert not takers or spent + reserved + taken <= policy.amount
    for name, limit in agents.items():
        took = sum(1 for one in admitted if one.agent == name)
        assert limit.limit is None or not took or live + took <= limit.limit
    # Nobody waits without a reason that holds at the end of the pass.
    for one in facts:
        outcome = outcomes[one.id]
        assert isinstance(outcome, (Admit, Park))
        if isinstance(outcome, Park) and outcome.refusal.gate == "execution":
            assert one.issue in issues


def test_of_several_wakes_of_an_issue_the_first_in_order_is_admitted() -> None:
    facts = [fact(id=UUID(int=n)) for n in (7, 3, 5)]
    outcomes = decisions.decide(facts, {f.id: Proceed() for f in facts}, Ledger(Limits()), {}, frozenset())
    assert [type(outcomes[one.id]) for one in facts] == [Admit, Park, Park]
    assert outcomes[UUID(int=3)].refusal.reason == "execution.live_run"  # type: ignore[union-attr]  # just seen to be a Park


# ── one receipt ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["linked", "retired", "cancelled", "queued", "error"])
def test_a_receipt_that_is_not_deferred_is_gone(state: str) -> None:
    assert decide(fact(state=state)) == Gone()


def test_a_deadline_that_lies_ahead_is_left_alone_whatever_the_plugin_says() -> None:
    assert decide(fact(due_at=LATER), End("cancelled", "x")) == Moved(LATER)
    assert decide(fact(due_at=None)) == Moved(None)


def test_a_signal_makes_only_a_parked_receipt_due() -> None:
    assert decide(fact(due_at=LATER), signalled=True) == Moved(LATER)
    waits = {"wait_gate": "company", "wait_key": "acme", "wait_reason": "company.paused"}
    assert decide(fact(due_at=LATER, **waits), signalled=True) == Admit()
    assert decide(fact(due_at=None, **waits), signalled=True) == Admit()


def test_a_verdict_comes_before_the_gates() -> None:
    paused = fact(company_state="paused")
    assert decide(paused, End("cancelled", "retry.reassigned")) == End("cancelled", "retry.reassigned")
    source = Refusal("execution", "I-1", "execution.source", "not ended", "its end")
    assert decide(paused, Wait(source)).refusal == source
    assert decide(paused).refusal.reason == "company.paused"
    assert decide(fact(), Proceed(retry_of=RUN)) == Admit(RUN)


def test_hosts_gates_stand_between_the_cores_and_concurrency() -> None:
    hosts = Refusal("weather", "rain", "weather.rain", "it rains", "sunshine")
    assert decide(fact(), further=hosts).refusal == hosts
    assert decide(fact(live_run=RUN), further=hosts).refusal.gate == "execution"
    full = Ledger(Limits(agents={"coder": AgentLimit("coder", 1, 1, None)}))
    one = fact()
    assert decisions.decide([one], {WAKE: Proceed()}, full, {WAKE: hosts}, frozenset())[WAKE].refusal == hosts  # type: ignore[union-attr]  # a Park


def test_a_gate_that_never_opens_retires() -> None:
    outcome = decide(fact(agent_state="terminated"))
    assert (outcome.state, outcome.reason) == ("retired", "agent.terminated")
    gone = Refusal("house", "1", "house.gone", "gone", "nothing", final=True)
    assert decide(fact(), Wait(gone)).state == "retired"
    assert decide(fact(), further=gone).state == "retired"


def test_a_kind_without_a_plugin_waits_for_one() -> None:
    one = fact(kind="dreams")
    outcome = decisions.decide([one], {}, Ledger(Limits()), {}, frozenset())[WAKE]
    assert isinstance(outcome, Park)
    assert (outcome.refusal.gate, outcome.refusal.key, outcome.refusal.reason) == ("plugin", "dreams", "plugin.missing")


# ── how a refused receipt waits ─────────────────────────────────────────────────────────────────────────

SAME = (CLOSED.gate, CLOSED.key, CLOSED.reason)


def closed(**changes: Any) -> Refusal:
    given = {"gate": "company", "key": "acme", "reason": "company.paused", "message": "m", "opens_on": "o"}
    return Refusal(**{**given, **changes})


def test_a_first_reason_gets_one_grace() -> None:
    assert park(CLOSED, waits_on=(None, None, None), due_at=NOW, now=NOW) == Park(CLOSED, NOW + GRACE, changed=True)


@pytest.mark.parametrize(
    "refusal",
    [closed(gate="agent"), closed(key="other"), closed(reason="company.panic")],
    ids=["gate", "key", "reason"],
)
def test_a_changed_reason_gets_one_grace(refusal: Refusal) -> None:
    assert park(refusal, waits_on=SAME, due_at=None, now=NOW) == Park(refusal, NOW + GRACE, changed=True)


def test_the_same_reason_changes_nothing_during_its_grace() -> None:
    ends = NOW + timedelta(seconds=1)
    assert park(CLOSED, waits_on=SAME, due_at=ends, now=NOW) == Park(CLOSED, ends, changed=False)


@pytest.mark.parametrize("due_at", [NOW, NOW - timedelta(days=1), None])
def test_the_same_reason_after_its_grace_is_silence(due_at: Any) -> None:
    assert park(CLOSED, waits_on=SAME, due_at=due_at, now=NOW) == Park(CLOSED, None, changed=False)


def test_another_message_is_no_other_reason() -> None:
    said = closed(message="12.00 of 10.00 spent")
    assert park(said, waits_on=SAME, due_at=None, now=NOW) == Park(said, None, changed=False)


def test_a_gate_that_the_clock_opens_is_looked_at_then() -> None:
    soon, late = closed(reopens_at=NOW + timedelta(seconds=5)), closed(reopens_at=LATER)
    assert park(soon, waits_on=(None, None, None), due_at=NOW, now=NOW).due_at == soon.reopens_at
    assert park(late, waits_on=(None, None, None), due_at=NOW, now=NOW).due_at == NOW + GRACE
    assert park(late, waits_on=SAME, due_at=NOW, now=NOW) == Park(late, LATER, changed=False)


@pytest.mark.parametrize("waits_on", [SAME, (None, None, None)], ids=["same", "first"])
def test_a_clock_that_should_have_opened_the_gate_makes_no_loop(
    waits_on: tuple[str | None, str | None, str | None],
) -> None:
    past = closed(reopens_at=NOW - timedelta(seconds=1))
    due = park(past, waits_on=waits_on, due_at=NOW, now=NOW).due_at
    assert due is not None
    assert due >= NOW + GRACE
