"""What of saved input is live at its release, and in whose name it runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.facts import RUN, fact

from wakeful.outcomes import End, Proceed
from wakeful.receipts import Saved, SavedComment
from wakeful_plugins.saved_comments import SavedComments, judge_card, judge_comments, register_owners

OTHER_RUN = UUID("01970000-0000-7000-8000-0000000000bb")
NONE_LIVE = End("cancelled", "comments.none_live", "every comment was taken back or given to a run already")


def comment(id: str = "c-1", by: str = "user:ann", **changes: Any) -> SavedComment:
    kind, _, author = by.partition(":")
    return SavedComment(**{"id": id, "author_kind": kind, "author": author, **_PLAIN, **changes})


_PLAIN: dict[str, Any] = {"deleted": False, "delivered": False, "run": None}


def judged(*comments: SavedComment, saved: dict[str, Any] | None = None, **changes: Any) -> Any:
    return judge_comments(fact(kind="saved_comments", saved=Saved(comments, **saved or {}), **changes))


@pytest.mark.parametrize(
    ("one", "live"),
    [
        (comment(), True),
        (comment(deleted=True), False),
        (comment(delivered=True), False),
        (comment(run=RUN), False),  # the run that ended last wrote it
        (comment(run=OTHER_RUN), True),
        (comment(by="agent:coder"), False),
        (comment(by="agent:coder", run=OTHER_RUN), False),
        (comment(by="agent:other"), True),
        (comment(by="agent:other", run=RUN), True),
        (comment(by="user:coder"), True),
        (comment(by="system:relay"), True),
        (comment(by="system:relay", run=RUN), False),
    ],
)
def test_what_is_live(one: SavedComment, live: bool) -> None:
    verdict = judged(one, saved={"last_run": RUN})
    assert verdict == NONE_LIVE if not live else isinstance(verdict, Proceed) and verdict.comments == ("c-1",)


def test_nothing_saved_at_all_is_nothing_live() -> None:
    assert judged() == NONE_LIVE
    assert judge_comments(fact(kind="saved_comments", saved=None)) == NONE_LIVE


@pytest.mark.parametrize(
    ("comments", "authority"),
    [
        ([comment("a"), comment("b", "user:bob"), comment("c", "agent:other")], "user:bob"),
        ([comment("a"), comment("b", "user:bob", deleted=True)], "user:ann"),
        ([comment("a", delivered=True), comment("b", "agent:other")], "system:relay"),
        ([comment("a", "system:x")], "system:relay"),
    ],
)
def test_the_last_person_whose_words_are_live_is_the_authority(comments: Any, authority: str) -> None:
    live = tuple(one.id for one in comments if not one.deleted and not one.delivered)
    verdict = judged(*comments, actor_kind="system", actor="relay")
    assert verdict == Proceed(comments=live, authority=authority)


def test_it_ends_with_the_own_run_of_an_assignee_who_is_another_agent() -> None:
    verdict = judged(comment(), saved={"assignees_run": RUN}, assignee_kind="agent", assignee="other")
    assert (verdict.state, verdict.reason, verdict.into) == ("cancelled", "comments.reassigned", RUN)
    assert "agent other" in verdict.message
    waits = judged(comment(), assignee_kind="agent", assignee="other")
    assert isinstance(waits, Proceed)  # the gate of the assignee decides


@pytest.mark.parametrize(
    ("saved", "verdict"),
    [
        (
            Saved(card="k", card_status="accepted", card_now="accepted", card_by="user:ann"),
            Proceed(authority="user:ann"),
        ),
        (
            Saved(card="k", card_status="accepted", card_now="withdrawn"),
            End("cancelled", "card.changed", "card k is withdrawn, no longer accepted"),
        ),
        (
            Saved(card="k", card_status="accepted"),
            End("failed", "card.gone", "the card whose answer this is does not exist"),
        ),
        (None, End("failed", "card.gone", "the card whose answer this is does not exist")),
    ],
)
def test_a_card_stands_while_it_has_its_status(saved: Saved | None, verdict: Any) -> None:
    assert judge_card(fact(kind="card", saved=saved)) == verdict


def test_the_owner_judges_both_kinds_each_by_its_own_rule() -> None:
    [owner] = register_owners()
    assert (owner.name, owner.kinds) == ("saved_comments", frozenset({"saved_comments", "card"}))
    card = fact(kind="card", saved=Saved(card="k", card_status="answered", card_now="answered"))
    words = fact(kind="saved_comments", saved=Saved((comment(),)))
    assert SavedComments().judge([card, words]) == [
        Proceed(),
        Proceed(comments=("c-1",), authority="user:ann"),
    ]
