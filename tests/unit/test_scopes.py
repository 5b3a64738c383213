"""Scopes of status intents, and what their plugin says of a target."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.facts import fact

from wakeful.errors import PluginError
from wakeful.judges import Judges
from wakeful.outcomes import Admit, End, Outcome, Park, Proceed, Refusal, Verdict
from wakeful.receipts import Fact
from wakeful.scopes import Carrier, dispatch_id, ends, group, scope_of
from wakeful_plugins.native_status import StatusIntents, judge_target


def intent(**changes: object) -> Fact:
    return fact(**{"id": uuid4(), "kind": "native_status", "state": "claimed", "owner": "native_status", **changes})


def going(*facts: Fact) -> dict[UUID, Verdict]:
    return {one.id: Proceed() for one in facts}


def test_the_first_of_a_scope_leads_and_the_others_follow() -> None:
    facts = [intent(), intent(issue="I-2"), intent(), intent()]
    found = group(facts, going(*facts), {})
    assert found.leaders == (facts[0], facts[1])
    assert found.followers == {facts[2].id: facts[0].id, facts[3].id: facts[0].id}
    assert (found.joined, found.ends) == ({}, {})


def test_followers_share_the_fate_of_their_leader() -> None:
    runs, waits, over = [[intent(issue=issue) for _ in range(2)] for issue in ("I-1", "I-2", "I-3")]
    joined, skipped = intent(issue="I-4"), intent(issue="I-5")
    run, dispatch, earlier, end = uuid4(), uuid4(), uuid4(), End("skipped", "issue.terminal", "it is done")
    facts = [*runs, *waits, *over, joined, skipped]
    found = group(facts, going(*facts) | {skipped.id: end}, {scope_of(joined): Carrier(earlier, None)})
    outcomes: dict[UUID, Outcome] = {
        runs[0].id: Admit(),
        waits[0].id: Park(Refusal("hold", "I-2", "hold.pause", "held", "its release"), None, changed=True),
        over[0].id: end,
    }
    carried = {runs[0].id: Carrier(runs[0].id, run), waits[0].id: Carrier(dispatch, None)}
    fates = ends(found, outcomes, {waits[0].id: dispatch}, carried)
    assert {i: (fate.state, fate.reason, fate.into, by) for i, (fate, by) in fates.items()} == {
        runs[1].id: ("coalesced", "intent.same_scope", runs[0].id, run),
        waits[0].id: ("coalesced", "intent.dispatch", dispatch, None),
        waits[1].id: ("coalesced", "intent.same_scope", dispatch, None),
        over[0].id: ("skipped", "issue.terminal", None, None),
        over[1].id: ("skipped", "issue.terminal", None, None),
        joined.id: ("coalesced", "intent.same_scope", earlier, None),
        skipped.id: ("skipped", "issue.terminal", None, None),
    }


@pytest.mark.parametrize(
    "other", [{"company": "b"}, {"agent": "x"}, {"issue": "I-2"}, {"issue": None}, {"review": "R"}]
)
def test_a_scope_is_company_agent_issue_and_review(other: dict[str, object]) -> None:
    facts = [intent(), intent(**other)]
    assert group(facts, going(*facts), {}).leaders == tuple(facts)


def test_what_ends_leads_nobody() -> None:
    facts = [intent(), intent(), intent()]
    end = End("skipped", "intent.reassigned")
    found = group(facts, going(*facts[1:]) | {facts[0].id: end}, {})
    assert found.ends == {facts[0].id: end}
    assert found.leaders == (facts[1],)
    assert found.followers == {facts[2].id: facts[1].id}


def test_a_scope_of_the_same_pass_is_joined() -> None:
    one, carrier = intent(), Carrier(uuid4(), uuid4())
    found = group([one], going(one), {scope_of(one): carrier})
    assert (found.joined, found.leaders) == ({one.id: carrier}, ())


def test_one_that_nobody_judges_still_leads_so_that_it_is_parked() -> None:
    one = intent()
    assert group([one], {}, {}).leaders == (one,)


@given(st.uuids())
def test_a_dispatch_receipts_id_is_derived_and_a_uuid_of_the_same_time(wake: UUID) -> None:
    made = dispatch_id(wake)
    assert made == dispatch_id(wake)
    assert made != wake
    assert made.bytes[:6] == wake.bytes[:6]
    assert (made.version, made.variant) == (7, "specified in RFC 4122")


@given(st.uuids(), st.uuids())
def test_different_intents_have_different_dispatch_receipts(one: UUID, other: UUID) -> None:
    assert (dispatch_id(one) == dispatch_id(other)) == (one == other)


# ── the plugin ──────────────────────────────────────────────────────────────────────────────────────────

TARGETS: list[tuple[dict[str, object], str | None]] = [
    ({}, None),
    ({"assignee_kind": "agent", "assignee": "coder"}, None),
    ({"issue_status": "done"}, "issue.terminal"),
    ({"issue_status": "cancelled"}, "issue.terminal"),
    ({"issue_status": "cancelled", "only_held": True}, None),
    ({"issue": None, "issue_status": None}, "intent.target_gone"),
    ({"assignee_kind": "agent", "assignee": "other"}, "intent.reassigned"),
    ({"assignee_kind": "user", "assignee": "coder"}, "intent.reassigned"),
    ({"review": "R", "reviewer": "agent:coder", "assignee_kind": "user", "assignee": "ann"}, None),
    ({"review": "R", "reviewer": "user:coder"}, "issue.reviewer"),
    ({"review": "R", "reviewer": None}, "issue.reviewer"),
    ({"review": "R", "reviewer": "agent:coder", "issue_status": "done"}, "issue.terminal"),
]


@pytest.mark.parametrize(("changes", "reason"), TARGETS)
def test_a_target_that_stands_no_more_ends_the_intent_as_its_state_allows(
    changes: dict[str, object], reason: str | None
) -> None:
    for one, ends_as in ((intent(**changes), "skipped"), (fact(kind="dispatch", **changes), "retired")):
        verdict = judge_target(one)
        if reason is None:
            assert verdict == Proceed()
        else:
            assert isinstance(verdict, End)
            assert (verdict.state, verdict.reason) == (ends_as, reason)


class Ending(StatusIntents):
    """Ends everything in one way."""

    def __init__(self, state: str) -> None:
        self._state = state

    def judge(self, facts: object) -> list[Verdict]:
        return [End(self._state, "x")]


@pytest.mark.parametrize(
    ("state", "of", "allowed"),
    [
        ("skipped", "claimed", True),
        ("cancelled", "claimed", False),
        ("settled", "claimed", False),
        ("linked", "claimed", False),
        ("skipped", "deferred", False),
        ("cancelled", "deferred", True),
    ],
)
def test_a_plugin_may_end_an_intent_only_as_the_database_allows(state: str, of: str, allowed: bool) -> None:
    one = intent(state=of)
    judges = Judges([Ending(state)])
    if allowed:
        assert judges.verdicts([one]) == {one.id: End(state, "x")}
    else:
        with pytest.raises(PluginError, match=state):
            judges.verdicts([one])
