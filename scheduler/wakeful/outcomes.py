"""What a judgement may answer: verdicts of a kind's plugin, refusals of gates, outcomes of an admission.

Expected outcomes are values. Reasons read ``<gate>.<cause>``; the reference lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

GRACE = timedelta(seconds=30)

Gate = tuple[str, str]  # its kind and its key: what producers signal when it opens


@dataclass(frozen=True, slots=True)
class Refusal:
    """A closed gate's answer.

    Arguments:
        gate, key: which gate; the same pair its producers signal.
        reason: ``<gate>.<cause>``.
        message: for people.
        opens_on: what opens the gate, for people.
        reopens_at: when the clock itself opens it, else None.
        final: the gate will never open for this receipt, so it is retired instead of parked.
    """

    gate: str
    key: str
    reason: str
    message: str
    opens_on: str
    reopens_at: datetime | None = None
    final: bool = False

    @property
    def at(self) -> Gate:
        """The gate that refuses."""
        return self.gate, self.key


# ── verdicts: what a kind's plugin says of one receipt ──────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Successor:
    """The next wake of a receipt that recurs: saved in the very transaction that links or ends this one.

    Arguments:
        due_at: when it is due; in the past: at once.
        payload: its payload; None: the same again.
    """

    due_at: datetime
    payload: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Proceed:
    """The receipt's authority stands; the gates decide.

    Arguments:
        retry_of: the run that this one repeats.
        comments: ids of the comments that the run is given, in order.
        authority: in whose name the run acts, as ``user:ann``; None: the receipt's own actor.
        successor: the next wake of a receipt that recurs; saved only if this one is admitted.
    """

    retry_of: UUID | None = None
    comments: tuple[str, ...] = ()
    authority: str | None = None
    successor: Successor | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """The receipt waits for something its kind knows of."""

    refusal: Refusal


@dataclass(frozen=True, slots=True)
class End:
    """The receipt ends without a run of its own.

    ``state`` is one of coalesced, retired, settled, cancelled, failed (of an intent also skipped); ``into`` the wake or
    run that carries it, if any; ``successor`` the next wake of a receipt that recurs.
    """

    state: str
    reason: str
    message: str = ""
    into: UUID | None = None
    successor: Successor | None = None


Verdict = Proceed | Wait | End

# ── outcomes: what the admission writes ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Admit:
    """One run carries the receipt; the rest as its plugin's ``Proceed`` said."""

    retry_of: UUID | None = None
    comments: tuple[str, ...] = ()
    authority: str | None = None
    successor: Successor | None = None


@dataclass(frozen=True, slots=True)
class Park:
    """The receipt waits behind a gate.

    ``due_at`` is the next look (grace end, or the gate's own clock), None for silence; ``changed`` says
    whether the reason is a first or another one, so that version, grace and row are written at all.
    """

    refusal: Refusal
    due_at: datetime | None
    changed: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """The stored deadline lies ahead: act on nothing, look again then (None: only when signalled)."""

    due_at: datetime | None


@dataclass(frozen=True, slots=True)
class Gone:
    """The row is not pending any more; somebody else was first."""


Outcome = Admit | Park | End | Moved | Gone


def park(
    refusal: Refusal, *, waits_on: tuple[str | None, str | None, str | None], due_at: datetime | None, now: datetime
) -> Park:
    """Decide how a refused receipt waits.

    A first or a changed reason gets one grace; the same reason again changes nothing, and once its grace is
    over leaves only the gate's own clock. A clock that says the gate should be open already is looked at again
    after a grace: at once would be a loop, never would be a sleep for ever.

    Arguments:
        waits_on: the row's present (wait_gate, wait_key, wait_reason).
        due_at: the row's present deadline.
        now: the database's wall clock.
    """
    grace_end = now + GRACE
    reopens_at = refusal.reopens_at
    if reopens_at is not None and reopens_at <= now:
        reopens_at = grace_end
    if waits_on == (refusal.gate, refusal.key, refusal.reason):
        if due_at is not None and due_at > now:
            # A gate that opens sooner than it said moves the deadline with it, and nothing else.
            return Park(refusal, due_at if reopens_at is None else min(due_at, reopens_at), changed=False)
        return Park(refusal, reopens_at, changed=False)
    return Park(refusal, min(grace_end, reopens_at or grace_end), changed=True)
