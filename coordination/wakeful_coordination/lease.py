"""One instance's lease: its open file, and the custody of it. The hot path of this package.

An open lease is its own context, so the common case makes no object, passes few frames, and asks the kernel
for a lock and a length. Everything unusual goes through :class:`wakeful_coordination.leases.Leases`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from os import SEEK_END
from threading import Lock, get_ident
from types import TracebackType

from wakeful_coordination.root import Root

_ASYNCIO = "asyncio.events"


class Ledger:
    """Who holds what in this process; one for each open root.

    ``acquire`` and ``release`` are the ways of :class:`wakeful_coordination.leases.Leases` for everything
    unusual. ``held`` names the lease that each thread took last, which leads to those it took before.
    """

    __slots__ = ("acquire", "held", "release", "root", "seek", "try_lock", "unlock")

    def __init__(
        self,
        root: Root,
        acquire: Callable[[tuple[str, ...], float | None, bool], None],
        release: Callable[[tuple[str, ...]], None],
    ) -> None:
        self.root = root
        self.acquire = acquire
        self.release = release
        self.held: dict[int, Lease] = {}
        self.try_lock = root.files.try_lock
        self.unlock = root.files.unlock
        self.seek = root.files.seek


class Lease:
    """An open lease file, and its custody: enter it in the thread that does the work.

    ``owner`` is the thread that holds it, ``mutex`` keeps threads apart: the kernel's lock belongs to the open
    file, which they share. ``below`` is the lease its owner took before. ``waited`` says that this process had
    to wait for it not long ago, ``turns`` how often it may take it before it steps aside, ``given_back`` when it
    last gave it back (monotonic seconds).
    """

    __slots__ = (
        "below",
        "depth",
        "fd",
        "given_back",
        "inode",
        "instance",
        "ledger",
        "mutex",
        "owner",
        "place",
        "turns",
        "waited",
    )

    def __init__(self, instance: str, place: str, fd: int, inode: int, ledger: Ledger) -> None:
        self.instance = instance
        self.place = place
        self.fd = fd
        self.inode = inode
        self.ledger = ledger
        self.mutex = Lock()
        self.owner = 0
        self.depth = 0
        self.below: Lease | None = None
        self.waited = False
        self.turns = 0
        self.given_back = 0.0

    def __enter__(self) -> Lease:
        ledger = self.ledger
        # First of all: after a fork the child's thread bears the number of the one that held leases.
        if ledger.root.refusal is None:
            me = get_ident()
            if self.owner == me:
                self.depth += 1
                return self
            held = ledger.held
            if (
                me not in held
                and not self.waited
                and (_ASYNCIO not in sys.modules or not in_event_loop())
                and self.mutex.acquire(False)
            ):
                # As grab does, which costs a frame more.
                fd = self.fd
                try_lock, seek = ledger.try_lock, ledger.seek
                try:
                    if fd >= 0 and try_lock(fd) and not seek(fd, 0, SEEK_END):
                        self.owner = me
                        self.depth = 1
                        held[me] = self
                        return self
                except BaseException:
                    self.refuse()
                    raise
                self.refuse()
        ledger.acquire((self.instance,), None, False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        me = get_ident()
        if self.owner == me:
            self.give_back(me)
        else:
            # Closed to make room and opened again since, or not held at all.
            self.ledger.release((self.instance,))

    def grab(self, me: int, below: Lease | None) -> bool:
        """Take it for thread ``me``, which took ``below`` last, if it is free and nothing is unfinished there."""
        if not self.mutex.acquire(False):
            return False
        fd = self.fd
        ledger = self.ledger
        try_lock, seek = ledger.try_lock, ledger.seek
        try:
            # It may have been closed to make room since it was looked up.
            if fd >= 0 and try_lock(fd) and not seek(fd, 0, SEEK_END):
                self.owner = me
                self.depth = 1
                self.below = below
                ledger.held[me] = self
                return True
        except BaseException:
            self.refuse()
            raise
        self.refuse()
        return False

    def take(self, me: int, below: Lease | None) -> None:
        """Record that thread ``me``, which took ``below`` last, holds it: its mutex and its lock."""
        self.owner = me
        self.depth = 1
        self.below = below
        self.ledger.held[me] = self

    def refuse(self) -> None:
        """Let go of what was only just taken; to free a lock that was not granted is harmless."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self.ledger.unlock(self.fd)
        self.mutex.release()

    def give_back(self, me: int) -> None:
        """Give one level of thread ``me``'s custody back."""
        if self.depth > 1:
            self.depth -= 1
            return
        ledger = self.ledger
        held = ledger.held
        self.owner = 0
        if held[me] is not self:
            self._step_out(held[me])
        elif self.below is None:
            del held[me]
        else:
            held[me] = self.below
            self.below = None
        try:
            # A forked child never unlocks: its descriptors are closed, and the parent's lease must stand.
            if ledger.root.fd >= 0:
                unlock = ledger.unlock
                unlock(self.fd)
            if self.waited:
                self.given_back = time.monotonic()
        finally:
            self.mutex.release()

    def _step_out(self, above: Lease) -> None:
        """Leave the chain of what this thread holds, from below one that it took later."""
        while above.below is not None and above.below is not self:
            above = above.below
        above.below = self.below
        self.below = None


def in_event_loop() -> bool:
    """Say whether an event loop runs in this thread."""
    # Asyncio's own accessor, if it is loaded: the public one answers "none" by a costly exception.
    running = getattr(sys.modules.get(_ASYNCIO), "_get_running_loop", None)
    return running is not None and running() is not None
