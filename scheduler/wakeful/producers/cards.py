"""Cards: questions of agents, answered by people; each answer is a wake of its own."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from wakeful.producers import arguments as check
from wakeful.producers.statement import Argument, Statement, call

ANSWERS = ("answered", "accepted", "rejected")


def create_card(
    company: str,
    issue: str,
    agent: str,
    question: Any,
    *,
    id: str | None = None,
    run: UUID | str | None = None,
    kind: str | None = None,
    supersedes: str | None = None,
    actor: str | None = None,
) -> Statement:
    """Save a question of an agent. A known id changes nothing.

    Arguments:
        issue: what it is about; created if nobody has mentioned it.
        agent: who asks, and is woken for the answer.
        question: any JSON value, at most 64 KiB.
        id: the host's own; left out, one is made.
        run: the run that asks, if one does.
        kind: the host's own word for how it is shown; left out, question.
        supersedes: a pending card of the issue that this one takes the place of.
    """
    return call(
        "create_card",
        check.identifier("company", company),
        check.identifier("issue", issue),
        check.identifier("agent", agent),
        _document("question", question),
        check.optional_identifier("id", id),
        check.optional_uuid("run", run),
        check.optional_identifier("kind", kind),
        check.optional_identifier("supersedes", supersedes),
        check.actor(actor),
    )


def answer_card(
    company: str, card: str, answer: Any = ..., *, status: str | None = None, actor: str | None = None
) -> Statement:
    """Answer a card: its agent is woken, in the answerer's name. The same answer again changes nothing.

    Raises on execution: Conflict, if it was answered otherwise, withdrawn or superseded.

    Arguments:
        answer: any JSON value, at most 64 KiB.
        status: one of ``ANSWERS``; left out, answered.
    """
    return call(
        "answer_card",
        check.identifier("company", company),
        check.identifier("card", card),
        ("answer", ...) if answer is ... else _document("answer", answer),
        check.one_of("status", status, *ANSWERS),
        check.actor(actor),
    )


def withdraw_card(company: str, card: str, *, actor: str | None = None) -> Statement:
    """Take a card back, with an answer that still waits for its run.

    Raises on execution: Conflict, if its answer is already dispatching.
    """
    return call(
        "withdraw_card",
        check.identifier("company", company),
        check.identifier("card", card),
        check.actor(actor),
    )


def _document(name: str, value: Any) -> Argument:
    return name, check.payload(value)[1]
