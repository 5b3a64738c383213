"""The doorbell: a hint that something may be pending. Losing every hint costs latency only.

One watch on one directory. Rings that the kernel or the library loses are made good by a slow look at
the outbox, which is also all there is where watching is impossible.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from wakeful_coordination.errors import CoordinationError
from wakeful_coordination.root import Root

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver


class Watcher:
    """Calls ``look`` after each ring, and every ``rescan`` seconds in any case.

    ``blind_rescan`` is the interval where no watch could be set; ``announce`` is told that, or that rings
    were lost, once each, in one line. ``look`` runs in the watcher's thread. A CoordinationError from it is
    announced (once for each kind) and the next look comes as usual; any other error ends the watcher and is
    raised by ``stop``.
    """

    def __init__(
        self,
        root: Root,
        look: Callable[[], object],
        *,
        announce: Callable[[str], None],
        rescan: float = 30.0,
        blind_rescan: float = 2.0,
    ) -> None:
        self._root = root
        self._look = look
        self._announce = announce
        self._rescan = rescan
        self._blind_rescan = blind_rescan
        self._rung = threading.Event()
        self._stopped = threading.Event()
        self._announced: set[str] = set()
        self._observer: BaseObserver | None = None
        self._overflow: _Overflow | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin to watch, then look once for what was there before."""
        self._watch()
        self._rung.set()
        self._thread = threading.Thread(target=self._run, name="coordination-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the present look; raises what made the watcher end earlier."""
        self._stopped.set()
        self._rung.set()
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
        if self._overflow is not None:
            self._overflow.detach()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def ring(self) -> None:
        """Ask for a look now."""
        self._rung.set()

    @property
    def watching(self) -> bool:
        """Say whether rings are heard, or only the slow look is left."""
        return self._observer is not None

    def _watch(self) -> None:
        # watchdog is only imported by processes that watch.
        from watchdog.events import FileSystemEvent, FileSystemEventHandler
        from watchdog.observers.inotify import InotifyObserver

        rung = self._rung

        class Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:
                rung.set()

        self._overflow = _Overflow(self._overflowed)
        observer = None
        try:
            # The limit of instances is met by making one, the limit of watches by starting it.
            observer = InotifyObserver()
            observer.schedule(Handler(), f"{self._root.path}/doorbell", recursive=False)
            observer.start()
        except OSError as error:
            if observer is not None:
                observer.stop()
            self._tell(
                "blind",
                f"the doorbell cannot be watched ({error.strerror}): looking every {self._blind_rescan:g} s instead",
            )
            return
        self._observer = observer

    def _overflowed(self) -> None:
        self._tell("overflow", "rings were lost: more changes than the kernel queues; looking at the outbox instead")
        self._rung.set()

    def _tell(self, what: str, line: str) -> None:
        if what not in self._announced:
            self._announced.add(what)
            self._announce(line)

    def _run(self) -> None:
        try:
            while True:
                self._rung.wait(self._rescan if self.watching else self._blind_rescan)
                if self._stopped.is_set():
                    return
                # Cleared before looking: a ring during the look asks for another one.
                self._rung.clear()
                try:
                    self._look()
                except CoordinationError as error:
                    self._tell(error.slug, error.message)
        except BaseException as error:
            self._error = error


class _Overflow(logging.Handler):
    """Hears the one trace that the library leaves of a queue overflow: a warning in its log."""

    def __init__(self, told: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self._told = told
        self._logger = logging.getLogger("watchdog.observers.inotify_c")
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Take a warning of the library as news of lost rings; a needless look does no harm."""
        self._told()

    def detach(self) -> None:
        """Stop listening."""
        self._logger.removeHandler(self)
