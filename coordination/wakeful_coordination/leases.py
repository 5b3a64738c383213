"""Leases: brief, exclusive custody of instances, held by one thread of one process.

Order of acquisition: ascending instance ids, always; a thread that holds ``b`` may not ask for ``a``.
A nested call of the same thread reuses custody. Nobody is overtaken: a lease is a kernel lock that only
its owner's release or death frees, and one found with an unfinished transaction is given only when the
session that began it is proven dead and the transaction has been brought to its end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import get_ident
from types import TracebackType

from wakeful_coordination import claim
from wakeful_coordination.contention import Contention
from wakeful_coordination.errors import InDoubt, LeaseMisused, LeaseOrder
from wakeful_coordination.home import Home
from wakeful_coordination.lease import Lease, Ledger, in_event_loop
from wakeful_coordination.lease_file import LeaseFiles
from wakeful_coordination.root import Root
from wakeful_coordination.session import Alive, Dead

_EXIT_POLL = 0.001
#: A chain of unfinished transactions longer than this is no accident.
_RESOLUTIONS = 16


class _Unfinished(Exception):
    """Unwinds one acquisition so that it can start over."""

    def __init__(self, instance: str) -> None:
        super().__init__(instance)
        self.instance = instance


class Custody:
    """The context of several leases, or of one with a deadline; enter it in the thread that does the work."""

    __slots__ = ("_instances", "_leases", "_resolving", "_timeout")

    def __init__(self, leases: Leases, instances: tuple[str, ...], timeout: float | None, resolving: bool) -> None:
        self._leases = leases
        self._instances = instances
        self._timeout = timeout
        self._resolving = resolving

    def __enter__(self) -> Custody:
        self._leases.acquire(self._instances, self._timeout, self._resolving)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leases.release(self._instances)


#: Custody, to be entered with ``with`` in the thread that does the work.
Held = Lease | Custody


class Leases:
    """The leases of a root. ``keep`` bounds the lease files kept open (each one descriptor).

    ``resolve`` brings the unfinished transaction of an instance to its end. ``exit_grace`` is how many seconds
    an owner that has lost its lease may take to finish dying before it counts as alive. ``courtesy`` is for how
    many seconds a process that had to wait for a lease, and took it some times since, leaves it to others;
    ``pause`` waits.
    """

    def __init__(
        self,
        root: Root,
        resolve: Callable[[str], None],
        *,
        keep: int = 512,
        exit_grace: float = 1.0,
        courtesy: float = 0.0002,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._root = root
        self._resolve = resolve
        self._exit_grace = exit_grace
        self._ledger = Ledger(root, self.acquire, self.release)
        self.files = LeaseFiles(root, self._ledger, keep)
        self.contention = Contention(root, self.files, courtesy, pause)
        #: The open lease files by instance: each is its own context, the cheapest there is.
        self.open = self.files.open

    def hold(self, *instances: str, timeout: float | None = None, resolving: bool = False) -> Held:
        """Return the custody of ``instances`` (any order; taken ascending), to be entered with ``with``.

        Entered, it waits as long as it takes, or ``timeout`` seconds and then raises LeaseBusy. Raises LeaseOrder,
        LeaseMisused in a running event loop, InDoubt, NotFound, UnsafePath. ``resolving`` is for the
        resolver itself: it takes unfinished transactions over from the dead, and takes ids out of order if
        nobody has them.
        """
        if len(instances) != 1:
            instances = tuple(sorted(set(instances)))
        elif timeout is None and not resolving:
            return self.open.get(instances[0]) or self.files.get(instances[0])
        return Custody(self, instances, timeout, resolving)

    def acquire(self, instances: tuple[str, ...], timeout: float | None, resolving: bool) -> None:
        """Take all of ``instances`` (ascending), or none; ``timeout`` in seconds. Raises what :meth:`hold` says."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for _ in range(_RESOLUTIONS):
            done = 0
            try:
                done = self._grab(instances)
                for instance in instances[done:]:
                    self._take(instance, deadline, resolving)
                    done += 1
                return
            except _Unfinished as found:
                # Its transaction may span instances below: let go of ours before taking those.
                self.release(instances[:done])
                self._resolve(found.instance)
            except BaseException:
                self.release(instances[:done])
                raise
        raise InDoubt(
            f"unfinished transactions keep coming back under {', '.join(instances)}",
            hint="look at `wakeful coord show`; somebody writes into the root without its leases",
        )

    def _grab(self, instances: tuple[str, ...]) -> int:
        """Take as many as are open and free, from the first on; return how many."""
        me = get_ident()
        below = self._ledger.held.get(me)
        if self._root.refusal is not None or (below is not None and instances <= (below.instance,)) or in_event_loop():
            return 0
        done = 0
        try:
            for instance in instances:
                lease = self.open.get(instance)
                if lease is None or lease.waited or not lease.grab(me, below):
                    break
                below = lease
                done += 1
        except BaseException:
            self.release(instances[:done])
            raise
        return done

    def _take(self, instance: str, deadline: float | None, resolving: bool) -> None:
        # First of all: after a fork the child's thread bears the number of the one that held leases.
        if self._root.refusal is not None:
            raise self._root.refusal()
        me = get_ident()
        lease = self.open.get(instance)
        if lease is not None and lease.owner == me:
            lease.depth += 1
            return
        if in_event_loop():
            raise LeaseMisused(
                "a lease may not be taken in a running event loop", hint="call from a thread (asyncio.to_thread)"
            )
        below = self._ledger.held.get(me)
        impatient = False
        if below is not None and instance < below.instance:
            if not resolving:
                raise LeaseOrder(
                    f"{instance} asked for while {below.instance} is held",
                    hint="take all leases of an operation at once",
                )
            impatient = True
        while True:
            if lease is None:
                lease = self.files.get(instance)
            aside = lease.waited and not impatient and self.contention.step_aside(lease, deadline)
            if lease.grab(me, below):
                if aside:
                    lease.waited = False  # nobody came
                return
            if not lease.mutex.acquire(False):
                self.contention.await_thread(lease, deadline, impatient)
            # Between the look-up and the mutex the descriptor may have been closed to make room.
            if lease.fd >= 0:
                break
            lease.mutex.release()
            lease = None
        try:
            self.contention.await_process(lease, deadline, impatient)
            if self._ledger.seek(lease.fd, 0, os.SEEK_END):
                self._require_dead(lease, resolving)
        except BaseException:
            # An interrupt may come when the lock has just been granted.
            lease.refuse()
            raise
        lease.take(me, below)

    def release(self, instances: tuple[str, ...]) -> None:
        """Give one level of custody back, in the thread that took it; raises LeaseMisused in another."""
        me = get_ident()
        for instance in reversed(instances):
            lease = self.open.get(instance)
            if lease is not None and lease.owner == me:
                lease.give_back(me)
            elif self._root.refusal is None:
                raise LeaseMisused(f"{instance} is not held by this thread")
            # After a fork or a close nothing is held: there is nothing to give back.

    def directory(self, instance: str) -> Home:
        """Return the directory of a held instance, to be entered for an authority write.

        Raises LeaseMisused where this thread does not hold it, and, when entered, InDoubt where the lease file it
        holds is no longer the one that stands there.
        """
        return Home(self._root, self._mine(instance))

    def file(self, instance: str) -> tuple[int, int]:
        """Return descriptor and inode of a held instance's lease file, for its claim; raises LeaseMisused."""
        lease = self._mine(instance)
        return lease.fd, lease.inode

    def _mine(self, instance: str) -> Lease:
        lease = self.open.get(instance)
        if lease is None or lease.owner != get_ident():
            self._root.usable()
            raise LeaseMisused(f"{instance} is not held by this thread", hint="write under its lease")
        return lease

    def _require_dead(self, lease: Lease, resolving: bool) -> None:
        """Refuse a lease whose unfinished transaction has a living or doubtful owner; else ask for its end.

        The resolver itself keeps it: it is the one who was asked.
        """
        found = claim.claimant(self._root, lease.fd)
        until = time.monotonic() + self._exit_grace
        while isinstance(found, Alive) and time.monotonic() < until:
            # A dying process may lose its lease an instant before its session: the kernel closes one file at a time.
            time.sleep(_EXIT_POLL)
            found = claim.claimant(self._root, lease.fd)
        if found is None or isinstance(found, Dead):
            if resolving:
                return
            raise _Unfinished(lease.instance)
        about = getattr(found, "who", None) or getattr(found, "reason", "")
        raise InDoubt(
            f"{lease.instance} has an unfinished transaction whose owner is not proven dead: {about}",
            hint="let it finish or end it; `wakeful coord doctor` shows it, `recover --dead SESSION` overrides",
        )
