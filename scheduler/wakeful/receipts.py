"""Receipts and the facts an admission judges: plain values, read under the receipts' locks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from uuid import UUID

PENDING = ("deferred", "queued", "claimed", "error")
ADMISSIBLE = ("deferred", "claimed")  # a claimed intent is its dispatcher's to admit
INTENT = ("queued", "claimed", "error")
FINAL = ("linked", "coalesced", "skipped", "retired", "settled", "cancelled", "failed")
LIVE_RUN = ("queued", "starting", "running", "suspended", "stopping")
ENDED_RUN = ("succeeded", "failed", "cancelled", "lost")
ISSUE_STATUSES = ("backlog", "todo", "in_progress", "in_review", "blocked", "done", "cancelled")
TERMINAL_ISSUE = ("done", "cancelled")


@dataclass(frozen=True, slots=True)
class SavedComment:
    """One comment that a receipt carries, as it stands now.

    Arguments:
        deleted: taken back since it was saved.
        delivered: a started run was given it (one that met its provider's limit does not count).
        run: the run that wrote it, if one did.
    """

    id: str
    author_kind: str
    author: str
    deleted: bool
    delivered: bool
    run: UUID | None


@dataclass(frozen=True, slots=True)
class Saved:
    """What a receipt carries besides its request: comments in order, a card, an interrupt's marker, a chat action.

    Arguments:
        card_status: the card's status that the receipt was saved for.
        card_now: the card's status now; None if there is no such card.
        last_run: the issue's run that ended last, whose own words wake nobody.
        interrupt_by: who asked to interrupt, as ``user:ann``.
        chat_state: the chat action's state now; None if there is no such action.
        chat_run: the run that the chat action led to by itself.
        card_by: who answered the card, as ``user:ann``.
        assignees_run: the last run of the issue's assignee, another agent, that ended since the receipt was saved.
    """

    comments: tuple[SavedComment, ...] = ()
    card: str | None = None
    card_status: str | None = None
    card_now: str | None = None
    last_run: UUID | None = None
    interrupt_by: str | None = None
    interrupt_at: datetime | None = None
    chat_action: str | None = None
    chat_state: str | None = None
    chat_run: UUID | None = None
    chat_outcome: str | None = None
    card_by: str | None = None
    assignees_run: UUID | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """Everything one receipt's judgement may depend on, read in one statement under its lock.

    Columns of the wake come first, then of its company, agent, project, issue, and of the run it retries.
    The dispatcher judges queued runs by the same facts. Money is in the company's currency. ``owner`` times the
    receipt. ``payload`` is JSON text, read only for owners that set ``reads_payload``; ``saved`` is None for a receipt
    that carries nothing but its request.
    """

    company: str
    id: UUID
    kind: str
    state: str
    version: int
    priority: int
    agent: str
    issue: str | None
    project: str | None
    actor_kind: str
    actor: str
    created_at: datetime
    due_at: datetime | None
    wait_gate: str | None
    wait_key: str | None
    wait_reason: str | None
    failures: int
    certified_run: UUID | None
    certified_generation: int | None
    estimate: Decimal | None
    company_state: str
    panic: bool
    agent_state: str
    agent_pause_reason: str | None
    project_pause_reason: str | None
    project_archived: bool
    issue_status: str | None
    assignee_kind: str | None
    assignee: str | None
    live_run: UUID | None
    unproven_run: UUID | None
    source_state: str | None
    source_generation: int | None
    newer_run: UUID | None
    newer_input: UUID | None
    only_held: bool
    hold_root: str | None
    hold_mode: str | None
    recovery: UUID | None
    open_blocker: str | None
    open_lease: str | None
    circuit: str | None
    account: str | None
    owner: str
    payload: str | None
    saved: Saved | None
    review: str | None
    reviewer: str | None
    now: datetime

    @property
    def issue_is_terminal(self) -> bool:
        """Whether the issue is done or cancelled; one cancelled only by a cancel hold is held, not terminal."""
        return self.issue_status in TERMINAL_ISSUE and not self.only_held

    @property
    def belongs_to_another(self) -> bool:
        """Whether the issue is somebody else's now; of a review: whether somebody else reviews it."""
        if self.review is not None:
            return self.reviewer != f"agent:{self.agent}"
        return self.assignee is not None and (self.assignee_kind, self.assignee) != ("agent", self.agent)


@dataclass(frozen=True, slots=True)
class Policy:
    """One budget with what was spent in its window and what live reservations hold."""

    id: str
    amount: Decimal
    hard_stop: bool
    estimate: Decimal | None
    spent: Decimal
    reserved: Decimal
    window_ends: datetime | None


@dataclass(frozen=True, slots=True)
class AgentLimit:
    """An agent's live runs against its limit; ``estimate`` is the agent's own."""

    id: str
    live: int
    limit: int | None
    estimate: Decimal | None


@dataclass(frozen=True, slots=True)
class Account:
    """A provider's account: whether it is closed, and how fast its runs may start.

    Arguments:
        closed, closed_until, reason, ask: closed until a time; with ``ask``, until a person clears it.
        ramp_from: when it last reopened, while its ramp lasts.
        started: runs started since then.
        recent: runs started in the last second.
        queued: receipts that already wait for a slot of the ramp.
        starts_per_second: its steady rate, if any.
        ramp_rate, ramp_period: starts per second at the beginning of its ramp, seconds after which that doubles.
    """

    id: str
    closed: bool
    closed_until: datetime | None
    reason: str | None
    ask: bool
    ramp_from: datetime | None
    started: int
    recent: int
    queued: int
    starts_per_second: Decimal | None
    ramp_rate: float = 1.0
    ramp_period: float = 10.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a company's pass is limited by; read again under the company's limits lock."""

    policies: Mapping[str, Policy] = field(default_factory=dict)
    agents: Mapping[str, AgentLimit] = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    company_live: int = 0
    company_limit: int | None = None
