"""Recovery: after a reboot, or on an operator's word, every pending transaction is brought to its end.

Idempotent, and may itself crash anywhere. It appends no event, loses none, and deletes no bytes but its
own temporaries and the files of sessions proven dead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from wakeful_coordination import layout, publish, record
from wakeful_coordination.authority import Authority, Committed
from wakeful_coordination.errors import CoordinationError, InvalidRecord, LeaseBusy, NotFound, UnsafePath
from wakeful_coordination.outbox import Outbox
from wakeful_coordination.root import Root
from wakeful_coordination.session import Dead, liveness
from wakeful_coordination.waiter import Waiter

_FILE = "recovered.json"
_LOCK = "recovery.lock"
_LIMIT = 4096
_SPARE = ".tmp-"


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery did. ``left`` holds (transaction, reason) for those that an operator must look at."""

    committed: tuple[str, ...]
    quarantined: tuple[str, ...]
    sessions: tuple[str, ...]
    left: tuple[tuple[str, str], ...]


class Recovery:
    """Brings a root's transactions to their ends, one process at a time. ``patience`` is in seconds."""

    def __init__(self, root: Root, outbox: Outbox, authority: Authority, *, patience: float = 60.0) -> None:
        self._root = root
        self._outbox = outbox
        self._authority = authority
        self._patience = patience

    def after_boot(self) -> Recovered | None:
        """Recover if nobody has since this boot; None where there was nothing to do. Raises what :meth:`run` raises."""
        if self._recovered():
            return None
        with self._alone():
            # Another process may have done it while this one waited.
            return None if self._recovered() else self._run()

    def run(self, *, timeout: float | None = None) -> Recovered:
        """Recover now; raises LeaseBusy where another process is at it for longer than the patience.

        ``timeout``: seconds to wait for the leases of one transaction, which is then left; None for ever.
        """
        with self._alone():
            return self._run(timeout)

    def _recovered(self) -> bool:
        data = publish.read_file(self._root, self._root.fd, _FILE, place="", limit=_LIMIT)
        if data is None:
            return False
        try:
            found = record.decode(data, what=_FILE, version=layout.VERSION)
        except InvalidRecord:
            return False
        return found.get("boot_id") == self._root.machine.boot_id

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        root = self._root
        root.usable()
        with root.explained(_LOCK):
            fd = root.open_lock(_LOCK, root.fd)
        if (found := root.files.status(fd)).kind != "file":
            root.close_lock(fd)
            raise UnsafePath(f"{root.path}/{_LOCK} is a {found.kind}", hint="move it away")
        if not root.files.try_lock(fd) and not Waiter(root, fd).grant(self._patience):
            raise LeaseBusy(f"{root.path}/{_LOCK} is held: another process recovers this root", hint="try again")
        try:
            yield
        finally:
            root.close_lock(fd)

    def _run(self, timeout: float | None = None) -> Recovered:
        committed: list[str] = []
        quarantined: list[str] = []
        left: list[tuple[str, str]] = []
        # Before the outbox is listed: whatever these sessions had begun is then in the list, and no claim names
        # them when it is done. One that dies later keeps its file until the next recovery.
        dead = self._dead_sessions()
        for txid in self._outbox.pending():
            try:
                outcome = self._authority.settle(txid, timeout=timeout)
            except NotFound:
                continue  # a relay was faster
            except CoordinationError as error:
                self._root.usable()
                left.append((txid, error.message))
            else:
                (committed if isinstance(outcome, Committed) else quarantined).append(txid)
        self._sweep_quarantine()
        sessions = self._sweep_sessions(dead) if not left else ()
        for place in (layout.PENDING, layout.QUARANTINE):
            self._sweep_spares(place)
        if not left:
            data = record.encode({"v": layout.VERSION, "boot_id": self._root.machine.boot_id})
            publish.replace_file(self._root, self._root.fd, _FILE, data, place="")
        return Recovered(tuple(committed), tuple(quarantined), sessions, tuple(left))

    def _sweep_quarantine(self) -> None:
        """Drop what a power cut brought back after an operator had taken it up again: its receipt prevails."""
        place = layout.QUARANTINE
        for txid in self._outbox.pending(place):
            if self._authority.receipt(txid) is not None:
                with self._root.directory(place) as at:
                    publish.remove(self._root, at, f"{txid}.json", place=place)
                    publish.remove(self._root, at, f"{txid}.reason", place=place)

    def _dead_sessions(self) -> list[str]:
        """Return the names of files in sessions/ that dead processes left."""
        dead = []
        with self._root.directory("sessions") as at, self._root.explained("sessions"):
            for name in self._root.files.names(at):
                sid = name.removeprefix(_SPARE)
                with contextlib.suppress(InvalidRecord):
                    layout.record_id(sid, "session id")
                    if name != sid and self._root.files.stat(sid, at) is None:
                        continue  # being born, or died before it had a name: a few bytes, not worth a guess
                    if isinstance(liveness(self._root, sid), Dead):
                        dead.append(name)
        return dead

    def _sweep_sessions(self, dead: list[str]) -> tuple[str, ...]:
        """Remove the files of dead sessions, now that nothing names them any more."""
        with self._root.directory("sessions") as at:
            for name in dead:
                publish.remove(self._root, at, name, place="sessions")
        return tuple(sorted({name.removeprefix(_SPARE) for name in dead}))

    def _sweep_spares(self, place: str) -> None:
        """Remove temporaries whose writer's session is gone; it is named in them."""
        with self._root.directory(place) as at, self._root.explained(place):
            for name in self._root.files.names(at):
                sid, hyphen, _ = name.removeprefix(_SPARE).partition("-")
                if not name.startswith(_SPARE) or not hyphen or sid == self._root.sid:
                    continue
                with contextlib.suppress(InvalidRecord), self._root.directory("sessions") as sessions:
                    if self._root.files.stat(layout.record_id(sid, "session id"), sessions) is None:
                        publish.remove(self._root, at, name, place=place)
