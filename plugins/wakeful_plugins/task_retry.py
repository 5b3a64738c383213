"""The task retry: repeats one run, certified by that run and its generation, once.

It ends without a run when a newer run of the issue, newer input to it, its source's late success or a terminal issue
makes it pointless, and leaves a tombstone when the issue went to a person. A retry that was asked for in a chat waits
until the chat's action is settled; the owner ``settlement`` times it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wakeful import hookimpl

if TYPE_CHECKING:
    from wakeful.outcomes import Verdict
    from wakeful.owners import Owner
    from wakeful.receipts import Fact


class Retries:
    """Owner of wakes of kind ``task_retry``."""

    name = "task_retry"
    kinds = frozenset({"task_retry"})

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        """Judge each retry's authority against its issue and its source run."""
        return [judge_retry(fact) for fact in facts]


def judge_retry(fact: Fact) -> Verdict:
    """Return whether a retry may go on to the gates. Pure."""
    from wakeful.outcomes import End, Proceed, Refusal, Wait
    from wakeful.receipts import LIVE_RUN

    if fact.saved is not None and fact.saved.chat_action is not None and fact.saved.chat_outcome is None:
        # Whoever times it: one that is interrupted for is not its chat's to time any more, and may have settled.
        settled = judge_chat(fact)
        if isinstance(settled, End):
            return settled
    if fact.issue_is_terminal:
        return End("retired", "issue.terminal", f"issue {fact.issue} is {fact.issue_status}")
    if fact.belongs_to_another and fact.review is not None:
        return End("retired", "issue.reviewer", f"the review of issue {fact.issue} is {fact.reviewer or 'nobody'}'s")
    if fact.belongs_to_another:
        state = "cancelled" if fact.assignee_kind == "user" else "retired"
        return End(state, "retry.reassigned", f"issue {fact.issue} went to {fact.assignee_kind} {fact.assignee}")
    if fact.certified_run is None or fact.source_state is None:
        return End("failed", "retry.source_gone", "the run to be retried does not exist any more")
    if (fact.source_generation or 0) < (fact.certified_generation or 1):
        message = f"run {fact.certified_run} never had the generation {fact.certified_generation}"
        return End("failed", "retry.uncertified", message)
    saved = fact.saved.comments if fact.saved is not None else ()
    comments = tuple(one.id for one in saved if not one.deleted)
    # Words that no run was given are this retry's alone.
    overtaken = not any(not one.deleted and not one.delivered for one in saved)
    if overtaken and fact.newer_run is not None:
        return End("retired", "retry.superseded", f"run {fact.newer_run} came after it", into=fact.newer_run)
    if overtaken and fact.newer_input is not None:
        return End("retired", "retry.newer_input", f"wake {fact.newer_input} brings newer input", into=fact.newer_input)
    if fact.source_state == "succeeded":
        return End("retired", "retry.succeeded", "it succeeded after all", into=fact.certified_run)
    if fact.source_state in LIVE_RUN:
        key = fact.issue or str(fact.certified_run)
        message = f"run {fact.certified_run}, which is to be retried, has not ended"
        return Wait(Refusal("execution", key, "execution.source", message, "the end of that run"))
    return Proceed(retry_of=fact.certified_run, comments=comments)


class Settlements:
    """Times the retries that wait for a chat's action, until what it came to is folded into them."""

    name = "settlement"
    kinds: frozenset[str] = frozenset()

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        """Let each retry go on to its judge, unless its action has settled meanwhile: nothing may run twice.

        Raises:
            Conflict: a retry's action does not bear it out.
        """
        return [judge_chat(fact) for fact in facts]


def judge_chat(fact: Fact) -> Verdict:
    """Return what has become of a retry's chat action; one that has not settled keeps no retry from its judge. Pure."""
    from wakeful import settlement
    from wakeful.outcomes import Proceed

    if fact.saved is None:
        raise settlement.unauthorised(fact.id)
    return settlement.outcome(fact.id, fact.saved.chat_state, fact.saved.chat_run) or Proceed()


@hookimpl
def register_owners() -> Iterable[Owner]:
    """Add the owner of retries and the one that times chats' retries."""
    return [Retries(), Settlements()]
