"""Leases: brief, exclusive custody of instances, held by one thread of one process.

Order of acquisition: ascending instance ids, always; a thread that holds ``b`` may not ask for ``a``.
A nested call of the same thread reuses custody. Nobody is overtaken: a lease is a kernel lock that only
its owner's release or death frees, and one found with an unfinished transaction is given only when the
session that began it is proven dead and the transaction has been brought to its end.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import get_ident
from types import TracebackType

from wakeful_coordination import claim, layout
from wakeful_coordination.errors import InDoubt, LeaseBusy, LeaseMisused, LeaseOrder
from wakeful_coordination.lease_file import Lease, LeaseFiles
from wakeful_coordination.machine import lock_owners
from wakeful_coordination.root import Root
from wakeful_coordination.session import Alive, Dead
from wakeful_coordination.waiter import Waiter

_TRIES = 5
_EXIT_POLL = 0.001
#: A chain of unfinished transactions longer than this is no accident.
_RESOLUTIONS = 16


class _Unfinished(Exception):
    """Unwinds one acquisition so that it can start over."""

    def __init__(self, instance: str) -> None:
        super().__init__(instance)
        self.instance = instance


class Custody:
    """The context of held leases; enter it in the thread that does the work."""

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


class Leases:
    """The leases of a root. ``keep`` bounds the lease files kept open (each one descriptor).

    ``resolve`` brings the unfinished transaction of an instance to its end. ``exit_grace`` is how many seconds
    an owner that has lost its lease may take to finish dying before it counts as alive.
    """

    def __init__(self, root: Root, resolve: Callable[[str], None], *, keep: int = 512, exit_grace: float = 1.0) -> None:
        self._root = root
        self._resolve = resolve
        self._exit_grace = exit_grace
        self._files = LeaseFiles(root, keep)
        self._open = self._files.open
        self._held: dict[int, list[str]] = {}
        self._try_lock = root.files.try_lock
        self._unlock = root.files.unlock
        self._size = root.files.size

    def hold(self, *instances: str, timeout: float | None = None, resolving: bool = False) -> Custody:
        """Return the custody of ``instances`` (any order; taken ascending), to be entered with ``with``.

        Waits as long as it takes, or ``timeout`` seconds and then raises LeaseBusy. Raises LeaseOrder,
        LeaseMisused in a running event loop, InDoubt, NotFound, UnsafePath. ``resolving`` is for the
        resolver itself: it takes unfinished transactions over from the dead, and takes ids out of order if
        nobody has them.
        """
        if len(instances) != 1:
            instances = tuple(sorted(set(instances)))
        return Custody(self, instances, timeout, resolving)

    def acquire(self, instances: tuple[str, ...], timeout: float | None, resolving: bool) -> None:
        """Take all of ``instances`` (ascending), or none and raise."""
        if timeout is None and len(instances) == 1:
            # The hot path: one lease leaves nothing to give back when it is refused.
            try:
                self._take(instances[0], None, resolving)
                return
            except _Unfinished as found:
                self._resolve(found.instance)
        deadline = None if timeout is None else time.monotonic() + timeout
        for _ in range(_RESOLUTIONS):
            done = 0
            try:
                for instance in instances:
                    self._take(instance, deadline, resolving)
                    done += 1
            except _Unfinished as found:
                # Its transaction may span instances below: let go of ours before taking those.
                self.release(instances[:done])
                self._resolve(found.instance)
            except BaseException:
                self.release(instances[:done])
                raise
            else:
                return
        raise InDoubt(
            f"unfinished transactions keep coming back under {', '.join(instances)}",
            hint="look at `wakeful coord show`; somebody writes into the root without its leases",
        )

    def _take(self, instance: str, deadline: float | None, resolving: bool) -> None:
        # First of all: after a fork the child's thread bears the number of the one that held leases.
        if self._root.refusal is not None:
            raise self._root.refusal()
        me = get_ident()
        lease = self._open.get(instance)
        if lease is not None and lease.owner == me:
            lease.depth += 1
            return
        asyncio = sys.modules.get("asyncio.events")
        # The running loop's own accessor: the public one answers "none" by a costly exception.
        if asyncio is not None and asyncio._get_running_loop() is not None:
            raise LeaseMisused(
                "a lease may not be taken in a running event loop", hint="call from a thread (asyncio.to_thread)"
            )
        held = self._held.get(me)
        impatient = False
        if held and instance < held[-1]:
            if not resolving:
                raise LeaseOrder(
                    f"{instance} asked for while {held[-1]} is held", hint="take all leases of an operation at once"
                )
            impatient = True
        while True:
            if lease is None:
                lease = self._files.get(instance)
            if not lease.mutex.acquire(False):
                self._await_thread(lease, deadline, impatient)
            # Between the look-up and the mutex the descriptor may have been closed to make room.
            if lease.fd >= 0:
                break
            lease.mutex.release()
            lease = None
        try:
            if not self._try_lock(lease.fd):
                self._await_process(lease, deadline, impatient)
            if self._size(lease.fd):
                self._require_dead(lease, resolving)
        except BaseException:
            # An interrupt may come when the lock has just been granted; to free one that was not is harmless.
            with contextlib.suppress(OSError):
                self._unlock(lease.fd)
            lease.mutex.release()
            raise
        lease.owner = me
        lease.depth = 1
        if held is None:
            self._held[me] = [instance]
        else:
            held.append(instance)

    def release(self, instances: tuple[str, ...]) -> None:
        """Give one level of custody back, in the thread that took it."""
        me = get_ident()
        for instance in reversed(instances):
            lease = self._open.get(instance)
            if lease is None or lease.owner != me:
                if self._root.refusal is not None:
                    continue  # after a fork or a close nothing is held: there is nothing to give back
                raise LeaseMisused(f"{instance} is not held by this thread")
            lease.depth -= 1
            if lease.depth:
                continue
            lease.owner = 0
            held = self._held[me]
            held.remove(instance)
            if not held:
                del self._held[me]
            try:
                # A forked child never unlocks: its descriptors are closed, and the parent's lease must stand.
                if self._root.fd >= 0:
                    self._unlock(lease.fd)
            finally:
                lease.mutex.release()

    @contextlib.contextmanager
    def directory(self, instance: str) -> Iterator[int]:
        """Open the directory of a held instance for an authority write.

        Raises LeaseMisused where this thread does not hold it, InDoubt where the lease file it holds is no
        longer the one that stands there.
        """
        lease = self._mine(instance)
        place = layout.instance_path(instance)
        lost = InDoubt(
            f"{self._root.path}/{place}/lease was deleted or replaced while it was held",
            hint="stop this instance's processes, then `wakeful coord recover`",
        )
        try:
            at = self._root.open_directory(place)
        except FileNotFoundError:
            raise lost from None
        try:
            found = self._root.files.stat("lease", at)
            if found is None or found.inode != lease.inode:
                raise lost
            yield at
        finally:
            self._root.files.close(at)

    def file(self, instance: str) -> tuple[int, int]:
        """Return descriptor and inode of a held instance's lease file, for its claim."""
        lease = self._mine(instance)
        return lease.fd, lease.inode

    def _mine(self, instance: str) -> Lease:
        lease = self._open.get(instance)
        if lease is None or lease.owner != get_ident():
            self._root.usable()
            raise LeaseMisused(f"{instance} is not held by this thread", hint="write under its lease")
        return lease

    def _await_thread(self, lease: Lease, deadline: float | None, impatient: bool) -> None:
        if impatient:
            raise self._busy(lease)
        if deadline is None:
            lease.mutex.acquire()
        elif not lease.mutex.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self._busy(lease)

    def _await_process(self, lease: Lease, deadline: float | None, impatient: bool) -> None:
        for _ in range(_TRIES - 1):
            os.sched_yield()
            if self._try_lock(lease.fd):
                return
        # No time left is no reason to queue: a waiter left behind would be granted the lease later, for an instant.
        if impatient or (deadline is not None and deadline <= time.monotonic()):
            raise self._busy(lease)
        if deadline is None:
            with self._root.explained(lease.instance):
                self._root.files.lock(lease.fd)
            return
        # A descriptor of its own: given up, it may wait on without this process seeming to hold the lease.
        fresh = self._files.fresh(lease.instance)
        if not Waiter(self._root, fresh.fd).grant(max(0.0, deadline - time.monotonic())):
            raise self._busy(lease)
        self._root.close_lock(lease.fd)
        lease.fd, lease.inode = fresh.fd, fresh.inode

    def _busy(self, lease: Lease) -> LeaseBusy:
        try:
            owners = lock_owners(lease.inode, Path("/proc/locks").read_text())
        except OSError:
            owners = []
        who = f" by pid {owners[0]}" if owners else ""
        path = f"{self._root.path}/{layout.instance_path(lease.instance)}/lease"
        return LeaseBusy(f"{path} is held{who}", hint="try again; a living owner is never overtaken")

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
            self._unlock(lease.fd)
            raise _Unfinished(lease.instance)
        self._unlock(lease.fd)
        about = getattr(found, "who", None) or getattr(found, "reason", "")
        raise InDoubt(
            f"{lease.instance} has an unfinished transaction whose owner is not proven dead: {about}",
            hint="let it finish or end it; `wakeful coord doctor` shows it, `recover --dead SESSION` overrides",
        )
