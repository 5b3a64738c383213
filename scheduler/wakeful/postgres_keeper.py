"""Who needs the embedded server for long starts it again when it dies: an operator's mistake, or want of memory."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from wakeful.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from wakeful.postgres import EmbeddedServer

log = logging.getLogger("wakeful.postgres")


class Keeper:
    """Keeps a started ``server`` alive while this context is entered. Waits on the kernel, and looks at no clock.

    Arguments:
        within: how long one attempt may take; leaving the context may wait as long.
        pause: between two attempts.
    """

    def __init__(
        self,
        server: EmbeddedServer,
        *,
        within: timedelta = timedelta(seconds=10),
        pause: timedelta = timedelta(seconds=1),
    ) -> None:
        self._server = server
        self._within = within
        self._pause = pause
        self._thread = threading.Thread(target=self._run, name="wakeful postgres keeper", daemon=True)

    def __enter__(self) -> Self:
        self._end, self._ask_end = os.pipe()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ask_end)
        self._thread.join(2 * self._within.total_seconds())
        if not self._thread.is_alive():  # else it still waits on it
            os.close(self._end)

    def _run(self) -> None:
        while not self._told_to_end(self._until_dead()):
            log.warning("the embedded PostgreSQL has ended; starting it again")
            try:
                if self._server.revive(self._within):
                    log.info("the embedded PostgreSQL answers")
                    continue
            except DatabaseUnavailable as error:
                log.warning("%s", error)
            if self._told_to_end([], self._pause.total_seconds()):
                return

    def _until_dead(self) -> list[int]:
        """Wait for the server's end, or ours; return what is ready of our own pipe."""
        process = self._server.process()
        if process is None:
            return []
        try:
            ready, _, _ = select.select([process, self._end], [], [])
            return [fd for fd in ready if fd == self._end]
        finally:
            with contextlib.suppress(OSError):
                os.close(process)

    def _told_to_end(self, ready: list[int], within: float = 0) -> bool:
        return bool(ready or select.select([self._end], [], [], within)[0])
