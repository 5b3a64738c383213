"""Circuits: equal ends in a row stop an agent until a person has looked."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conftest import Listener
from tests.integration import scripted
from tests.passes import Held, admit, parked, start

from wakeful import post_mortem, terminals
from wakeful.crash_points import CrashPoint, no_crash
from wakeful.executions import EndClass, RunKey
from wakeful.explain import why
from wakeful.testing import Database, HoldAt, expect_blocked

Conn = psycopg.Connection[Any]
WELL: dict[str, Any] = {"exit_code": 0}
BADLY: dict[str, Any] = {"exit_code": 3}
OTHERWISE: dict[str, Any] = {"exit_code": 4}
LIMITED: dict[str, Any] = {"result": b'{"class": "provider_limited", "until": "2090-01-01T00:00:00+00:00"}'}
STOPPED: dict[str, Any] = {"exit_code": None, "signal": 15, "ended_by": EndClass.STOPPED}

pytestmark = pytest.mark.usefixtures("company")


def request(conn: Conn, agent: str = "coder") -> UUID:
    return conn.execute("SELECT wake FROM wakeful.request_wake('acme', %s)", (agent,)).fetchone()[0]


def started(conn: Conn, number: int = 1, agent: str = "coder") -> list[RunKey]:
    admit(conn, *(request(conn, agent) for _ in range(number)))
    keys = start(conn)
    assert len(keys) == number
    return list(keys)


def end(conn: Conn, key: RunKey, how: dict[str, Any], crash: Any = no_crash) -> None:
    terminals.record(conn, "acme", [post_mortem.ending(key, scripted.report(key, **how))], crash=crash)


def ends(conn: Conn, *how: dict[str, Any], agent: str = "coder") -> None:
    for one, key in zip(how, started(conn, len(how), agent), strict=True):
        end(conn, key, one)


def is_closed(conn: Conn, agent: str = "coder") -> bool:
    row = conn.execute("SELECT opened_at IS NOT NULL FROM wakeful.circuit WHERE agent = %s", (agent,)).fetchone()
    return bool(row and row[0])


def test_five_equal_ends_close_it_and_four_do_not(conn: Conn) -> None:
    ends(conn, *[BADLY] * 4)
    assert not is_closed(conn)
    ends(conn, BADLY)
    assert is_closed(conn)
    wake = request(conn)
    assert parked(admit(conn, wake), wake) == "circuit.open"
    told = why(conn, "acme", wake)
    assert (told.gate, told.key, told.reason) == ("circuit", "coder", "circuit.open")
    assert told.opens_on == "wakeful agent reset-circuit coder"
    assert told.since is not None
    assert told.because == "agent coder ended several times in a row alike: failed run.failed 3"
    assert (told.reopens_at, told.message) == (None, told.because)


@pytest.mark.parametrize("between", [OTHERWISE, WELL], ids=["another failure", "a success"])
def test_a_different_end_in_between_begins_the_row_anew(conn: Conn, between: dict[str, Any]) -> None:
    ends(conn, *[BADLY] * 4, between, *[BADLY] * 4)
    assert not is_closed(conn)
    ends(conn, BADLY)
    assert is_closed(conn)


@pytest.mark.parametrize("between", [LIMITED, STOPPED], ids=["a provider's limit", "a stop"])
def test_what_is_no_fault_of_the_agent_s_neither_counts_nor_interrupts(conn: Conn, between: dict[str, Any]) -> None:
    ends(conn, *[BADLY] * 4, *[between] * 6)
    assert not is_closed(conn)
    ends(conn, BADLY)
    assert is_closed(conn)


def test_another_agent_s_ends_do_not_count(conn: Conn) -> None:
    conn.execute("SELECT wakeful.add_agent('acme', 'other', ARRAY['true'])")
    ends(conn, *[BADLY] * 4)
    ends(conn, *[BADLY] * 4, agent="other")
    assert not is_closed(conn)
    ends(conn, BADLY, agent="other")
    assert is_closed(conn, "other")
    assert not is_closed(conn)


def test_the_number_is_a_setting(conn: Conn) -> None:
    conn.execute("SELECT wakeful.set_setting('circuit_ends', '2')")
    ends(conn, BADLY)
    assert not is_closed(conn)
    ends(conn, BADLY)
    assert is_closed(conn)


def test_a_reset_opens_it_signals_once_and_begins_anew(conn: Conn, listener: Listener) -> None:
    ends(conn, *[BADLY] * 5)
    wake = request(conn)
    admit(conn, wake)
    listener.heard()
    assert conn.execute("SELECT outcome FROM wakeful.reset_circuit('acme', 'coder')").fetchone() == ("merged",)
    assert listener.gates() == [("eligibility", "circuit", "coder"), ("dispatch", "circuit", "coder")]
    assert conn.execute("SELECT outcome FROM wakeful.reset_circuit('acme', 'coder')").fetchone() == ("existing",)
    assert listener.gates() == []
    assert admit(conn, wake, signalled=True).runs
    (key,) = start(conn)
    end(conn, key, BADLY)
    ends(conn, *[BADLY] * 3)
    assert not is_closed(conn)
    ends(conn, BADLY)
    assert is_closed(conn)


def test_a_queued_run_waits_behind_it_at_its_claim(conn: Conn) -> None:
    keys = started(conn, 5)
    admit(conn, request(conn))
    for key in keys:
        end(conn, key, BADLY)
    assert start(conn) == ()
    told = why(conn, "acme", conn.execute("SELECT id FROM wakeful.run WHERE state = 'queued'").fetchone()[0])
    assert (told.gate, told.key) == ("circuit", "coder")


def test_of_two_ends_at_once_each_counts_the_other(conn: Conn, database: Database) -> None:
    conn.execute("SELECT wakeful.set_setting('circuit_ends', '2')")
    one, other = started(conn, 2)
    hold, behind = HoldAt(CrashPoint.TERMINAL_BEFORE_COMMIT), database.connect()
    first = Held(lambda: end(behind, one, BADLY, crash=hold))
    hold.wait_reached()
    with expect_blocked(
        lambda: end(database.connect(), other, BADLY), behind=behind, watcher=conn, lock="advisory"
    ) as second:
        hold.release()
        first.result()
        second.result()
    assert is_closed(conn)
