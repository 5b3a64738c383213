"""The files of runs whose rows retention deleted."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable


def delete_freed(host: str, freed: Iterable[tuple[str | None, str | None]]) -> None:
    """Delete the run directories that no row names any more, where they are this host's.

    Arguments:
        freed: (host, directory) of each.
    """
    for whose, directory in freed:
        if whose == host and directory:
            with contextlib.suppress(OSError):
                shutil.rmtree(directory)
