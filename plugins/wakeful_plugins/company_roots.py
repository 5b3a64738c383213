"""The coordination roots of this host's companies, each opened once by this object and kept open."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wakeful_plugins.run_directory import coordination_root

if TYPE_CHECKING:
    from wakeful_coordination import Coordination
    from wakeful_coordination.filesystem import Filesystem

_log = logging.getLogger(__name__)

# An instance is opened, and ended, once: its lease kept open would only cost a descriptor.
KEPT_LEASES = 1


class CompanyRoots:
    """Opens the root of each company when it is first wanted, among whatever older files stand there. Thread-safe.

    A root that a failing disk has made unusable is left, and opened anew for the next that wants it: what failed is
    never tried again, and nothing of it was acknowledged.

    Arguments:
        data: the data root of this host.
        files: makes the filesystem a root works on; None means the real one. For tests.
    """

    def __init__(self, data: Path, *, files: Callable[[], Filesystem] | None = None) -> None:
        self.data = data
        self._files = files
        self._open: dict[str, Coordination] = {}
        self._guard = threading.Lock()

    def path(self, company: str) -> Path:
        """Return where a company's root lies."""
        return coordination_root(self.data, company)

    def root(self, company: str) -> Coordination:
        """Return a company's open root, made if it is missing. Raises CoordinationError."""
        from wakeful_coordination import Coordination, CoordinationError

        with self._guard:
            path = self.path(company)
            known = self._open.get(company)
            if known is not None:
                try:
                    known.root.usable()
                    if _is_still(path, known.root.fd):
                        return known
                except CoordinationError as error:
                    _log.error("the coordination root of %s is opened anew: %s", company, error.message)
                self._open.pop(company).close()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = Coordination.open(
                str(path), among=True, keep=KEPT_LEASES, files=self._files() if self._files is not None else None
            )
            self._open[company] = opened
            return opened

    def forget(self, company: str) -> None:
        """Close a company's root, if it is open."""
        with self._guard:
            if (known := self._open.pop(company, None)) is not None:
                known.close()

    def close(self) -> None:
        """Close every root."""
        with self._guard:
            while self._open:
                self._open.popitem()[1].close()


def _is_still(path: Path, fd: int) -> bool:
    """Say whether an open directory is the one at ``path``: a company's erasure takes its root away."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except OSError:
        return False
