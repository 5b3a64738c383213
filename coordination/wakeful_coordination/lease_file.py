"""Lease files: one empty file an instance, never unlinked, kept open between leases.

Each has two names. A lease that was deleted or replaced shows by its count of names, at no extra call.
"""

from __future__ import annotations

from wakeful_coordination import layout
from wakeful_coordination.errors import CoordinationError, InDoubt, NotFound, UnsafePath, explain
from wakeful_coordination.lease import Lease, Ledger
from wakeful_coordination.root import Root

_STOPPED = "stop this instance's processes, then `wakeful coord repair INSTANCE`"


class LeaseFiles:
    """The open lease files of a root, at most ``keep`` besides those in use."""

    def __init__(self, root: Root, ledger: Ledger, keep: int) -> None:
        self._root = root
        self._ledger = ledger
        self._keep = keep
        #: By instance; read without the guard on the hot path.
        self.open: dict[str, Lease] = {}

    def get(self, instance: str) -> Lease:
        """Return the open lease file of an instance, opening it if need be."""
        root = self._root
        if root.refusal is not None:
            raise root.refusal()
        with root.guard:
            known = self.open.get(instance)
            if known is not None:
                return known
            lease = self._opened(instance)
            if len(self.open) >= self._keep:
                self._make_room()
            self.open[instance] = lease
            return lease

    def fresh(self, instance: str) -> Lease:
        """Open an instance's lease file anew; raises NotFound, UnsafePath, InDoubt."""
        with self._root.guard:
            return self._opened(instance)

    def _opened(self, instance: str) -> Lease:
        root = self._root
        place = layout.instance_path(layout.instance_id(instance))
        path = f"{place}/lease"
        try:
            # Under the guard from its first instant: a forked child must know it.
            fd = root.files.open_file(path, root.fd, write=True)
            root.locking.add(fd)
        except FileNotFoundError:
            raise self._missing(instance) from None
        except OSError as error:
            raise explain(error, f"{root.path}/{path}") from error
        found = root.files.status(fd)
        if found.kind == "file" and found.uid == root.uid and found.links > 1:
            return Lease(instance, place, fd, found.inode, self._ledger)
        root.close_lock(fd)
        if found.kind != "file" or found.uid != root.uid:
            raise UnsafePath(f"{root.path}/{path} is a {found.kind} of user {found.uid}", hint="move it away")
        raise InDoubt(
            f"{root.path}/{path} was deleted or replaced: another process may hold the old one", hint=_STOPPED
        )

    def _missing(self, instance: str) -> CoordinationError:
        try:
            with self._root.directory(layout.instance_path(instance)):
                return InDoubt(f"the lease of {instance} was deleted: another process may hold it still", hint=_STOPPED)
        except FileNotFoundError:
            return NotFound(f"there is no instance {instance}", hint="open a generation first")

    def _make_room(self) -> None:
        # The oldest opened goes first; one in use stays, however many there are.
        for instance, lease in self.open.items():
            mutex = lease.mutex
            if mutex.acquire(False):
                fd, lease.fd = lease.fd, -1
                del self.open[instance]
                mutex.release()
                root = self._root
                if fd in root.locking:
                    root.locking.discard(fd)
                    root.files.close(fd)
                return
