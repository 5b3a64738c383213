"""The judgement of a retry, case by case and in its order. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.facts import NOW, RUN, WAKE, fact

from wakeful.outcomes import End, Park, Proceed, Refusal, Wait, park
from wakeful_plugins.task_retry import judge_retry

NEWER = UUID(int=9)
READY: dict[str, Any] = {
    "kind": "task_retry",
    "certified_run": RUN,
    "certified_generation": 1,
    "source_state": "failed",
    "source_generation": 1,
    "assignee_kind": "agent",
    "assignee": "coder",
}


def judged(**changes: Any) -> Any:
    return judge_retry(fact(**{**READY, **changes}))


@pytest.mark.parametrize("state", ["failed", "cancelled", "lost"])
@pytest.mark.parametrize("generation", [1, 2, 7])
def test_a_source_that_ended_is_repeated_whatever_its_generation_became(state: str, generation: int) -> None:
    assert judged(source_state=state, source_generation=generation) == Proceed(retry_of=RUN)


def test_an_issue_of_nobody_or_none_at_all_is_no_obstacle() -> None:
    assert judged(assignee_kind=None, assignee=None) == Proceed(retry_of=RUN)
    assert judged(issue=None, issue_status=None, assignee_kind=None, assignee=None) == Proceed(retry_of=RUN)


# Each ends it whatever stands further down.
ENDS: list[tuple[dict[str, Any], str, str, UUID | None]] = [
    ({"issue_status": "done"}, "retired", "issue.terminal", None),
    ({"assignee_kind": "user", "assignee": "ann"}, "cancelled", "retry.reassigned", None),
    ({"assignee": "other"}, "retired", "retry.reassigned", None),
    ({"source_state": None}, "failed", "retry.source_gone", None),
    ({"certified_generation": 3}, "failed", "retry.uncertified", None),
    ({"newer_run": NEWER}, "retired", "retry.superseded", NEWER),
    ({"newer_input": WAKE}, "retired", "retry.newer_input", WAKE),
    ({"source_state": "succeeded"}, "retired", "retry.succeeded", RUN),
]


@pytest.mark.parametrize("place", range(len(ENDS)), ids=[f"{end[1]} {end[2]}" for end in ENDS])
def test_what_ends_it_does_so_in_this_order(place: int) -> None:
    changes, state, reason, into = ENDS[place]
    for later in [{}, *(end[0] for end in ENDS[place + 1 :])]:
        if set(later) & set(changes):
            continue
        verdict = judged(**later, **changes)
        assert isinstance(verdict, End)
        assert (verdict.state, verdict.reason, verdict.into) == (state, reason, into)


def test_an_issue_that_only_a_hold_cancelled_is_not_terminal() -> None:
    assert judged(issue_status="cancelled", only_held=True) == Proceed(retry_of=RUN)


@pytest.mark.parametrize("state", ["queued", "starting", "running", "stopping"])
@pytest.mark.parametrize(("issue", "key"), [("I-1", "I-1"), (None, str(RUN))])
def test_a_source_that_lives_is_waited_for_where_its_end_signals(state: str, issue: str | None, key: str) -> None:
    whose = {} if issue else {"assignee_kind": None, "assignee": None}
    verdict = judged(source_state=state, issue=issue, **whose)
    assert isinstance(verdict, Wait)
    assert (verdict.refusal.at, verdict.refusal.reason) == (("execution", key), "execution.source")


# ── the same reason again ───────────────────────────────────────────────────────────────────────────────

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("due", "reopens", "then"),
    [
        (None, None, None),
        (None, 5, 5),
        (-1, None, None),
        (-1, 5, 5),
        (3, None, 3),
        (3, 5, 3),
        (5, 3, 3),
    ],
)
def test_the_same_reason_leaves_the_earlier_of_deadline_and_clock(
    due: int | None, reopens: int | None, then: int | None
) -> None:
    def at(minutes: int | None) -> Any:
        return None if minutes is None else NOW + minutes * MINUTE

    refusal = Refusal("provider", "a/b", "provider.limited", "closed", "its reset", reopens_at=at(reopens))
    waits_on = ("provider", "a/b", "provider.limited")
    assert park(refusal, waits_on=waits_on, due_at=at(due), now=NOW) == Park(refusal, at(then), changed=False)
