"""Saved comments and card answers: what of them is still live when they are released, and in whose name they run.

A comment is live while it is neither taken back nor given to a started run, and was written neither by the agent itself
nor by its run that just ended. All live ones go to one run, in their order. A card's answer stands while the card
has the status that it was saved for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wakeful import hookimpl

if TYPE_CHECKING:
    from uuid import UUID

    from wakeful.outcomes import Verdict
    from wakeful.owners import Owner
    from wakeful.receipts import Fact, Saved, SavedComment


class SavedComments:
    """Owner of wakes of the kinds ``saved_comments`` and ``card``."""

    name = "saved_comments"
    kinds = frozenset({"saved_comments", "card"})

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        """Judge what each receipt still carries."""
        return [judge_card(fact) if fact.kind == "card" else judge_comments(fact) for fact in facts]


def judge_comments(fact: Fact) -> Verdict:
    """Return which comments go to the run, or that none does. Pure."""
    from wakeful.outcomes import End, Proceed
    from wakeful.receipts import Saved

    saved = fact.saved or Saved()
    live = [comment for comment in saved.comments if _is_live(comment, fact, saved)]
    if not live:
        return End("cancelled", "comments.none_live", "every comment was taken back or given to a run already")
    if saved.assignees_run is not None:
        return _handed_over(fact, saved.assignees_run, "comments.reassigned")
    people = [comment.author for comment in live if comment.author_kind == "user"]
    authority = f"user:{people[-1]}" if people else f"{fact.actor_kind}:{fact.actor}"
    return Proceed(comments=tuple(comment.id for comment in live), authority=authority)


def _handed_over(fact: Fact, run: UUID, reason: str) -> Verdict:
    """Until the assignee's own run ends, the issue may still come back to this agent; then it has stayed away."""
    from wakeful.outcomes import End

    message = f"issue {fact.issue} stayed with agent {fact.assignee}, whose run {run} has ended"
    return End("cancelled", reason, message, into=run)


def _is_live(comment: SavedComment, fact: Fact, saved: Saved) -> bool:
    if comment.deleted or comment.delivered:
        return False
    if comment.author_kind == "agent":
        return comment.author != fact.agent  # what another agent's run said last is news to this one
    return comment.run is None or comment.run != saved.last_run


def judge_card(fact: Fact) -> Verdict:
    """Return whether a card's answer still stands. Pure."""
    from wakeful.outcomes import End, Proceed
    from wakeful.receipts import Saved

    saved = fact.saved or Saved()
    if saved.card is None or saved.card_now is None:
        return End("failed", "card.gone", "the card whose answer this is does not exist")
    if saved.card_now != saved.card_status:
        return End("cancelled", "card.changed", f"card {saved.card} is {saved.card_now}, no longer {saved.card_status}")
    if saved.assignees_run is not None:
        return _handed_over(fact, saved.assignees_run, "card.reassigned")
    return Proceed(authority=saved.card_by)


@hookimpl
def register_owners() -> Iterable[Owner]:
    """Add the owner of saved comments and card answers."""
    return [SavedComments()]
