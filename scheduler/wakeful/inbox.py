"""What other threads tell a dispatcher, until its own thread takes it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime

from wakeful.attendants import Answer
from wakeful.executions import RunKey, Status
from wakeful.identity import Identity
from wakeful.outcomes import Gate
from wakeful.signals import Signal


@dataclass(slots=True)
class News:
    """What was told since the last turn.

    Arguments:
        companies: whose queues to look at, with the gates that may have opened.
        everything: look at every row and file of this host.
        stops: a stop row was written.
        changed: an executor has news.
        examined: what examinations found out.
        attended: what attendants said of ends.
        expiry: when the earliest claim of another scheduler will be overdue.
    """

    companies: dict[str, set[Gate]] = field(default_factory=dict)
    everything: bool = False
    stops: bool = False
    changed: bool = False
    examined: list[tuple[RunKey, Status]] = field(default_factory=list)
    attended: list[tuple[RunKey, Answer]] = field(default_factory=list)
    expiry: datetime | None = None

    def any(self) -> bool:
        """Whether there is anything to do at all."""
        news = (self.companies, self.everything, self.stops, self.changed, self.examined, self.attended, self.expiry)
        return any(map(bool, news))


class Inbox:
    """Thread-safe; ``condition`` is notified whenever something was told.

    Attributes:
        listening: whether signals ever arrived; before that, nothing is looked at.
        owner: whether this process holds the owners' lock.
        admitting: whether settings allow claims.
        buried: whether somebody declared this host dead; it claims nothing until a scheduler registers it again.
        closing: whether claims are over for good.
        stopping: whether the dispatcher is to end.
    """

    def __init__(self, identity: Identity) -> None:
        self.condition = threading.Condition()
        self.listening = self.owner = self.closing = self.stopping = False
        self.admitting = True
        self.buried = False
        self._identity = identity
        self._news = News()

    def waits(self) -> bool:
        """Whether news wait to be taken. To be called under the condition."""
        return self._news.any()

    def take(self) -> News:
        """Take all news. To be called under the condition."""
        news, self._news = self._news, News()
        return news

    def connected(self, *, owner: bool) -> None:
        """Signals arrive from now on; what was committed before must be read."""
        with self.condition:
            self.listening, self.owner = True, owner
            self._news.everything = True
            self.condition.notify_all()

    def disconnected(self) -> None:
        """Deaf, and no owner; everything is read when signals arrive again."""
        with self.condition:
            self.owner = False

    def admit(self, *, admitting: bool) -> None:
        """Settings allow claims, or not; allowing them again means to look at every queue."""
        with self.condition:
            self._news.everything = self._news.everything or (admitting and not self.admitting)
            self.admitting = admitting
            self.condition.notify_all()

    @property
    def claiming(self) -> bool:
        """Whether runs may be claimed."""
        return self.admitting and not self.buried and not self.closing

    def close(self) -> None:
        """Claim nothing more, whatever the settings say."""
        with self.condition:
            self.closing = True

    def stop(self) -> None:
        """End after the turn in progress."""
        with self.condition:
            self.closing = self.stopping = True
            self.condition.notify_all()

    def look_at_everything(self) -> None:
        """Something went wrong: rows and files say what is true."""
        with self.condition:
            self._news.everything = self._news.changed = True

    def signalled(self, signal: Signal) -> None:
        """Take a signal of topic dispatch, renewal or settings."""
        with self.condition:
            if signal.topic == "renewal":
                self._renewal(signal)
            elif signal.topic == "settings":
                self._news.everything = True
            elif signal.run is not None:
                self._news.stops = self._news.stops or signal.host in (None, self._identity.host)
            elif signal.company is not None:
                gates = self._news.companies.setdefault(signal.company, set())
                if signal.gate is not None and signal.key is not None:
                    gates.add((signal.gate, signal.key))
            else:
                self._news.everything = True
            self.condition.notify_all()

    def poke(self, company: str) -> None:
        """Runs of a company were just queued by this very process: no need to wait for their signal."""
        with self.condition:
            self._news.companies.setdefault(company, set())
            self.condition.notify_all()

    def changed(self) -> None:
        """Some executor has news."""
        with self.condition:
            self._news.changed = True
            self.condition.notify_all()

    def examined(self, key: RunKey, status: Status) -> None:
        """An examination has its answer."""
        with self.condition:
            self._news.examined.append((key, status))
            self.condition.notify_all()

    def attended(self, key: RunKey, answer: Answer) -> None:
        """The attendants have answered."""
        with self.condition:
            self._news.attended.append((key, answer))
            self.condition.notify_all()

    def _renewal(self, signal: Signal) -> None:
        # Its own claims need no look: it would renew them. Others' do, if their files are here or it is an owner.
        if signal.due is None or signal.owner == self._identity.claimer:
            return
        if self.owner or signal.host == self._identity.host or self._identity.reaches(signal.owner):
            earlier = self._news.expiry
            self._news.expiry = signal.due if earlier is None else min(earlier, signal.due)
