"""Relaying: each pending transaction is settled, told to a consumer outside every lease, and forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wakeful_coordination.authority import Authority, Committed, Settled
from wakeful_coordination.errors import CoordinationError, NotFound, RootPoisoned
from wakeful_coordination.outbox import Outbox

#: Told about each settled transaction; returns when the news is safe elsewhere. May hear one twice after a
#: crash: the transaction's id is the key to recognise it by.
Deliver = Callable[[Settled], None]


@dataclass(frozen=True, slots=True)
class Relayed:
    """One pass: ids delivered as committed or as quarantined, and (id, reason) of those left for the next."""

    committed: tuple[str, ...]
    quarantined: tuple[str, ...]
    left: tuple[tuple[str, str], ...]


class Relay:
    """One pass at a time over outbox/pending."""

    def __init__(self, outbox: Outbox, authority: Authority) -> None:
        self._outbox = outbox
        self._authority = authority

    def one(self, txid: str, deliver: Deliver, *, timeout: float | None = None) -> Settled | None:
        """Settle one pending transaction, deliver it unless it is local, and forget it.

        None where it is no longer pending. What cannot be settled yet, or whose delivery raises, stays pending;
        raises why: LeaseBusy where its leases took longer than ``timeout`` seconds.
        """
        if self._outbox.bytes_of(txid) is None:
            return None  # another relay was faster
        try:
            outcome = self._authority.settle(txid, timeout=timeout)
        except NotFound:
            return None
        if isinstance(outcome, Committed) and outcome.transaction.kind == "local":
            return None
        deliver(outcome)
        self._authority.forget(txid)
        return outcome

    def run(self, deliver: Deliver) -> Relayed:
        """Settle and deliver everything pending now, in ascending order of id.

        A quarantined one is told by the pass that quarantines it; those that something else quarantined are
        found in the survey. A transaction that cannot be settled yet, or whose delivery raises
        CoordinationError, stays pending and hinders no other. Any other exception of ``deliver`` ends the
        pass, as does a poisoned root (RootPoisoned); nothing is lost.
        """
        committed: list[str] = []
        quarantined: list[str] = []
        left: list[tuple[str, str]] = []
        for txid in self._outbox.pending():
            try:
                outcome = self.one(txid, deliver)
            except RootPoisoned:
                raise  # nothing can be settled any more
            except CoordinationError as error:
                left.append((txid, error.message))
            else:
                if outcome is not None:
                    (committed if isinstance(outcome, Committed) else quarantined).append(txid)
        return Relayed(tuple(committed), tuple(quarantined), tuple(left))
