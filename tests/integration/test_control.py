"""The control session: hears everything, keeps itself alive without a statement, and never opens a transaction."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.conditions import wait_until

from wakeful import store
from wakeful.control import Control, Pace
from wakeful.signals import Signal
from wakeful.testing import Database, Statements

Conn = psycopg.Connection[Any]
QUICK = Pace(
    keep_alive=timedelta(milliseconds=5),
    frozen=timedelta(seconds=2),
    contend=timedelta(milliseconds=20),
    poll=timedelta(milliseconds=20),
)


class Ear:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.told: list[str] = []
        self.up = threading.Event()

    def connected(self, *, owner: bool) -> None:
        self.told.append("owner" if owner else "standby")
        self.up.set()

    def signalled(self, signal: Signal) -> None:
        self.signals.append(signal)

    def ownership(self, *, owner: bool) -> None:
        self.told.append("won" if owner else "lost")

    def disconnected(self, error: BaseException) -> None:
        self.told.append("disconnected")
        self.up.clear()


Start = Callable[..., tuple[Control, Ear]]


@pytest.fixture
def start(database: Database) -> Iterator[Start]:
    started = []

    def starts(pace: Pace = QUICK, dsn: str | None = None, **how: Any) -> tuple[Control, Ear]:
        ear = Ear()
        control = Control(dsn or database.dsn, ear, pace=pace, draw=lambda: 0.0, **how)
        control.start()
        started.append(control)
        return control, ear

    yield starts
    for control in started:
        control.stop()
        control.join(10)
        assert not control.is_alive()


def pid(conn: Conn) -> int:
    found = conn.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'wakeful control'"
    ).fetchone()
    assert found is not None
    return int(found[0])


def signal(conn: Conn, key: str) -> None:
    conn.execute(
        "SELECT pg_notify('wakeful', %s)", (json.dumps({"t": "eligibility", "c": "acme", "g": "x", "k": key}),)
    )


def test_hundreds_of_keep_alives_lose_no_notification_and_count_as_no_statement(
    conn: Conn, database: Database, start: Start, statements: Statements
) -> None:
    _, ear = start()
    assert ear.up.wait(10)
    statements.reset()
    for n in range(3000):
        signal(conn, str(n))
    wait_until(lambda: len(ear.signals) >= 3000, what="3000 signals")
    assert [s.key for s in ear.signals] == [str(n) for n in range(3000)]
    beats = "SELECT state_change FROM pg_stat_activity WHERE pid = %s"
    seen: set[Any] = set()
    mine = pid(conn)
    wait_until(lambda: seen.add(conn.execute(beats, (mine,)).fetchone()) or len(seen) > 20, what="20 keep-alives")
    ran = [
        one.text for one in statements.executed() if "pg_notify" not in one.text and "pg_stat_activity" not in one.text
    ]
    assert ran == []


def test_its_session_opens_no_transaction_and_ends_when_it_freezes(conn: Conn, start: Start) -> None:
    _, ear = start()
    assert ear.up.wait(10)
    state = conn.execute("SELECT state, backend_xmin, xact_start FROM pg_stat_activity WHERE pid = %s", (pid(conn),))
    assert state.fetchone() == ("idle", None, None)


def test_a_session_that_says_nothing_is_ended_by_the_server(conn: Conn, start: Start) -> None:
    _, ear = start(Pace(keep_alive=timedelta(seconds=30), frozen=timedelta(seconds=0.2)))
    wait_until(lambda: ear.told[:3] == ["owner", "disconnected", "owner"], what="a new session")


def test_a_killed_session_comes_back_and_hears_again(conn: Conn, start: Start) -> None:
    _, ear = start()
    assert ear.up.wait(10)
    conn.execute("SELECT pg_terminate_backend(%s)", (pid(conn),))
    wait_until(lambda: ear.told == ["owner", "disconnected", "owner"], what="a new session")
    signal(conn, "again")
    wait_until(lambda: ear.signals, what="a signal")


def test_one_of_several_owns_and_the_next_takes_over(conn: Conn, start: Start) -> None:
    first, one = start()
    assert one.up.wait(10)
    _, two = start()
    assert two.up.wait(10)
    assert (one.told, two.told) == (["owner"], ["standby"])
    first.stop()
    wait_until(lambda: two.told == ["standby", "won"], what="the takeover")


def test_one_that_may_not_own_never_tries(conn: Conn, start: Start, statements: Statements) -> None:
    _, ear = start(own=False)
    assert ear.up.wait(10)
    _, other = start()
    assert other.up.wait(10)
    assert (ear.told, other.told) == (["standby"], ["owner"])


def test_where_notifications_are_replaced_by_polling_it_asks_for_everything_each_time(conn: Conn, start: Start) -> None:
    control, ear = start(listen=False)
    wait_until(lambda: len(ear.told) > 5, what="polls")
    signal(conn, "unheard")
    seen = len(ear.told)
    wait_until(lambda: len(ear.told) > seen + 2, what="more polls")
    assert (set(ear.told), ear.signals, control.strange) == ({"owner"}, [], 0)


def test_a_server_that_is_not_there_is_tried_again(start: Start, tmp_path: Any) -> None:
    _, ear = start(dsn=f"host={tmp_path} user=nobody")
    wait_until(lambda: ear.told.count("disconnected") >= 3, what="three tries")
    assert set(ear.told) == {"disconnected"}


def test_a_stop_ends_the_wait_at_once(start: Start) -> None:
    control, ear = start(Pace())
    assert ear.up.wait(10)
    control.stop()
    control.join(3)
    assert not control.is_alive()
    assert ear.told == ["owner"]


def test_the_lock_is_the_one_that_stands_for_all_shards(conn: Conn, start: Start) -> None:
    _, ear = start()
    assert ear.up.wait(10)
    assert store.run(conn, "control.try_owners_lock").fetchall()[0].held is False
