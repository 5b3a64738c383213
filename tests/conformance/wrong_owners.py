"""Owners that each break one rule of the conformance suite, and the sound one that they are made from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from wakeful import connections, hookimpl, producers
from wakeful.outcomes import End, Proceed, Refusal, Verdict, Wait
from wakeful.owners import Owner
from wakeful.receipts import LIVE_RUN, Fact

KIND = "parcel"


class Parcels:
    """Sound: a parcel goes out unless its issue has been put into the backlog."""

    name = KIND
    kinds = frozenset({KIND})

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        return [self.judge_one(fact) for fact in facts]

    def judge_one(self, fact: Fact) -> Verdict:
        if fact.issue_status == "backlog":
            return End("retired", "parcel.unwanted", "nobody wants it any more")
        if fact.certified_run is not None and fact.source_state in LIVE_RUN:
            refusal = Refusal("execution", fact.issue or "", "execution.source", "its source lives", "its end")
            return Wait(refusal)
        return Proceed(retry_of=fact.certified_run)

    @hookimpl
    def register_owners(self) -> Iterable[Owner]:
        return [self]


class Forgetful(Parcels):
    """Knows only what was saved while it lived."""

    def __init__(self) -> None:
        self._seen: set[UUID] = set()
        self._first = True

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        if self._first:
            self._first = False
            self._seen = {fact.id for fact in facts}
        missed = Wait(Refusal("parcel", KIND, "parcel.unheard", "it was saved before my time", "a word"))
        return [missed if fact.id in self._seen else Proceed() for fact in facts]


class Batcher(Parcels):
    """Takes receipts of one deadline for repetitions of each other."""

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        seen = set()
        answers: list[Verdict] = []
        for fact in facts:
            answers.append(End("coalesced", "parcel.twin") if fact.due_at in seen else Proceed())
            seen.add(fact.due_at)
        return answers


class Memoising(Parcels):
    """Judges each receipt once for all."""

    def __init__(self) -> None:
        self._known: dict[UUID, Verdict] = {}

    def judge_one(self, fact: Fact) -> Verdict:
        return self._known.setdefault(fact.id, super().judge_one(fact))


class Poller(Parcels):
    """Looks again every few seconds, in case the agent was resumed."""

    def judge_one(self, fact: Fact) -> Verdict:
        if fact.agent_state == "paused":
            soon = fact.now + timedelta(seconds=45)
            return Wait(Refusal("agent", fact.agent, "agent.paused", "not now", "a while", reopens_at=soon))
        return Proceed()


class Misnaming(Parcels):
    """Waits for the company's resumption by a name that no producer signals."""

    def judge_one(self, fact: Fact) -> Verdict:
        if fact.company_state == "paused":
            return Wait(Refusal("firm", fact.company, "firm.paused", "the firm is closed", "its opening"))
        return Proceed()


class Doubler(Parcels):
    """Asks for another parcel whenever it judges one."""

    dsn = ""

    def judge_one(self, fact: Fact) -> Verdict:
        if not fact.issue or fact.live_run is not None:
            return Proceed()
        with connections.connect(self.dsn, purpose="wrong owner") as conn:
            asked = producers.request_wake(fact.company, fact.agent, fact.issue, key=f"again {fact.id}", kind=KIND)
            producers.run(conn, asked)
        return Proceed()


class Forfeiting(Parcels):
    """Takes a newer generation of its source for a successor."""

    def judge_one(self, fact: Fact) -> Verdict:
        if fact.certified_generation != fact.source_generation:
            return End("retired", "parcel.overtaken", "its source has moved on")
        return super().judge_one(fact)


class Busybody(Parcels):
    """Works from the moment it is loaded."""

    dsn = ""

    @hookimpl
    def register_owners(self) -> Iterable[Owner]:
        with connections.connect(self.dsn, purpose="wrong owner") as conn:
            conn.execute("UPDATE wakeful.wake SET version = version + 1 WHERE kind = %s AND ended_at IS NULL", [KIND])
        return [self]


class Scribbling(Parcels):
    """Notes what it has handled in a file, before the commit."""

    def judge_one(self, fact: Fact) -> Verdict:
        note = Path(os.environ["WRONG_OWNERS_NOTES"]) / str(fact.id)
        if note.exists():
            return End("coalesced", "parcel.handled", "my notes say that it is done")
        note.touch()
        return Proceed()


class Throwing(Parcels):
    """Raises where it should refuse."""

    def judge_one(self, fact: Fact) -> Verdict:
        if fact.agent_state == "paused":
            raise RuntimeError("agent is paused")
        return Proceed()
