"""What executions had to say, on its way into their rows.

Kept in memory until it is written: after a failure it is simply written again, and whatever another authority
has overtaken meanwhile is refused by the fence. What nobody can prove is declared uncertain, and examined again
now and then: proof may still come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from wakeful import post_mortem, store, terminals, transcripts
from wakeful.attendance import Attendance, Parts
from wakeful.attendants import Answer
from wakeful.batch import Batch
from wakeful.connections import Session
from wakeful.crash_points import Crash
from wakeful.database_errors import is_transient
from wakeful.doubt import declare_uncertain
from wakeful.examiner import Examiner
from wakeful.executions import Ended, Pending, RunKey, Running, Status, Uncertain, Vanished
from wakeful.readers import ResultReader
from wakeful.retention import delete_freed
from wakeful.retries import Retries
from wakeful.terminals import Death, Ending
from wakeful.watch import OVERTAKEN_GRACE, Watch

log = logging.getLogger("wakeful.endings")

BATCH = 100
PATIENCE = 3  # examinations in a row that must prove nothing before a run is declared uncertain


class Endings:
    """Takes the statuses of executions and writes them. For the dispatcher's thread.

    Arguments:
        attendance: asked about each end before it is written.
        host: whose files retention may delete here.
        readers: result readers, by name.
        ended: called after each commit with every ending that took effect.
        freed: called under no lock whenever executions left the watch.
        requeued: called with the company of runs that went back to their queue.
    """

    def __init__(
        self,
        session: Session,
        watch: Watch,
        examiner: Examiner,
        attendance: Attendance,
        retries: Retries,
        host: str,
        *,
        readers: Mapping[str, ResultReader],
        ended: Callable[[Ending], None],
        freed: Callable[[], None],
        requeued: Callable[[str], None],
        crash: Crash,
    ) -> None:
        self._session = session
        self._watch = watch
        self._examiner = examiner
        self._attendance = attendance
        self._retries = retries
        self._host = host
        self._readers = readers
        self._ended = ended
        self._freed = freed
        self._requeued = requeued
        self._crash = crash
        self._unwritten: dict[RunKey, Status] = {}
        self._aside: set[RunKey] = set()
        self._doubted: dict[RunKey, tuple[RunKey, str]] = {}  # files of an overtaken generation -> row's key, executor
        self._fruitless: dict[RunKey, int] = {}
        self._causes: dict[RunKey, str] = {}
        self._stop_messages: dict[RunKey, str] = {}

    def __contains__(self, key: RunKey) -> bool:
        return key in self._unwritten or key in self._doubted or key in self._attendance

    def tell(self, key: RunKey, status: Status) -> None:
        """Take a status, to be written with the next :meth:`write`."""
        self._unwritten[key] = status

    def examined(self, key: RunKey, status: Status) -> None:
        """Take what an examination found out."""
        self._watch.examined(key)
        if not isinstance(status, Uncertain) and not post_mortem.is_hearsay(status):
            self._fruitless.pop(key, None)
            self._retries.succeeded(("examine", key))
        self._unwritten[key] = status

    def attended(self, key: RunKey, answer: Answer) -> None:
        """Take what the attendants said about an end."""
        status = self._attendance.take(key, answer)
        if status is not None:
            self._unwritten[key] = status

    def not_started(self, key: RunKey, cause: str) -> None:
        """Its executor refused to start it; the files say whether it did nevertheless."""
        self._causes[key] = cause
        self.examine(key, self._watch.name(key))

    def stop_message(self, key: RunKey, message: str) -> None:
        """Say why a run was stopped that nobody asked to stop."""
        self._stop_messages[key] = message

    def doubt(self, files: RunKey, row: RunKey, executor: str) -> None:
        """The row was declared uncertain: what its files prove frees it, what they report is refused."""
        self._doubted[files] = (row, executor)
        self._attendance.drop(files)  # what was asked about is no end of the row any more
        self.examine(files, executor)

    def doubts(self, files: RunKey) -> bool:
        """Whether an execution's row was declared uncertain."""
        return files in self._doubted

    def examine(self, key: RunKey, executor: str) -> None:
        """Have an execution examined, unless it is being examined."""
        if self._watch.examine(key):
            self._examiner.ask(executor, key)

    def examine_again(self, key: RunKey) -> None:
        """The pause after a fruitless examination is over."""
        if key in self._doubted:
            self.examine(key, self._doubted[key][1])
        elif key in self._watch:
            self.examine(key, self._watch.name(key))

    def poll(self) -> None:
        """Take over what executors have to say; what a poll cannot prove is examined."""
        for key, status in self._watch.poll():
            if isinstance(status, Uncertain):
                self.examine(key, self._watch.name(key))
            else:
                self._unwritten[key] = status
        if self._watch.unheard:
            self._retries.failed(("poll",))
        else:
            self._retries.succeeded(("poll",))

    def write(self) -> None:
        """Write what was told, per company; what cannot be written now stays. Raises DatabaseUnavailable, Conflict."""
        by_company: dict[str, list[RunKey]] = {}
        for key in self._unwritten:
            if key not in self._aside:
                by_company.setdefault(key.company, []).append(key)
        for company, keys in by_company.items():
            for start in range(0, len(keys), BATCH):
                self._write_batch(company, keys[start : start + BATCH])

    def write_aside(self) -> None:
        """The pause of what could not be written is over."""
        self._aside.clear()

    # ── sorting ─────────────────────────────────────────────────────────────────────────────────────────

    def _write_batch(self, company: str, keys: Sequence[RunKey]) -> None:
        fresh = [key for key in keys if key not in self._doubted and key not in self._attendance]
        told = [(self._watch.executor(key), self._unwritten[key]) for key in fresh]
        batch = Batch(transcripts.said(self._session, company, told, self._readers))
        for key in keys:
            if key in self._attendance:  # asked about: what it says meanwhile is no news
                passed = self._attendance.attended(key)
                batch.add(passed.endings, passed.deaths)
                continue
            part = batch.part()
            self._sort(part, key, self._unwritten[key])
            if not self._attendance.ask(key, Parts(self._unwritten[key], (*part.endings,), (*part.deaths,))):
                batch.join(part)
        with self._session.autocommit() as conn:
            if batch.started:
                runs, generations, at = (list(column) for column in zip(*batch.started, strict=True))
                parameters = {"company": company, "runs": runs, "generations": generations, "at": at}
                store.run(conn, "dispatch.started", parameters)
        for run, generation, _ in batch.started:
            self._watch.runs(RunKey(company, run, generation))
        self._record(company, batch.endings, batch.deaths)
        for key, reason in batch.doubts:
            self._declare_uncertain(key, reason)
        for key in keys:
            if key not in self._aside:
                self._unwritten.pop(key, None)

    def _sort(self, batch: Batch, key: RunKey, status: Status) -> None:
        if isinstance(status, Vanished) and post_mortem.is_hearsay(status):
            status = Uncertain("only its engine says that it is dead")
        if key in self._doubted:
            self._sort_doubted(batch, key, status)
        elif isinstance(status, Uncertain):
            self._sort_unproven(batch, key, status.reason)
        else:
            cause, message = self._causes.get(key), self._stop_messages.get(key)
            batch.sort(key, status, cause=cause, stop_message=message)

    def _sort_unproven(self, batch: Batch, key: RunKey, reason: str) -> None:
        """Doubt overtakes whatever lives, so what passes by itself, such as a full table of files, is waited out."""
        self._fruitless[key] = self._fruitless.get(key, 0) + 1
        if self._fruitless[key] < PATIENCE:
            self._retries.failed(("examine", key))
        else:
            batch.doubts.append((key, reason))

    def _sort_doubted(self, batch: Batch, key: RunKey, status: Status) -> None:
        """Its own host looked at a run that was declared uncertain."""
        row, executor = self._doubted[key]
        if isinstance(status, Uncertain) or post_mortem.is_hearsay(status):
            self._retries.failed(("examine", key))
        elif isinstance(status, Running):
            # Its authority is gone, so nothing it does can count any more: the sooner it ends the better.
            self._watch.add(key, executor, started=True)
            if not self._watch.stop(key, OVERTAKEN_GRACE):
                self._retries.failed(("examine", key))
        elif not isinstance(status, Pending):
            batch.deaths.append(post_mortem.proof(row, status))
            if isinstance(status, Ended):
                batch.endings.append(post_mortem.ending(key, status.report))

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────

    def _record(self, company: str, endings: Sequence[Ending], deaths: Sequence[Death]) -> None:
        """Write ends and deaths; one that cannot be written is found by halving, and holds up no other."""
        if not endings and not deaths:
            return
        try:
            with self._session.autocommit() as conn:
                settled = terminals.record(conn, company, endings, deaths, crash=self._crash)
        except Exception as error:
            if is_transient(error):
                raise
            self._narrow_down(company, endings, deaths, error)
            return
        self._settled(company, endings, deaths, settled)

    def _narrow_down(self, company: str, endings: Sequence[Ending], deaths: Sequence[Death], error: Exception) -> None:
        if len(endings) + len(deaths) > 1:
            for part in _halves(len(endings)):
                self._record(company, endings[part], [])
            for part in _halves(len(deaths)):
                self._record(company, [], deaths[part])
            return
        rest = post_mortem.bare(endings[0], error) if endings else None
        if rest is not None:
            log.warning("the end of %s cannot be stored as it is: %s", rest.key.cookie, error)
            self._record(company, [rest], [])
            return
        key = endings[0].key if endings else deaths[0].key
        log.error("the end of %s cannot be stored: %s", key.cookie, error)
        self._aside.update(files for files in self._unwritten if files.run == key.run)
        self._retries.failed(("write",))

    def _settled(
        self, company: str, endings: Sequence[Ending], deaths: Sequence[Death], settled: terminals.Settled
    ) -> None:
        keys = [ending.key for ending in endings] + [death.key for death in deaths]
        rows = {row: files for files, (row, _) in self._doubted.items()}
        states = {ending.key: ending.conclusion.state for ending in endings}
        for key in keys:
            landed = [states.get(key, "died")] if key in settled.ended else []
            self._forget(rows.get(key, key), landed)
        self._freed()
        delete_freed(self._host, settled.freed)
        if settled.requeued:
            self._requeued(company)
        for ending in endings:
            if ending.key in settled.ended:
                self._ended(ending)
        for death in (death for death in deaths if death.key in settled.requeued):
            log.warning("run %s died: %s; it is tried again within its attempts", death.key.cookie, death.error)
        for key in settled.refused:
            log.info("a late report of %s was refused", key.cookie)

    def _forget(self, key: RunKey, landed: Sequence[str] = ()) -> None:
        self._watch.drop(key)
        self._attendance.written(key, landed)
        self._fruitless.pop(key, None)
        self._causes.pop(key, None)
        self._stop_messages.pop(key, None)
        self._doubted.pop(key, None)
        self._retries.succeeded(("examine", key))

    def _declare_uncertain(self, key: RunKey, reason: str) -> None:
        with self._session.autocommit() as conn:
            declared = declare_uncertain(conn, key, reason, overdue=None)
        executor = self._watch.name(key) if key in self._watch else None
        self._watch.drop(key)
        self._fruitless.pop(key, None)
        self._freed()
        if declared and executor is not None:
            self._doubted[key] = (replace(key, generation=key.generation + 1), executor)
            self._retries.failed(("examine", key))


def _halves(length: int) -> tuple[slice, slice]:
    return slice(0, (length + 1) // 2), slice((length + 1) // 2, length)
