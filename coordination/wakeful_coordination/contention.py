"""What a lease does when somebody else has it: try, queue in the kernel, give up at a deadline, step aside.

Polling starves; the kernel's queue is served in order, but whoever runs may pass those it has only just woken.
So a process that had to wait takes the lease a few times more, then leaves it to the others for a moment. Stepping
aside each time would be fairer still, and pay for each turn with the time that a process takes to wake.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from wakeful_coordination import layout
from wakeful_coordination.errors import LeaseBusy
from wakeful_coordination.lease import Lease
from wakeful_coordination.lease_file import LeaseFiles
from wakeful_coordination.machine import lock_owners
from wakeful_coordination.root import Root
from wakeful_coordination.waiter import Waiter

_TRIES = 5
_TURNS = 8


class Contention:
    """Waits for the leases of a root. ``courtesy`` (seconds) and ``pause`` are told at :class:`Leases`."""

    def __init__(self, root: Root, files: LeaseFiles, courtesy: float, pause: Callable[[float], None]) -> None:
        self._root = root
        self._files = files
        self.courtesy = courtesy
        self.pause = pause
        self.turns = _TURNS

    def step_aside(self, lease: Lease, deadline: float | None) -> bool:
        """Leave a lease, if its turns are over, to those who wait and need a moment to wake; say whether it did."""
        if lease.turns:
            lease.turns -= 1
            return False
        until = lease.given_back + self.courtesy
        left = (until if deadline is None else min(until, deadline)) - time.monotonic()
        if left > 0:
            self.pause(left)
        return True

    def await_thread(self, lease: Lease, deadline: float | None, impatient: bool) -> None:
        """Take the mutex of a lease that another thread has, or raise LeaseBusy."""
        if impatient:
            raise self._busy(lease)
        if deadline is None:
            lease.mutex.acquire()
        elif not lease.mutex.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self._busy(lease)

    def await_process(self, lease: Lease, deadline: float | None, impatient: bool) -> None:
        """Take the lock of a lease whose mutex is held, or raise LeaseBusy."""
        # Whoever had to wait before queues at once: more tries would only pass those who wait now.
        for _ in range(1 if lease.waited else _TRIES - 1):
            os.sched_yield()
            if self._root.files.try_lock(lease.fd):
                return
        # No time left is no reason to queue: a waiter left behind would be granted the lease later, for an instant.
        if impatient or (deadline is not None and deadline <= time.monotonic()):
            raise self._busy(lease)
        lease.waited = True
        lease.turns = self.turns
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
