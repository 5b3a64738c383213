"""An open coordination root with everything one may do in it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType

from wakeful_coordination import ending
from wakeful_coordination.authority import Authority, Settled
from wakeful_coordination.creation import mount_table, open_root
from wakeful_coordination.ending import AgentEnd, Ends
from wakeful_coordination.errors import NotCaptured
from wakeful_coordination.event import new_event
from wakeful_coordination.filesystem import Filesystem
from wakeful_coordination.generation import Generation, Generations
from wakeful_coordination.held_cache import HeldCaches
from wakeful_coordination.leases import Held, Leases
from wakeful_coordination.machine import Machine
from wakeful_coordination.outbox import Outbox, Prepared
from wakeful_coordination.quarantine import Quarantine
from wakeful_coordination.recovery import Recovered, Recovery
from wakeful_coordination.relay import Deliver, Relay, Relayed
from wakeful_coordination.repair import Repair
from wakeful_coordination.root import Root
from wakeful_coordination.session import Session
from wakeful_coordination.state import read_state
from wakeful_coordination.survey import Survey
from wakeful_coordination.terminal import Terminals
from wakeful_coordination.transaction import Mutation, Transaction, new_transaction
from wakeful_coordination.undelivered import Undelivered
from wakeful_coordination.watcher import Watcher


class Coordination:
    """One process's view of a root: build it with :meth:`open`, use it from any thread, close it."""

    def __init__(self, root: Root, *, keep: int, exit_grace: float) -> None:
        self.root = root
        self._session = Session(root)
        self._numbering = threading.Lock()
        self._last = 0
        self.leases = Leases(root, lambda one: self.authority.resolve(one), keep=keep, exit_grace=exit_grace)
        self._open_leases = self.leases.open
        self.generations = Generations(root, self.leases)
        self.outbox = Outbox(root, self.leases)
        self.quarantine = Quarantine(root, self.leases, self.outbox)
        self.authority = Authority(root, self.leases, self.outbox, self.quarantine)
        self.terminals = Terminals(root, self.leases)
        self.caches = HeldCaches(root, self.leases)
        self.ends = Ends(root, self.leases)
        self.recovery = Recovery(root, self.outbox, self.authority)
        self.repair = Repair(root, self.leases, self.terminals, self.caches)
        self.undelivered = Undelivered(root)
        self.survey = Survey(root, self.outbox, self.quarantine, self.undelivered)

    @classmethod
    def open(
        cls,
        path: str,
        *,
        create: bool = True,
        among: bool = False,
        dead_sessions: Sequence[str] = (),
        keep: int = 512,
        exit_grace: float = 1.0,
        files: Filesystem | None = None,
        machine: Machine | None = None,
        mountinfo: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: os.urandom(16).hex(),
    ) -> Coordination:
        """Open a root (a directory, made with mode 0700 if ``create``), and recover it if the host has rebooted.

        ``among`` also makes one in a directory that holds other files, which are left alone. ``dead_sessions`` are
        sessions an operator declares dead; ``keep`` bounds the lease files kept open; ``exit_grace`` is how long, in
        seconds, an owner that has lost its lease may take to finish dying. The rest is injected in tests.

        Raises NotFound, UnsafePath, InDoubt (no local disk), UnknownVersion,
        StorageFailed.
        """
        if files is None:
            from wakeful_coordination.posix import PosixFilesystem

            files = PosixFilesystem()
        root = open_root(
            path,
            create=create,
            among=among,
            files=files,
            machine=machine or Machine.here(),
            mountinfo=mount_table() if mountinfo is None else mountinfo,
            now=now,
            new_id=new_id,
        )
        root.declared_dead = frozenset(dead_sessions)
        try:
            opened = cls(root, keep=keep, exit_grace=exit_grace)
            opened.recovery.after_boot()
        except BaseException:
            root.close()
            raise
        return opened

    def close(self) -> None:
        """Give everything back and leave the session."""
        self._session.close()
        self.root.close()

    def __enter__(self) -> Coordination:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def lease(self, *instances: str, timeout: float | None = None) -> Held:
        """Return brief custody of instances, to be entered with ``with``; see :meth:`Leases.hold`."""
        if timeout is None and len(instances) == 1:
            # The hot path: an open lease is its own context.
            return self._open_leases.get(instances[0]) or self.leases.files.get(instances[0])
        return self.leases.hold(*instances, timeout=timeout)

    def new_txid(self) -> str:
        """Return a fresh transaction or event id; those of one process ascend, those of several follow the clock."""
        with self._numbering:
            # Microseconds, or one more than the last where the clock has not moved or has gone back.
            self._last = max(self._last + 1, int(self.root.now().timestamp() * 1_000_000))
            return f"{self._last:014x}{self.root.new_id()[:18]}"

    def transaction(
        self,
        captured: Generation,
        type: str,
        body: object,
        *,
        mutations: Sequence[Mutation] = (),
        others: Sequence[Generation] = (),
        kind: str = "event",
        txid: str | None = None,
    ) -> Transaction:
        """Return a transaction, not yet prepared: an event in the scope of ``captured``, and the files it changes.

        ``others`` are further captured generations it stands on. Keep the value, or its ``txid``, to repeat
        the very same transaction after a crash. Raises NotCaptured, InvalidRecord.
        """
        if not isinstance(captured, Generation):
            raise NotCaptured("no generation was captured for this write", hint="capture it at dispatch and carry it")
        own = txid or self.new_txid()
        event = new_event(
            id=own,
            type=type,
            at=self.root.now(),
            instance=captured.instance,
            generation_id=captured.id,
            body=body,
        )
        return new_transaction(
            txid=own,
            event=event,
            generations=(captured, *others),
            mutations=mutations,
            sid=self.root.sid,
            created_at=self.root.now(),
            kind=kind,
        )

    def publish(self, transaction: Transaction) -> Prepared:
        """Prepare a transaction and ring the doorbell; on return it survives SIGKILL and power loss.

        Somebody's relay applies it later. The same transaction again is answered, not added. Raises Superseded,
        InvalidRecord, StorageFailed, and what leases raise; nothing was acknowledged then.
        """
        return self.outbox.prepare(transaction, transaction.generations)

    def transact(self, transaction: Transaction) -> Settled:
        """Prepare and settle a transaction; on return the outcome survives SIGKILL and power loss.

        Raises what :meth:`publish` and :meth:`Authority.settle` raise; what was prepared by then is settled later.
        """
        self.outbox.prepare(transaction, transaction.generations)
        return self.authority.settle(transaction.txid)

    def state(self, generation: Generation, name: str = "state.json") -> str | None:
        """Return the state a transaction of this very generation wrote; None where there is none.

        Raises InvalidRecord, UnsafePath, StorageFailed.
        """
        return read_state(self.root, generation, name)

    def conclude(
        self, captured: Generation, outcome: str, reason: str = "", *, cache_sha256: str | None = None
    ) -> AgentEnd:
        """Record the terminal, clean the cache up, return the permission for agent.end; see :func:`ending.conclude`.

        On return both survive power loss. Raises ContradictoryTerminal, Superseded, NotCaptured, StorageFailed, and
        what leases raise: then there is no agent.end.
        """
        return ending.conclude(self.terminals, self.caches, captured, outcome, reason, cache_sha256=cache_sha256)

    def relay(self, deliver: Deliver) -> Relayed:
        """Settle, deliver and forget everything pending: one pass; see :meth:`Relay.run`.

        Raises RootPoisoned; what else hinders one transaction is in the answer.
        """
        return Relay(self.outbox, self.authority).run(deliver)

    def relay_one(self, txid: str, deliver: Deliver, *, timeout: float | None = None) -> Settled | None:
        """Settle, deliver and forget one transaction; None where another relay was faster. See :meth:`Relay.one`.

        ``timeout`` bounds the wait for its leases, in seconds. Raises why it stays pending.
        """
        return Relay(self.outbox, self.authority).one(txid, deliver, timeout=timeout)

    def recover(self, *, timeout: float | None = None) -> Recovered:
        """Bring every pending transaction to its end now; see :meth:`Recovery.run`."""
        return self.recovery.run(timeout=timeout)

    def watcher(
        self,
        look: Callable[[], object],
        *,
        announce: Callable[[str], None],
        rescan: float = 30.0,
        blind_rescan: float = 2.0,
    ) -> Watcher:
        """Return a watcher of the doorbell, not yet started; intervals in seconds."""
        return Watcher(self.root, look, announce=announce, rescan=rescan, blind_rescan=blind_rescan)
