"""Native status intents: a status change must wake somebody; and the dispatch receipts that gates hold back.

A dispatcher, made for each pass, turns due intents into runs. This plugin says whether the target still stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wakeful import hookimpl

if TYPE_CHECKING:
    from wakeful.outcomes import Verdict
    from wakeful.owners import Owner
    from wakeful.receipts import Fact


class StatusIntents:
    """Owner of wakes of the kinds ``native_status`` and ``dispatch``."""

    name = "native_status"
    kinds = frozenset({"native_status", "dispatch"})

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        """Judge whether each one's issue still waits for its agent."""
        return [judge_target(fact) for fact in facts]


def judge_target(fact: Fact) -> Verdict:
    """Return whether an intent, or its dispatch receipt, may go on to the gates. Pure."""
    from wakeful.outcomes import End, Proceed
    from wakeful.receipts import INTENT

    state = "skipped" if fact.state in INTENT else "retired"
    if fact.issue is None or fact.issue_status is None:
        return End(state, "intent.target_gone", "the issue that it was about does not exist any more")
    if fact.issue_is_terminal:
        return End(state, "issue.terminal", f"issue {fact.issue} is {fact.issue_status}")
    if fact.belongs_to_another and fact.review is not None:
        return End(state, "issue.reviewer", f"the review of issue {fact.issue} is {fact.reviewer or 'nobody'}'s")
    if fact.belongs_to_another:
        message = f"issue {fact.issue} went to {fact.assignee_kind} {fact.assignee}"
        return End(state, "intent.reassigned", message)
    return Proceed()


@hookimpl
def register_owners() -> Iterable[Owner]:
    """Add the owner of status intents."""
    return [StatusIntents()]
