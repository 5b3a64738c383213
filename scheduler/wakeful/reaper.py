"""Who looks after claimed runs whose claimer may be gone. Evidence and renewals decide, never age.

Whoever has the run's files looks at the evidence first. Only where they cannot be reached is a run declared
uncertain, by an owner and a margin later: its state stays, its generation is bumped so that late writes are
refused, a recovery action is opened, and nothing replaces it before proof or a person's word.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from wakeful import host_loss, store
from wakeful.clock import Clock
from wakeful.connections import Session
from wakeful.doubt import declare_uncertain
from wakeful.endings import Endings
from wakeful.executions import Ended, RunKey
from wakeful.identity import Identity
from wakeful.retries import Retries, Timer
from wakeful.starts import Starts
from wakeful.timers import Timers
from wakeful.watch import OVERTAKEN_GRACE, Watch

log = logging.getLogger("wakeful.reaper")

SLACK = 1.0  # seconds by which a look at others' claims comes after their expiry


@dataclass(frozen=True, slots=True)
class Lease:
    """How claims are kept alive; shorter in tests.

    Arguments:
        length: a claim not renewed for this long makes others look at the evidence.
        renewal: between renewals while children run; at most a third of ``length``.
        margin: how much later than the host itself the owners of its companies look.
    """

    length: timedelta = timedelta(seconds=60)
    renewal: timedelta = timedelta(seconds=20)
    margin: timedelta = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Held:
    """A claimed run whose files are in this data directory.

    Arguments:
        row: the row's generation.
        files: the generation whose files are here: one less where the run was declared uncertain.
        claimer: whose claim it is.
        state: starting, running or stopping.
    """

    row: RunKey
    files: RunKey
    claimer: str
    executor: str
    state: str
    expired: bool

    @property
    def doubted(self) -> bool:
        """Whether it was declared uncertain."""
        return self.row != self.files


class Reaper:
    """Adoption, stops, renewals and expiry, for the dispatcher's thread."""

    def __init__(
        self,
        session: Session,
        identity: Identity,
        watch: Watch,
        endings: Endings,
        starts: Starts,
        timers: Timers[Timer],
        retries: Retries,
        clock: Clock,
        lease: Lease,
    ) -> None:
        self._session = session
        self._identity = identity
        self._watch = watch
        self._endings = endings
        self._starts = starts
        self._timers = timers
        self._retries = retries
        self._clock = clock
        self._lease = lease

    # ── what is here ────────────────────────────────────────────────────────────────────────────────────

    def look(self, *, everything: bool = True) -> None:
        """Compare every claimed run whose files are here with what is remembered, and put right what differs.

        Arguments:
            everything: also compare this scheduler's own claims, of which a lost commit may have kept it ignorant.
        """
        with self._session.autocommit() as conn:
            rows = store.run(conn, "recovery.mine", {"data": self._identity.data_id}).fetchall()
        held = [_held(row) for row in rows]
        orphans = []
        for run in held:
            if run.executor not in self._watch.executors:
                log.warning("run %s needs executor %r, which is not loaded here", run.row.cookie, run.executor)
            elif run.claimer == self._identity.claimer:
                if everything:
                    self._compare(run)
            elif self._identity.is_dead(run.claimer):
                orphans.append(run)
            elif run.expired:
                self._write_for(run)
        for run in self._adopt(orphans):
            log.info("adopted run %s", run.files.cookie)
            self._take_over(run)
        if everything:
            self._stop_overtaken({run.files for run in held})

    def _compare(self, run: Held) -> None:
        """A claim of this very scheduler: known, doubted meanwhile, or made by a commit it never heard of."""
        if run.doubted:
            if not self._endings.doubts(run.files):
                self._take_over(run)
        elif run.files in self._watch or run.files in self._starts or run.files in self._endings:
            return
        elif run.state == "running":
            self._take_over(run)
        else:
            self._starts.resume(run.files)

    def _take_over(self, run: Held) -> None:
        if run.doubted:
            self._endings.doubt(run.files, run.row, run.executor)
            return
        self._watch.add(run.files, run.executor, started=run.state != "starting")
        self._endings.examine(run.files, run.executor)

    def _write_for(self, run: Held) -> None:
        """Its claimer lives and does not renew: nothing is taken from it, but an end that is on disk is written."""
        if run.doubted:
            return
        try:
            status = self._watch.executors[run.executor].poll([run.files])[0]
        except (Exception, SystemExit) as error:
            log.warning("run %s cannot be looked at: %s", run.files.cookie, error)
            return
        if isinstance(status, Ended):
            self._endings.tell(run.files, status)

    def _adopt(self, orphans: Sequence[Held]) -> list[Held]:
        """Put this scheduler's name on claims of the dead; another successor may have been quicker."""
        if not orphans:
            return []
        columns = {
            "companies": [run.row.company for run in orphans],
            "runs": [run.row.run for run in orphans],
            "generations": [run.row.generation for run in orphans],
            "formers": [run.claimer for run in orphans],
        }
        mine = {"claimer": self._identity.claimer, "host": self._identity.host, "lease": self._seconds}
        with self._session.autocommit() as conn:
            rows = store.run(conn, "recovery.adopt", {**mine, **columns}).fetchall()
        won = {RunKey(row.company, row.run, row.generation) for row in rows}
        return [run for run in orphans if run.row in won]

    def _stop_overtaken(self, current: set[RunKey]) -> None:
        """What is watched and no longer this host's has lost its authority: nothing that it does can count."""
        for key in self._watch.all():
            if key not in current and key not in self._endings:
                log.warning("run %s was overtaken; its processes are stopped", key.cookie)
                self._watch.stop(key, OVERTAKEN_GRACE)

    def bury(self) -> bool:
        """Settle what hosts held that were declared dead; return whether this host is one of them."""
        with self._session.autocommit() as conn:
            dead = host_loss.is_dead(conn, self._identity.host)
            host_loss.settle(conn)
        if dead:
            log.warning(
                "host %s was declared dead: it claims nothing until a scheduler starts here", self._identity.host
            )
        return dead

    # ── stops ───────────────────────────────────────────────────────────────────────────────────────────

    def stop_runs(self) -> None:
        """Carry out the stop rows of what is watched here."""
        with self._session.autocommit() as conn:
            rows = store.run(conn, "recovery.stops", {"data": self._identity.data_id}).fetchall()
        done = [self._watch.stop(RunKey(row.company, row.run, row.generation), row.stop_grace) for row in rows]
        if all(done):
            self._retries.succeeded(("stops",))
        else:
            self._retries.failed(("stops",))

    # ── renewals ────────────────────────────────────────────────────────────────────────────────────────

    def renew_later(self) -> None:
        """Set the time of the next renewal, if there is anything to renew."""
        if len(self._watch) or len(self._starts):
            self._timers.set_earlier(("renew",), self._clock.monotonic() + self._lease.renewal.total_seconds())

    def renew(self) -> None:
        """Renew this scheduler's claims in one statement."""
        if len(self._watch) or len(self._starts):
            mine = {"host": self._identity.host, "claimer": self._identity.claimer, "lease": self._seconds}
            with self._session.autocommit() as conn:
                store.run(conn, "recovery.renew", mine)

    def expire(self, *, owner: bool) -> None:
        """Look after claims of others: those whose files are here at their expiry, the rest, as owner, later."""
        margin = self._lease.margin.total_seconds()
        here = {"data": self._identity.data_id, "margin": margin}
        with self._session.autocommit() as conn:
            if owner:
                host_loss.settle(conn)  # a claim that was committed beside somebody's word
                for row in store.run(conn, "recovery.expired_elsewhere", here).fetchall():
                    key = RunKey(row.company, row.run, row.generation)
                    reason = f"host {row.host} has not renewed it since {row.renew_by:%Y-%m-%d %H:%M:%S %Z}"
                    declare_uncertain(conn, key, reason, overdue=margin)
            others = {"claimer": self._identity.claimer, "lease": self._seconds, "everywhere": owner}
            seconds = store.run(conn, "recovery.next_look", {**here, **others}).fetchall()[0].seconds
        if seconds is None:
            self._timers.discard(("expiry",))
        else:
            self._timers.set(("expiry",), self._clock.monotonic() + seconds + SLACK)

    @property
    def _seconds(self) -> float:
        return self._lease.length.total_seconds()


def _held(row: Any) -> Held:
    key = RunKey(row.company, row.run, row.generation)
    files = RunKey(row.company, row.run, row.generation - 1) if row.uncertain else key
    return Held(key, files, row.claimed_by, row.executor, row.state, bool(row.expired))
