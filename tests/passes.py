"""Admission passes by hand: the first-party owners, one company, and what its signals would lead a driver to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from uuid import UUID

import psycopg

from wakeful import claims, store, terminals
from wakeful.admission import Admission, PassResult
from wakeful.claims import Claimant
from wakeful.crash_points import Crash, no_crash
from wakeful.executions import EndClass, Grade, RunKey
from wakeful.outcomes import Gate, Park
from wakeful.owners import Owner
from wakeful.results import Conclusion
from wakeful_plugins.execution_wait import Waits
from wakeful_plugins.interrupt import Interrupts
from wakeful_plugins.native_status import StatusIntents
from wakeful_plugins.request import Requests
from wakeful_plugins.saved_comments import SavedComments
from wakeful_plugins.task_retry import Retries, Settlements

Conn = psycopg.Connection[Any]
T = TypeVar("T")

WHO = Claimant("test-host", "test-data/test-scheduler", (), ("local",), 60.0)


def owners() -> list[Owner]:
    return [Interrupts(), Requests(), Retries(), SavedComments(), Settlements(), Waits(), StatusIntents()]


def admission(
    *more: Owner, gates: Sequence[Any] = (), crash: Crash = no_crash, only: Sequence[Owner] | None = None
) -> Admission:
    return Admission([*(owners() if only is None else only), *more], gates, crash=crash, draw=lambda: 0.5)


def admit(conn: Conn, *wakes: UUID, signalled: bool = False, by: Admission | None = None) -> PassResult:
    return (by or admission()).admit(conn, "acme", dict.fromkeys(wakes, signalled))


def parked(result: PassResult, wake: UUID) -> str:
    """The reason a wake was parked with."""
    outcome = result.outcomes[wake]
    assert isinstance(outcome, Park), outcome
    return outcome.refusal.reason


def follow(conn: Conn, signals: Iterable[Mapping[str, Any]]) -> list[UUID]:
    """The parked receipts that a driver would look at after these signals."""
    found = set()
    for signal in signals:
        if signal["t"] == "eligibility" and signal.get("g"):
            wide = {"issue": "window.waiting_on_issue", "agent": "window.waiting_for_agent"}
            block = wide.get(signal["g"], "window.parked")
            parameters = {
                "company": signal["c"],
                "gate": signal["g"],
                "key": signal["k"],
                "after": UUID(int=0),
                "limit": 100,
            }
            found |= {row.id for row in store.run(conn, block, parameters)}
    return sorted(found)


def row(conn: Conn, wake: UUID, *columns: str) -> tuple[Any, ...]:
    found = conn.execute(f"SELECT {', '.join(columns)} FROM wakeful.wake WHERE id = %s", (wake,)).fetchone()  # noqa: S608 - column names of a test
    assert found is not None
    return found


def runs(conn: Conn, where: str = "true", *arguments: Any) -> list[UUID]:
    return [r[0] for r in conn.execute(f"SELECT id FROM wakeful.run WHERE {where} ORDER BY id", arguments)]  # noqa: S608 - a test's own words


def start(
    conn: Conn, company: str = "acme", *, gate: Gate | None = None, crash: Crash = no_crash
) -> tuple[RunKey, ...]:
    """Claim what can be claimed, or what waits on a gate, as a dispatcher does."""
    return claims.claim(conn, company, WHO, limit=100, gate=gate, crash=crash).started


def end(conn: Conn, key: RunKey, state: str = "failed", *, crash: Crash = no_crash) -> None:
    """The terminal of a run, as a dispatcher writes it."""
    ending = terminals.Ending(key, Conclusion(state, EndClass.FAILED, "run.failed"), grade=Grade.CONTAINED)
    terminals.record(conn, key.company, [ending], crash=crash)


class Held(Generic[T]):
    """Work in a thread of its own, which stands at a crash point until it is told to go on."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="held work", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error

    def result(self, within: float = 20.0) -> T:
        self._thread.join(within)
        assert not self._thread.is_alive(), "the held work did not end"
        if self._error is not None:
            raise self._error
        return self._result[0]


def together(*works: Callable[[], T]) -> list[T]:
    """Run all at once, begun at one barrier."""
    barrier = threading.Barrier(len(works))

    def after_all_are_ready(work: Callable[[], T]) -> Callable[[], T]:
        def begin() -> T:
            barrier.wait(10)
            return work()

        return begin

    return [held.result(60) for held in [Held(after_all_are_ready(work)) for work in works]]
