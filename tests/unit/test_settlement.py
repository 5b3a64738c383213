"""What a chat action's state means for the retry that waits for it. Pure."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.facts import RUN, WAKE, fact

from wakeful import settlement
from wakeful.errors import Conflict
from wakeful.outcomes import End, Proceed
from wakeful.receipts import Saved
from wakeful_plugins.task_retry import Settlements, judge_chat, register_owners


@pytest.mark.parametrize("state", ["pending", "processing"])
def test_an_open_action_says_nothing(state: str) -> None:
    assert settlement.outcome(WAKE, state, None) is None


@pytest.mark.parametrize(
    ("state", "run", "error", "means"),
    [
        ("processed", None, None, Proceed()),
        ("processed", RUN, None, End("settled", "chat.processed", f"the chat led to run {RUN}", into=RUN)),
        ("failed", None, "no", End("settled", "chat.failed", "the chat could not process it: no")),
        ("failed", None, None, End("settled", "chat.failed", "the chat could not process it")),
    ],
)
def test_a_settled_action_says_what_becomes_of_its_retry(
    state: str, run: UUID | None, error: str | None, means: Any
) -> None:
    assert settlement.outcome(WAKE, state, run, error) == means


def test_no_action_is_a_conflict() -> None:
    with pytest.raises(Conflict, match=str(WAKE)) as caught:
        settlement.outcome(WAKE, None, None)
    assert (caught.value.code, "retire" in str(caught.value.hint)) == (4, True)


def chats(**saved: Any) -> Any:
    return fact(kind="task_retry", owner="settlement", saved=Saved(chat_action=str(WAKE), **saved))


def test_in_an_ordinary_pass_only_a_settled_action_keeps_a_retry_from_its_judge() -> None:
    facts = [
        chats(chat_state="pending"),
        chats(chat_state="processing"),
        chats(chat_state="processed"),
        chats(chat_state="processed", chat_run=RUN),
        chats(chat_state="failed"),
    ]
    verdicts = Settlements().judge(facts)
    assert verdicts[:3] == [Proceed()] * 3
    assert [(v.state, v.reason) for v in verdicts[3:] if isinstance(v, End)] == [
        ("settled", "chat.processed"),
        ("settled", "chat.failed"),
    ]
    for odd in (chats(), fact(kind="task_retry", owner="settlement")):
        with pytest.raises(Conflict):
            judge_chat(odd)


def test_the_plugin_brings_both_owners() -> None:
    assert [(owner.name, set(owner.kinds)) for owner in register_owners()] == [
        ("task_retry", {"task_retry"}),
        ("settlement", set()),
    ]
