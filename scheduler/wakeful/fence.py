"""The generation fence: a writer proves, inside its own transaction, that its run and generation are current.

A *walk* (the process that drives a run) captures a :class:`Claim` when it takes the run and works inside
:func:`walking`. Everything it writes goes through :func:`enter` or :func:`commit_under_claim`. Whoever renews
the authority bumps the generation by an UPDATE: it waits for a writer that is past its fence, and refuses
every later one. A context variable reaches neither a new thread nor a child process: :func:`handed_over`
gives the walk to a thread; a child is given the claim's values and walks by itself.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar
from uuid import UUID

from psycopg import Connection
from psycopg.pq import TransactionStatus

from wakeful import store
from wakeful.errors import InvalidInput, RunSuperseded
from wakeful.executions import RunKey

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Claim:
    """The authority over one run, as captured when the run was claimed."""

    company: str
    run: UUID
    generation: int


class NoClaim:
    """The type of :data:`NO_CLAIM`."""

    def __repr__(self) -> str:
        return "NO_CLAIM"


NO_CLAIM: Final = NoClaim()
"""Says explicitly that a fenced function is called by a plain host, on behalf of no run."""


class _Walk:
    """A claim at work, with the connection of its one fenced transaction; shared by the threads it was given to."""

    __slots__ = ("claim", "conn", "lock")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.conn: Connection[Any] | None = None
        self.lock = threading.Lock()

    def takes(self, conn: Connection[Any]) -> None:
        """Remember where the fenced transaction is open. Raises InvalidInput if it is open elsewhere."""
        with self.lock:
            other = self.conn
            if other is not None and other is not conn and _in_transaction(other):
                raise InvalidInput(
                    f"run {self.claim.run} has a fenced transaction open on another connection",
                    hint="end that transaction first: one walk, one fenced transaction at a time",
                )
            self.conn = conn


_walk: contextvars.ContextVar[_Walk | None] = contextvars.ContextVar("wakeful_walk", default=None)


@contextlib.contextmanager
def walking(claim: Claim) -> Iterator[Claim]:
    """Carry a claim through the block; leaving it, however that happens, restores the claim around it."""
    token = _walk.set(_Walk(claim))
    try:
        yield claim
    finally:
        _walk.reset(token)


def held(company: str, run: UUID) -> Claim | None:
    """Return the claim that this walk carries for a run; None if it carries none, or another run's."""
    walk = _walk.get()
    if walk is None or (walk.claim.company, walk.claim.run) != (company, run):
        return None
    return walk.claim


def handed_over(function: Callable[P, T]) -> Callable[P, T]:
    """Return ``function`` bound to this walk (or to none), for another thread to call."""
    walk = _walk.get()

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        token = _walk.set(walk)
        try:
            return function(*args, **kwargs)
        finally:
            _walk.reset(token)

    return call


def enter(conn: Connection[Any], claim: Claim | NoClaim) -> None:
    """Take the fence: to be the first lock of the writer's transaction, which holds it to its end.

    Arguments:
        conn: inside a READ COMMITTED transaction.
        claim: what the caller was given, or :data:`NO_CLAIM`, which fences nothing and says so.

    Raises:
        RunSuperseded: the run is at another generation, or has ended. The transaction is to be rolled back.
        InvalidInput: ``conn`` is in no transaction, or in one at another isolation level; or this walk has a
            fenced transaction open on another connection.
    """
    if isinstance(claim, NoClaim):
        return
    if not isinstance(claim, Claim):
        raise InvalidInput(f"{claim!r} is no claim", hint="pass the run's Claim, or NO_CLAIM for a plain host call")
    walk = _walk.get()
    if walk is not None and walk.claim == claim:
        walk.takes(conn)
    if not enter_each(conn, claim.company, [claim]):
        raise RunSuperseded(claim.company, claim.run, claim.generation)


def enter_each(conn: Connection[Any], company: str, claims: Sequence[Claim | RunKey]) -> Mapping[UUID, Any]:
    """Take the fences of several runs of one company; return the rows of those that are current, by run.

    For the funnel of terminals, which refuses the others' reports and keeps them.

    Raises:
        InvalidInput: as :func:`enter`.
    """
    if conn.autocommit and not _in_transaction(conn):
        raise InvalidInput(
            "a fence holds only inside a transaction", hint="open one around the fence and the writes behind it"
        )
    names = {"runs": [claim.run for claim in claims], "generations": [claim.generation for claim in claims]}
    rows = {row.id: row for row in store.run(conn, "fence.enter", {"company": company, **names})}
    for row in rows.values():
        if row.isolation != "read committed":
            raise InvalidInput(
                f"a fence cannot hold at isolation level {row.isolation}: what was read may be older than the lock",
                hint="SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            )
    return rows


@contextlib.contextmanager
def commit_under_claim(conn: Connection[Any], claim: Claim | NoClaim) -> Iterator[Connection[Any]]:
    """Open a transaction, or join the one that is open, enter the fence, run the block, commit what was opened.

    A joined transaction is the caller's to commit, and to roll back when this raises.

    Raises:
        RunSuperseded, InvalidInput: as :func:`enter`; nothing of the block was run.
    """
    if _in_transaction(conn):
        enter(conn, claim)
        yield conn
        return
    with conn.transaction():
        store.run(conn, "fence.read_committed", prepare=False)
        enter(conn, claim)
        yield conn


def _in_transaction(conn: Connection[Any]) -> bool:
    if conn.closed:
        return False
    return conn.info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)
