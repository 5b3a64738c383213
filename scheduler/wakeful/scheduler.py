"""A scheduler: control session, driver and dispatcher put together, with one life cycle.

Built by a host or by ``wakeful up``; several may live in one process. Nothing starts before ``start``.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from wakeful import migrations, store
from wakeful.admission import Admission, PassResult
from wakeful.clock import Clock, SystemClock
from wakeful.coalesce import WINDOW
from wakeful.config import Config
from wakeful.connections import Session, Watchdog
from wakeful.control import Control, Pace
from wakeful.crash_points import Crash, no_crash
from wakeful.dispatcher import Dispatcher, Lease
from wakeful.driver import Driver
from wakeful.ending_signals import until_signalled
from wakeful.errors import ConfigError, SchemaMismatch
from wakeful.identity import Identity
from wakeful.outcomes import Park
from wakeful.owners import Observation
from wakeful.plugins import Hooks
from wakeful.signals import Signal
from wakeful.terminals import Ending

log = logging.getLogger("wakeful.scheduler")

RECENT = timedelta(hours=24)  # within which a host name used by another machine is worth a warning
KILLED = "its scheduler was told to stop its children (WAKEFUL_STOP_CHILDREN=kill)"


@dataclass(frozen=True, slots=True)
class Tuning:
    """What tests and benches inject: clock, paces, crash points.

    Arguments:
        clock: monotonic time, waited on.
        pace: of the control session.
        lease: of claims.
        window: rows of one window.
        coalescing: seconds for which signals of one source are coalesced.
        crash: called at each ``CrashPoint``.
    """

    clock: Clock = field(default_factory=SystemClock)
    pace: Pace = field(default_factory=Pace)
    lease: Lease = field(default_factory=Lease)
    window: int = 1000
    coalescing: float = WINDOW
    crash: Crash = no_crash


class Scheduler:
    """Wakes sleepers and runs them, until stopped.

    Arguments:
        config: with a DSN; the embedded server is the caller's to start.
        hooks: loaded plugins.
        labels: what this host offers to agents that require labels.
        tuning: see :class:`Tuning`.
    """

    def __init__(
        self, config: Config, hooks: Hooks, *, labels: Sequence[str] = (), tuning: Tuning | None = None
    ) -> None:
        if config.dsn is None:
            raise ConfigError("a scheduler needs a database", hint="set WAKEFUL_DSN, or pass the embedded server's DSN")
        self._config = config
        self._hooks = hooks
        self._labels = tuple(labels)
        self._tuning = tuning or Tuning()
        self._watchdog = Watchdog()
        self._stopped = threading.Event()
        self._stopping = threading.Lock()
        self._process = os.getpid()
        self._started = False
        self.owner = False
        self._owners_work = False
        self._panic = False

    def start(self) -> None:
        """Check the schema, then start working. Returns at once; ``wait_ready`` tells when it listens.

        Raises:
            DatabaseUnavailable, SchemaMismatch: nothing was started.
        """
        config, tuning = self._config, self._tuning
        assert config.dsn is not None  # noqa: S101 - checked when it was built; tells the type checker
        with Session(config.dsn, purpose="start", watchdog=self._watchdog) as session:
            self._check_schema(session)
            self.identity = Identity(config.data, config.host)
            self._register(session)
        # Executors, readers and attendants first: a plugin that fails here contributes no owner either.
        readers = {reader.name: reader for reader in self._hooks.readers()}
        executors = {executor.name: executor for executor in self._hooks.executors(config)}
        self._executors = executors
        attendants = self._hooks.attendants(config)
        owners = self._hooks.owners()
        admission = Admission(owners, self._hooks.gates(), crash=tuning.crash, name=self.identity.host)
        self.driver = Driver(
            Session(config.dsn, purpose="driver", watchdog=self._watchdog),
            admission,
            owners,
            clock=tuning.clock,
            told=self._passed,
            size=tuning.window,
            window=tuning.coalescing,
        )
        self.driver.enable(enabled=False)  # until the settings have been read
        self.dispatcher = Dispatcher(
            Session(config.dsn, purpose="dispatcher", watchdog=self._watchdog),
            self.identity,
            executors,
            labels=self._labels,
            slots=config.slots,
            lease=tuning.lease,
            clock=tuning.clock,
            readers=readers,
            attendants=attendants,
            aside=Session(config.dsn, purpose="attendants", watchdog=self._watchdog),
            settings=self._settings,
            told=self._told,
            crash=tuning.crash,
        )
        self.control = Control(
            config.listen_dsn or config.dsn,
            self,
            listen=config.notify == "on",
            pace=tuning.pace,
            watchdog=self._watchdog,
        )
        self._started = True
        for thread in (self.driver, self.dispatcher, self.control):
            thread.start()
        log.info("scheduler %s of host %s started", self.identity.id, self.identity.host)

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until the dispatcher has looked around and, where this process owns, the first windows are read."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self.dispatcher.ready.wait(timeout):
            return False
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return not (self.owner and self._owners_work) or self.driver.ready.wait(left)

    def wait(self) -> None:
        """Block until somebody has called ``stop``."""
        self._stopped.wait()

    def stop(self) -> bool:
        """Stop admitting, wait for what is physically in progress, within the configured grace.

        Children are left running for the next scheduler to adopt, or stopped, as configured. Waiting is
        bounded even when the database is frozen.

        Returns:
            whether everything ended in time.
        """
        if self._process != os.getpid() or not self._started:
            return True  # a forked child has none of the threads, and the sockets are its parent's
        with self._stopping:
            if self._stopped.is_set():
                return True
            clean = self._stop(self._config.shutdown_grace.total_seconds())
            self._stopped.set()
            return clean

    def _stop(self, grace: float) -> bool:
        deadline = time.monotonic() + 0.9 * grace  # the rest is for closing
        self.driver.stop()
        clean = True
        if self._config.stop_children == "kill":
            clean = self.dispatcher.stop_children(deadline - 0.1 * grace, KILLED)
        self.dispatcher.stop()
        self.control.stop()
        for thread in (self.driver, self.dispatcher, self.control):
            thread.join(max(0.0, deadline - time.monotonic()))
        ended = not any(thread.is_alive() for thread in (self.driver, self.dispatcher, self.control))
        closing = threading.Thread(target=self._close_executors, name="wakeful closing", daemon=True)
        closing.start()
        closing.join(0.1 * grace)
        self._watchdog.close()
        if ended:
            # While a thread of it still waits for the database, this scheduler is not dead: it may yet write.
            self.identity.close()
        return clean and ended and not closing.is_alive()

    def _close_executors(self) -> None:
        for name, executor in self._executors.items():
            try:
                executor.close()
            except Exception as error:
                log.warning("executor %s does not close: %s", name, error)

    def run_until_signalled(self) -> int:
        """Start, run until SIGTERM, SIGINT or SIGHUP, stop; a second signal exits at once.

        Only for the main thread. Returns the exit code: 0, or 1 when something did not end within the grace.
        """
        if until_signalled(self.start, self.stop):
            log.info("scheduler %s of host %s stopped", self.identity.id, self.identity.host)
            return 0
        sys.stderr.write("wakeful: not everything ended within the grace; the next scheduler takes over\n")
        return 1

    # ── told by the control session ─────────────────────────────────────────────────────────────────────

    def connected(self, *, owner: bool) -> None:
        """LISTEN is in force."""
        self.owner = owner
        self.dispatcher.connected(owner=owner)
        self.driver.connected(owner=owner)
        log.info("listening%s", " and owning" if owner else " in standby: another scheduler's owners work")

    def ownership(self, *, owner: bool) -> None:
        """The owners' lock was won."""
        self.connected(owner=owner)

    def disconnected(self, error: BaseException) -> None:
        """Deaf, and lockless with it."""
        self.owner = False
        self.driver.disconnected()
        self.dispatcher.disconnected()

    def signalled(self, signal: Signal) -> None:
        """Hand a signal to whom its topic reaches."""
        if signal.topic == "settings" or signal.topic in ("dispatch", "renewal"):
            self.dispatcher.signalled(signal)
        else:
            self.driver.signalled(signal)

    # ── told by driver and dispatcher ───────────────────────────────────────────────────────────────────

    def _settings(self, values: Mapping[str, Any]) -> None:
        working = values.get("scheduler_enabled", True) and not values.get("draining", False)
        self.dispatcher.admit(admitting=bool(working))
        self._owners_work = bool(working and values.get("owners_enabled", True))
        self.driver.enable(enabled=self._owners_work)
        if values.get("panic", False) != self._panic:
            self._panic = bool(values.get("panic", False))
            self.driver.signalled(Signal("settings"))

    def _passed(self, company: str, result: PassResult) -> None:
        if result.runs:
            self.dispatcher.poke(company)
        now = self.driver.time.now()
        if now is None:
            return
        for wake, run in result.runs.items():
            self._hooks.observe(Observation("wake.linked", company, now, wake=str(wake), run=str(run)))
        for wake, outcome in result.outcomes.items():
            if isinstance(outcome, Park) and outcome.changed:
                details = {"reason": outcome.refusal.reason, "opens_on": outcome.refusal.opens_on}
                self._hooks.observe(Observation("wake.parked", company, now, wake=str(wake), details=details))

    def _told(self, what: str, ending: Ending) -> None:
        now = self.driver.time.now()
        if now is not None:
            key = ending.key
            details = {"state": ending.conclusion.state, "class": ending.conclusion.end_class.value}
            observation = Observation(what, key.company, now, None, str(key.run), key.generation, details)
            self._hooks.observe(observation)

    def _check_schema(self, session: Session) -> None:
        with session.autocommit() as conn:
            missing = migrations.pending(conn, migrations.all_of(self._hooks.migrations()))
        if missing:
            raise SchemaMismatch(
                f"the database lacks {len(missing)} migration(s), from {missing[0].version:04d} {missing[0].name}",
                hint="run `wakeful migrate`",
            )

    def _register(self, session: Session) -> None:
        host, machine = self.identity.host, self.identity.machine
        with session.autocommit() as conn:
            parameters = {"host": host, "machine": machine, "labels": list(self._labels)}
            former = store.run(conn, "hosts.register", parameters).fetchall()[0]
        if former.machine is not None and former.machine != machine and former.now - former.seen_at < RECENT:
            log.warning(
                "host name %s was used by another machine (%s) at %s: two machines under one name mix up their runs;"
                " name one of them otherwise in WAKEFUL_HOST",
                host,
                former.machine,
                former.seen_at.isoformat(timespec="seconds"),
            )
        if former.dead_at is not None:
            log.warning("host %s was declared dead at %s, and is back", host, former.dead_at.isoformat())
