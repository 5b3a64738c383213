"""What attends the runs of a host: told when one begins, asked before its end is written, told when it is.

A plugin keeps files of its own in step with runs that way; what they hold, the core does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from psycopg import Connection

from wakeful.executions import RunKey

#: Lends one autocommit work connection, opened when it is first used: to one thread at a time, outside transactions.
Lend = Callable[[], AbstractContextManager[Connection[Any]]]


class NotYet(Exception):
    """What an attendant raises that will be able to answer later; its text says what is waited for."""


class Attendant(Protocol):
    """Attends every execution that a dispatcher watches (hook ``register_attendants``).

    All methods are called one after another, in one thread of their own: they may block for a moment, and never hold
    up the dispatcher. After a crash any of them may be called again for the same execution.
    """

    name: str

    def start(self, lend: Lend) -> None:
        """Begin to work beside the dispatcher; what takes long belongs into a thread of the attendant's own."""

    def began(self, key: RunKey) -> None:
        """An execution runs here: it was seen to, or adopted. One that ends at once is only asked about."""

    def ending(self, key: RunKey, outcome: str, reason: str) -> str | None:
        """Do what must be done before the end of an execution is written.

        Arguments:
            outcome: the state the run will have (``succeeded``, ``failed``, ``cancelled``), or ``died``: without an
                end of its own, to be tried again.
            reason: ``run.<cause>``; of what ``died``, a few words.

        Returns:
            None, or why its end cannot be recorded here: then success becomes failure.

        Raises:
            NotYet, DatabaseUnavailable: asked again, with growing pauses, until there is an answer.
            Exception: asked again a few times; then the error is the reason.
        """

    def ended(self, key: RunKey, *, landed: bool) -> None:
        """The end is in the database (``landed``), or was refused, or the run went back to its queue."""

    def stop(self) -> None:
        """End soon; nothing is asked any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the attendants said: all done, why the end is unrecorded, or (``again``) why to ask once more."""

    failure: str | None = None
    again: str | None = None
    transient: bool = False
