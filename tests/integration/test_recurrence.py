"""Receipts that recur: the successor is saved with the fate of the one before it, once, whatever happens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.passes import admission, admit, end, row, start

from wakeful import producers
from wakeful.crash_points import CrashPoint
from wakeful.outcomes import End, Proceed, Successor, Verdict
from wakeful.receipts import Fact
from wakeful.testing import Database

Conn = psycopg.Connection[Any]
NEXT = datetime(2031, 1, 1, tzinfo=UTC)


class Beats:
    """Owner of wakes that recur; every other of them ends without a run, if it is told to."""

    name = "beat"
    kinds = frozenset({"beat"})
    reads_payload = True

    def __init__(self, verdict: type[Proceed] | type[End] = Proceed, payload: dict[str, Any] | None = None) -> None:
        self._verdict = verdict
        self._successor = Successor(NEXT, payload)

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        if self._verdict is Proceed:
            return [Proceed(successor=self._successor) for _ in facts]
        return [End("retired", "beat.missed", successor=self._successor) for _ in facts]


def beat(conn: Conn, **how: Any) -> UUID:
    made = producers.run(conn, producers.request_wake("acme", "coder", kind="beat", **how)).wake
    assert made is not None
    return made


def pending(conn: Conn) -> list[UUID]:
    return [i for (i,) in conn.execute("SELECT id FROM wakeful.wake WHERE kind = 'beat' AND state = 'deferred'")]


@pytest.mark.parametrize(("verdict", "state"), [(Proceed, "linked"), (End, "retired")])
@pytest.mark.parametrize("payload", [None, {"n": 2}])
def test_a_successor_is_the_same_wake_at_another_time(
    conn: Conn, company: str, listener: Any, verdict: Any, state: str, payload: Any
) -> None:
    how = {"issue": "I-1", "payload": {"n": 1}, "priority": 4, "estimate": 2, "actor": "user:ann", "key": "k"}
    first = beat(conn, source="timer", **how)
    listener.heard()
    admit(conn, first, by=admission(Beats(verdict, payload)))
    assert row(conn, first, "state") == (state,)
    (second,) = pending(conn)
    columns = ("agent", "issue", "priority", "estimate", "actor", "source", "key", "kind", "owner")
    assert row(conn, second, *columns) == row(conn, first, *columns)
    assert row(conn, second, "payload", "due_at", "follows") == (payload or {"n": 1}, NEXT, first)
    assert row(conn, second, "effect_root", "certified_run", "rearm_of") == (second, None, None)
    heard = [signal for signal in listener.heard() if signal.get("w")]
    assert [(s["t"], UUID(s["w"]), s["o"], s["at"]) for s in heard] == [
        ("eligibility", second, "beat", NEXT.timestamp())
    ]
    # The key answers with the wake that is to come, as long as that may be.
    again = producers.run(conn, producers.request_wake("acme", "coder", kind="beat", key="k"))
    assert (again.outcome, again.wake, again.state) == ("existing", second, "deferred")
    (expires,) = conn.execute("SELECT expires_at FROM wakeful.wake_key WHERE key = 'k'").fetchone()
    assert expires == NEXT + timedelta(days=7)


def test_a_receipt_that_parks_has_none_yet(conn: Conn, company: str) -> None:
    wake = beat(conn)
    producers.run(conn, producers.pause_agent("acme", "coder"))
    admit(conn, wake, by=admission(Beats()))
    assert pending(conn) == [wake]
    producers.run(conn, producers.resume_agent("acme", "coder"))
    assert admit(conn, wake, signalled=True, by=admission(Beats())).runs
    assert len(pending(conn)) == 1


@pytest.mark.parametrize("verdict", [Proceed, End])
def test_a_pass_that_dies_before_its_commit_leaves_none(
    database: Database, conn: Conn, company: str, verdict: Any
) -> None:
    wake = beat(conn)

    class Died(psycopg.OperationalError):
        pass

    def die(point: str) -> None:
        if point == CrashPoint.ADMISSION_BEFORE_COMMIT:
            raise Died

    with pytest.raises(Died):
        admit(database.connect(), wake, by=admission(Beats(verdict), crash=die))
    assert pending(conn) == [wake]
    admit(conn, wake, by=admission(Beats(verdict)))
    (second,) = pending(conn)
    assert second != wake


def test_a_re_armed_receipt_gets_no_second_one(conn: Conn, company: str) -> None:
    wake = beat(conn)
    judged = admission(Beats())
    admit(conn, wake, by=judged)
    (following,) = pending(conn)
    for _ in range(2):  # also one that is re-armed again
        (key,) = start(conn)
        end(conn, key)
        wake = producers.run(conn, producers.rearm_wake("acme", wake)).wake
        assert wake is not None
        assert admit(conn, wake, by=judged).runs
        assert pending(conn) == [following]


def test_a_recurrence_that_was_taken_back_goes_on_when_it_is_re_armed(conn: Conn, company: str) -> None:
    wake = beat(conn)
    producers.run(conn, producers.retire_wake("acme", wake))
    admit(conn, wake, by=admission(Beats()))
    assert pending(conn) == []
    again = producers.run(conn, producers.rearm_wake("acme", wake)).wake
    assert again is not None
    assert admit(conn, again, by=admission(Beats())).runs
    assert len(pending(conn)) == 1


def test_a_whole_pass_recurs_each_to_its_own(conn: Conn, company: str) -> None:
    wakes = [beat(conn, payload={"n": n}) for n in range(50)]
    admit(conn, *wakes, by=admission(Beats()))
    found = conn.execute("SELECT follows, payload ->> 'n' FROM wakeful.wake WHERE state = 'deferred' ORDER BY follows")
    assert list(found) == [(wake, str(n)) for n, wake in enumerate(wakes)]
