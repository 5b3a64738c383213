"""Ends on their way past the attendants: each is asked, in a thread of its own, before anything is written.

For the dispatcher's thread, all but the calls of attendants. Without attendants nothing is asked and no thread runs.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from wakeful import post_mortem
from wakeful.attendants import Answer, Attendant, NotYet
from wakeful.connections import Session
from wakeful.database_errors import is_transient
from wakeful.executions import RunKey, Status
from wakeful.retries import Retries
from wakeful.terminals import Death, Ending

log = logging.getLogger("wakeful.attendance")

PATIENCE = 3  # refusals in a row after which the end is written all the same, as one that could not be recorded
PARTING = 1.0  # seconds that a stop waits for the attendant at work


@dataclass(frozen=True, slots=True)
class Parts:
    """What is to be written of one execution, and the status that it came from."""

    status: Status
    endings: tuple[Ending, ...] = ()
    deaths: tuple[Death, ...] = ()

    @property
    def outcome(self) -> tuple[str, str]:
        """How the execution ended, in a word, and its reason."""
        for ending in self.endings:
            return ending.conclusion.state, ending.conclusion.reason
        return "died", "it came to no end of its own"


@dataclass(slots=True)
class _Asked:
    parts: Parts
    refusals: int = 0
    answer: Answer | None = None


class Attendance:
    """Asks every attendant about every end, and remembers the answers until the end is written.

    Arguments:
        session: what attendants are lent for their own work.
        answered: called, in the attendants' thread, with each key and answer.
    """

    def __init__(
        self,
        attendants: Sequence[Attendant],
        session: Session,
        retries: Retries,
        *,
        answered: Callable[[RunKey, Answer], None],
    ) -> None:
        self._attendants = attendants
        self._session = session
        self._retries = retries
        self._answered = answered
        self._asked: dict[RunKey, _Asked] = {}
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wakeful attendance", daemon=True)

    def __contains__(self, key: RunKey) -> bool:
        return key in self._asked

    def start(self) -> None:
        """Start the attendants, if there are any."""
        if self._attendants:
            self._thread.start()

    def stop(self) -> None:
        """End after the call in progress; one that takes long is left behind."""
        self._stopping.set()
        self._orders.put(None)
        if self._thread.is_alive():
            self._thread.join(PARTING)

    def began(self, key: RunKey) -> None:
        """An execution runs here."""
        self._tell(lambda one: one.began(key))

    def ask(self, key: RunKey, parts: Parts) -> bool:
        """Ask about an end, unless that has been done; False if it is none, or nobody attends: write it now."""
        if not self._attendants or not (parts.endings or parts.deaths):
            return False
        if key not in self._asked:
            self._asked[key] = _Asked(parts)
            self.ask_again(key)
        return True

    def ask_again(self, key: RunKey) -> None:
        """Ask about an end whose answer was to wait."""
        asked = self._asked.get(key)
        if asked is not None and asked.answer is None:
            outcome, reason = asked.parts.outcome
            self._orders.put(lambda: self._answered(key, self._answer(key, outcome, reason)))

    def take(self, key: RunKey, answer: Answer) -> Status | None:
        """Take an answer; return the status that is to be written now, None if it is to be asked again."""
        asked = self._asked.get(key)
        if asked is None:
            return None
        asked.refusals += bool(answer.again) and not answer.transient
        if answer.again is not None and asked.refusals < PATIENCE:
            pause = self._retries.failed(("attend", key))
            log.warning("the end of %s waits, asking again in %.1f s: %s", key.cookie, pause, answer.again)
            return None
        self._retries.succeeded(("attend", key))
        asked.answer = answer
        return asked.parts.status

    def attended(self, key: RunKey) -> Parts:
        """Return what is to be written of an execution by now: nothing until its end has passed."""
        asked = self._asked[key]
        if asked.answer is None:
            return Parts(asked.parts.status)
        failure = asked.answer.failure or asked.answer.again
        if failure is None:
            return asked.parts
        endings = tuple(post_mortem.unrecorded(ending, failure) for ending in asked.parts.endings)
        return replace(asked.parts, endings=endings)

    def drop(self, key: RunKey) -> None:
        """Forget what was asked; a later answer counts for nothing, or for what is asked then."""
        self._asked.pop(key, None)
        self._retries.succeeded(("attend", key))

    def written(self, key: RunKey, states: Sequence[str]) -> None:
        """An execution left the watch; ``states`` are those that its run's row has taken over from it, if any."""
        asked = self._asked.pop(key, None)
        self._retries.succeeded(("attend", key))
        if asked is not None:
            landed = bool(states) and asked.parts.outcome[0] in (*states, "died")
            self._tell(lambda one: one.ended(key, landed=landed))

    # ── in the attendants' thread ───────────────────────────────────────────────────────────────────────

    def _tell(self, what: Callable[[Attendant], None]) -> None:
        if self._attendants:
            self._orders.put(lambda: self._each(what))

    def _run(self) -> None:
        self._each(lambda one: one.start(self._session.autocommit))
        while (order := self._orders.get()) is not None and not self._stopping.is_set():
            order()
        self._each(lambda one: one.stop())
        self._session.close()

    def _each(self, what: Callable[[Attendant], None]) -> None:
        for attendant in self._attendants:
            try:
                what(attendant)
            except (Exception, SystemExit) as error:
                log.warning("attendant %s: %s: %s", attendant.name, type(error).__name__, error)

    def _answer(self, key: RunKey, outcome: str, reason: str) -> Answer:
        failures = []
        for attendant in self._attendants:
            try:
                failure = attendant.ending(key, outcome, reason)
            except (Exception, SystemExit) as error:
                transient = isinstance(error, NotYet) or is_transient(error)
                return Answer(again=f"{attendant.name}: {error}", transient=transient)
            if failure is not None:
                log.error("the end of %s is not recorded by %s: %s", key.cookie, attendant.name, failure)
                failures.append(failure)
        return Answer(failure="; ".join(failures) or None)
