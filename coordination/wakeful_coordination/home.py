"""An instance's directory, open for a write by whoever holds its lease."""

from __future__ import annotations

from types import TracebackType

from wakeful_coordination.errors import InDoubt
from wakeful_coordination.lease import Lease
from wakeful_coordination.root import Root


class Home:
    """The context of an instance's directory; gives its descriptor, and is entered under its lease."""

    __slots__ = ("_at", "_lease", "_root")

    def __init__(self, root: Root, lease: Lease) -> None:
        self._root = root
        self._lease = lease
        self._at = -1

    @property
    def place(self) -> str:
        """Return the directory's path, relative to the root."""
        return self._lease.place

    def __enter__(self) -> int:
        root, lease = self._root, self._lease
        try:
            at = root.open_directory(lease.place)
        except FileNotFoundError:
            raise self._lost() from None
        self._at = at
        try:
            # The lease that is held must be the one that stands there.
            found = root.files.stat("lease", at)
        except BaseException:
            root.files.close(at)
            raise
        if found is None or found.inode != lease.inode:
            root.files.close(at)
            raise self._lost()
        return at

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._root.files.close(self._at)

    def _lost(self) -> InDoubt:
        return InDoubt(
            f"{self._root.path}/{self._lease.place}/lease was deleted or replaced while it was held",
            hint="stop this instance's processes, then `wakeful coord repair INSTANCE`",
        )
