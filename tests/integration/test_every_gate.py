"""Each gate parks and its own producer releases, exactly one run; every pair of gates closed together."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.gate_table import GATES, SETUP, GateCase
from tests.quota import HostPlugin, open_quota

from wakeful import config, plugins
from wakeful.explain import why
from wakeful.scheduler import Scheduler, Tuning
from wakeful.testing import Database


@pytest.fixture
def conn(database: Database) -> psycopg.Connection[Any]:
    conn = database.connect()
    open_quota(conn)
    return conn


@pytest.fixture
def scheduler(database: Database, conn: psycopg.Connection[Any], tmp_path: Path) -> Iterator[Scheduler]:
    settings = config.load({"dsn": database.dsn, "data": str(tmp_path)}, os.environ, tmp_path)
    # Two gates of one receipt are opened here within seconds, and some signal each other's sources.
    running = Scheduler(settings, plugins.load(settings, plugins=[HostPlugin()]), tuning=Tuning(coalescing=1.0))
    running.start()
    assert running.wait_ready(30)
    yield running
    assert running.stop()


def prepare(conn: Connection[Any], company: str, cases: Sequence[GateCase]) -> None:
    for statement in SETUP:
        conn.execute(statement, {"c": company})
    for case in cases:
        case.close(conn, company)


def parked_on(conn: Connection[Any], company: str) -> tuple[Any, ...] | None:
    return conn.execute(
        "SELECT wait_gate, wait_key, wait_reason FROM wakeful.wake WHERE company = %s AND wait_gate IS NOT NULL"
        " AND state = 'deferred'",
        (company,),
    ).fetchone()


def runs(conn: Connection[Any], company: str) -> int:
    row = conn.execute(
        "SELECT count(*) FROM wakeful.run WHERE company = %s AND wake IS NOT NULL", (company,)
    ).fetchone()
    assert row is not None
    return int(row[0])


def is_parked_on(conn: Connection[Any], company: str, case: GateCase) -> bool:
    found = parked_on(conn, company)
    key = case.key.format(c=company)
    return found is not None and found[0] == case.gate and found[2] == case.reason and key in (found[1], "*")


@pytest.mark.parametrize("case", GATES, ids=lambda case: case.name)
def test_it_parks_says_why_and_is_released_by_its_own_producer_into_one_run(
    case: GateCase, scheduler: Scheduler, conn: Connection[Any]
) -> None:
    prepare(conn, "acme", [case])
    row = conn.execute("SELECT wake FROM wakeful.request_wake('acme', 'coder', 'I-1')").fetchone()
    assert row is not None
    wait_until(lambda: parked_on(conn, "acme"), what="the park")
    assert is_parked_on(conn, "acme", case), parked_on(conn, "acme")
    explanation = why(conn, "acme", str(row[0]))
    assert explanation.gate == case.gate
    assert explanation.opens_on
    assert explanation.since
    assert runs(conn, "acme") == 0
    case.open(conn, "acme")
    wait_until(lambda: runs(conn, "acme") == 1, what="the release")


@pytest.mark.parametrize("case", GATES, ids=lambda case: case.name)
def test_its_producer_signals_once_per_real_transition_and_not_without_one(
    case: GateCase, database: Database, conn: Connection[Any]
) -> None:
    prepare(conn, "acme", [])
    listener = Listener(database)
    case.close(conn, "acme")
    closing = [signal for signal in listener.heard() if signal["t"] == "eligibility" and signal.get("g") == case.gate]
    case.open(conn, "acme")
    opening = [signal for signal in listener.heard() if signal["t"] == "eligibility" and signal.get("g") == case.gate]
    case.open(conn, "acme")
    again = [signal for signal in listener.heard() if signal["t"] == "eligibility" and signal.get("g") == case.gate]
    # An assignment that closes the gate for one agent may open it for another, so that one signals both ways.
    assert len(closing) == (1 if case.name == "assignee" else 0)
    if case.name == "live run":
        # The end of a run signals its issue only if a wake of that issue is pending.
        assert len(opening) == 0
    else:
        assert len(opening) == 1
    # A host's own gate is the host's to judge: each call is a transition.
    assert len(again) == (1 if case.gate == "quota" else 0)


@pytest.mark.parametrize(
    "choose",
    [
        pytest.param(itertools.combinations, id="the earlier gate opens first"),
        pytest.param(itertools.permutations, id="in both orders", marks=pytest.mark.nightly),
    ],
)
def test_every_pair_releases_only_when_both_are_open(
    choose: Callable[..., Iterator[tuple[GateCase, ...]]], scheduler: Scheduler, conn: Connection[Any]
) -> None:
    pairs = {
        f"pair-{number}": pair
        for number, pair in enumerate(choose(GATES, 2))
        if (pair[0].gate, pair[0].key) != (pair[1].gate, pair[1].key)
    }
    for company, pair in pairs.items():
        prepare(conn, company, pair)
        conn.execute("SELECT wakeful.request_wake(%s, 'coder', 'I-1')", (company,))
    for company in pairs:
        wait_until(lambda company=company: parked_on(conn, company), within=60, what=f"the park of {company}")
    for company, (first, _) in pairs.items():
        first.open(conn, company)
    for company, (first, second) in pairs.items():
        wait_until(
            lambda company=company, second=second: is_parked_on(conn, company, second),
            within=60,
            what=f"waiting for {second.name} once {first.name} is open",
        )
        assert runs(conn, company) == 0, f"{first.name}, {second.name}"
    for company, (_, second) in pairs.items():
        second.open(conn, company)
    for company, (first, second) in pairs.items():
        wait_until(
            lambda company=company: runs(conn, company) == 1,
            within=60,
            what=f"the release of {first.name}, {second.name}",
        )
