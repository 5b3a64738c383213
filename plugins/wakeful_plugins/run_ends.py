"""The file side of a run's end: terminal, cleanup, no more new words; then its events, and after the row agent.end."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeful.attendants import NotYet
from wakeful_plugins.company_roots import CompanyRoots
from wakeful_plugins.run_directory import RunDirectories
from wakeful_plugins.run_instance import captured

if TYPE_CHECKING:
    from psycopg import Connection

    from wakeful.attendants import Lend
    from wakeful.executions import RunKey
    from wakeful_coordination import AgentEnd, Coordination, Generation
    from wakeful_coordination.filesystem import Filesystem
    from wakeful_plugins.event_relay import EventRelay
    from wakeful_plugins.host_relay import HostRelay
    from wakeful_plugins.left_over import LeftOvers

_log = logging.getLogger(__name__)

LEASE = timedelta(seconds=1)  # how long an end waits for whoever is at work on the instance, before it is asked again
PATIENCE = timedelta(seconds=60)


class RunEnds:
    """The attendant (protocol ``Attendant``) that ends the file generations of this host's runs.

    Arguments:
        data: the data root of this host.
        lease: how long one call waits for an instance's lease.
        patience: after how long an end whose lease somebody keeps is one that cannot be recorded.
        rescan: between two looks at outboxes that did not ring.
        watched: doorbells heard at once.
        files: makes the filesystem of a root; None means the real one. For tests.
    """

    name = "file coordination"

    def __init__(
        self,
        data: Path,
        *,
        lease: timedelta = LEASE,
        patience: timedelta = PATIENCE,
        rescan: timedelta | None = None,
        watched: int | None = None,
        files: Callable[[], Filesystem] | None = None,
    ) -> None:
        self._directories = RunDirectories(data)
        self._roots = CompanyRoots(data, files=files)
        self._lease = lease.total_seconds()
        self._rescan = rescan
        self._watched = watched
        self._patience = patience.total_seconds()
        self._waits: dict[RunKey, float] = {}
        self._permissions: dict[RunKey, tuple[Generation, AgentEnd | None]] = {}
        self._relay: EventRelay | None = None
        self._left: LeftOvers | None = None
        self._thread: HostRelay | None = None

    def start(self, lend: Lend) -> None:
        """Start the relay."""
        from wakeful_plugins.event_relay import EventRelay
        from wakeful_plugins.host_relay import RESCAN, WATCHED, HostRelay
        from wakeful_plugins.left_over import LeftOvers

        alone = _one_at_a_time(lend)
        self._relay = EventRelay(alone)
        self._left = LeftOvers(self._roots, alone)
        rescan, watched = self._rescan or RESCAN, WATCHED if self._watched is None else self._watched
        self._thread = HostRelay(self._roots, self._relay, self._left, alone, rescan=rescan, watched=watched)
        self._thread.start()

    def began(self, key: RunKey) -> None:
        """Hear the doorbell of its company."""
        if self._thread is not None and self._roots.path(key.company).exists():  # else it has no files of ours
            self._thread.watch(key.company)

    def ending(self, key: RunKey, outcome: str, reason: str) -> str | None:
        """Record the terminal, clean up, let the generation begin nothing more, and deliver what it has said.

        A failing terminal is the answer; an unfinished cleanup only delays agent.end. Raises DatabaseUnavailable, and
        NotYet while somebody is at work on the instance: a live holder is never overtaken, but waited for so long.
        """
        from wakeful_coordination import CoordinationError
        from wakeful_coordination.errors import LeaseBusy

        try:
            generation = self._captured(key)
            if generation is None:
                return None
        except (CoordinationError, OSError) as error:
            return f"which generation was captured for it is unknown: {error}"
        failure = None
        try:
            permission = self._end(self._roots.root(key.company), generation, outcome, reason)
            self._permissions[key] = (generation, permission)
        except LeaseBusy as error:
            if time.monotonic() < self._waits.setdefault(key, time.monotonic() + self._patience):
                raise NotYet(error.message) from error
            failure = f"{error.message} for {self._patience:g} s"
        except CoordinationError as error:
            failure = error.message
        try:
            if self._relay is not None:
                self._relay.of_instance(self._roots.root(key.company), key.company, generation.instance)
        except CoordinationError as error:
            _log.warning("what run %s said waits: %s", key.cookie, error.message)
        return failure

    def ended(self, key: RunKey, *, landed: bool) -> None:
        """Record agent.end, if the terminal stands, the cleanup is finished and the row says so."""
        from wakeful_coordination import CoordinationError

        self._waits.pop(key, None)
        known = self._permissions.pop(key, None)
        if known is None:
            return
        generation, permission = known
        try:
            if landed and permission is not None:
                with (root := self._roots.root(key.company)).lease(generation.instance, timeout=self._lease):
                    root.ends.record(permission)
                return
        except CoordinationError as error:
            _log.warning("agent.end of %s waits: %s", key.cookie, error.message)
        if self._left is not None:
            self._left.add(key, generation)  # perhaps only the answer of the commit was lost

    def stop(self) -> None:
        """End the relay."""
        if self._thread is None:
            return
        self._thread.end()
        if not self._thread.is_alive():
            self._roots.close()

    def _captured(self, key: RunKey) -> Generation | None:
        files = self._directories.open(key)
        if files is None:
            return None
        try:
            return captured(files)
        finally:
            files.close()

    def _end(self, root: Coordination, generation: Generation, outcome: str, reason: str) -> AgentEnd | None:
        """Return the permission for agent.end; None while the cleanup is unfinished. Raises what a terminal raises."""
        from wakeful_coordination import AgentEnd, CoordinationError

        with root.lease(generation.instance, timeout=self._lease):
            terminal = root.terminals.record(generation, outcome, reason)
            try:
                permission = AgentEnd(terminal, root.caches.clean(terminal))
            except CoordinationError as error:
                _log.warning("the cache of %s is not cleaned up yet: %s", generation.instance, error.message)
                permission = None
            try:
                root.generations.retire(generation)
            except CoordinationError as error:
                _log.warning("generation %s is not retired: %s", generation.token, error.message)
        return permission


def _one_at_a_time(lend: Lend) -> Lend:
    """Lend the connection to one of our two threads at a time."""
    guard = threading.Lock()

    @contextlib.contextmanager
    def lent() -> Iterator[Connection[Any]]:
        with guard, lend() as conn:
            yield conn

    return lent
