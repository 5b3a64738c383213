"""From the outboxes of this host into the database: one pass over a root, or everything of one instance.

What the database refuses stays pending, with a note beside it that says why, and is not tried again until somebody
asks: a scheduler's start, or ``wakeful coord relay``.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from wakeful import producers
from wakeful_coordination import Committed, CoordinationError
from wakeful_coordination.errors import RootPoisoned
from wakeful_plugins.event_delivery import EventRefused, deliver

if TYPE_CHECKING:
    from psycopg import Connection

    from wakeful.attendants import Lend
    from wakeful_coordination import Coordination, Quarantined
    from wakeful_coordination.relay import Relayed

_log = logging.getLogger(__name__)

LEASE = 1.0  # seconds that one event waits for the leases of its instances; then the next one's turn has come


def relay_once(root: Coordination, conn: Connection[Any], company: str, *, late: bool = False) -> Relayed:
    """Settle everything pending in a company's root and deliver what the database takes: one pass.

    Arguments:
        root: the company's root on this host.
        conn: an autocommit connection whose tenant is ``company``.
        late: also record what was spent under a generation that is over; see :func:`deliver`.

    Raises:
        DatabaseUnavailable: no answer; what was not delivered is still pending.
        CoordinationError: the root cannot be used any more.
    """

    def told(outcome: Committed | Quarantined) -> None:
        if isinstance(outcome, Committed):  # what is in quarantine stays there, for people
            txid = outcome.transaction.txid
            try:
                deliver(conn, company, txid, outcome.transaction.event, late=late)
            except EventRefused as refusal:
                root.undelivered.note(txid, refusal.message, refused=True)
                raise

    return root.relay(told)


def drop(
    root: Coordination, conn: Connection[Any], company: str, txid: str, reason: str, *, actor: str | None
) -> str | None:
    """Let a pending event go, on an operator's word, which the audit keeps. Return why it was set aside, if it was.

    Raises:
        NotFound, InvalidRecord: no such event is pending; or nobody can read it, and it is to be set aside.
        LeaseBusy: somebody is at work on its instance.
    """
    event = root.outbox.read(txid).event
    outcome = root.authority.settle(txid, timeout=LEASE)
    if not isinstance(outcome, Committed):
        return outcome.reason
    said = producers.drop_event(company, txid, reason, kind=event.type, instance=event.instance, actor=actor)
    producers.run(conn, said)
    root.authority.forget(txid)
    return None


class EventRelay:
    """Delivers events of this host's roots, each by one thread at a time. Thread-safe.

    Arguments:
        lend: the connection; not asked for while there is nothing to deliver.
    """

    def __init__(self, lend: Lend) -> None:
        self._lend = lend
        self._delivering = threading.Lock()
        self._refused: dict[str, set[str]] = {}  # by company: what is not tried again unasked

    def everything(self, root: Coordination, company: str) -> None:
        """Deliver what is pending in a company's root, but for what was refused before.

        Raises:
            DatabaseUnavailable: no answer; what was not delivered is still pending.
            RootPoisoned: the root cannot be used any more.
        """
        pending = root.outbox.pending()
        refused = self._refused.get(company, set()).intersection(pending)
        self._refused[company] = refused
        for txid in pending:
            if txid not in refused:
                self._one(root, company, txid)

    def of_instance(self, root: Coordination, company: str, instance: str) -> None:
        """Deliver what one instance has said; raises as :meth:`everything`."""
        for txid in root.outbox.pending():
            if txid in self._refused.get(company, ()):
                continue
            try:
                if root.outbox.read(txid).event.instance != instance:
                    continue
            except CoordinationError:  # gone meanwhile, or unreadable: that is the other pass's to say
                continue
            self._one(root, company, txid)

    def _one(self, root: Coordination, company: str, txid: str) -> None:
        def told(outcome: Committed | Quarantined) -> None:
            if not isinstance(outcome, Committed):
                return
            with self._delivering:
                if root.outbox.bytes_of(txid) is None:
                    return  # the other thread was faster
                with self._lend() as conn:
                    deliver(conn, company, txid, outcome.transaction.event, late=False)

        try:
            root.relay_one(txid, told, timeout=LEASE)
        except RootPoisoned:
            raise
        except CoordinationError as error:
            refused = isinstance(error, EventRefused)
            if refused:
                self._refused.setdefault(company, set()).add(txid)
            note = root.undelivered.read(txid)
            if note is None or note.reason != error.message:
                _log.warning("event %s of %s is not delivered: %s", txid, company, error.message)
                root.undelivered.note(txid, error.message, refused=refused)
