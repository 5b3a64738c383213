"""Reconstructions: what a signal asks for, page by page; coalesced, and never too late for any signal."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conditions import wait_until
from tests.gatekeeper import Calls, Gatekeeper
from tests.passes import row, runs
from tests.rows import count, request, say
from tests.schedulers import InstantExecutor, Schedulers, WatchedClock, all_heard

from wakeful import producers
from wakeful.coalesce import FIRST_ID, Coalescer
from wakeful.lookout import Lookout
from wakeful.scheduler import Tuning
from wakeful.testing import Statements

Conn = psycopg.Connection[Any]
ACME, CODER = "acme", "coder"
NEVER = 3600.0  # a window that no test outlives: what has to wait for its end does not happen

pytestmark = pytest.mark.usefixtures("web")


def signal(conn: Conn, gate: str, key: str, times: int = 1) -> None:
    """Signal owners, each time in a transaction of its own: equal ones of one transaction are delivered as one."""
    loop = (
        f"FOR n IN 1..{times} LOOP PERFORM wakeful.notify('eligibility', 'acme', '{gate}', '{key}'); COMMIT; END LOOP"
    )
    conn.execute(f"DO $$ BEGIN {loop}; END $$")


def parked_in_silence(conn: Conn, clock: WatchedClock, many: int, issue: str | None = None) -> list[UUID]:
    """Wakes that are parked, and whose grace and its one revalidation are over."""
    wakes = [request(conn, issue) for _ in range(many)]
    wait_until(lambda: count(conn, "wait_reason IS NOT NULL") == many, what="all parked")
    clock.settle()
    clock.step(31)
    wait_until(lambda: count(conn, "wait_reason IS NOT NULL AND due_at IS NULL") == many, what="silence")
    clock.settle()
    return wakes


def wait_ended(conn: Conn, many: int) -> None:
    wait_until(lambda: len(runs(conn, "ended_at IS NOT NULL")) == many, what=f"{many} ended runs")


# ── coalescing ──────────────────────────────────────────────────────────────────────────────────────────


def test_10_000_signals_of_one_source_that_stays_closed_are_two_reconstructions(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    scheduler = fleet.start(Tuning(clock=watched))
    say(conn, producers.pause_company(ACME))
    parked_in_silence(conn, watched, 3)
    walks, passes = scheduler.driver.walks, scheduler.driver.passes
    statements.reset()
    signal(conn, "company", ACME, 10_000)
    all_heard(conn, scheduler)
    watched.settle()
    assert scheduler.driver.walks == walks + 1
    for _ in range(10):
        watched.step(31)
    assert scheduler.driver.walks == walks + 2
    assert scheduler.driver.passes == passes + 2
    pages = [one.calls for one in statements.executed() if "w.wait_key = $" in one.text and "w.id > $" in one.text]
    assert pages == [2]


def test_what_opens_within_the_window_is_released_at_its_end_and_until_then_nothing_is_read(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    scheduler = fleet.start(Tuning(clock=watched))
    say(conn, producers.pause_company(ACME))
    parked_in_silence(conn, watched, 1)
    signal(conn, "company", ACME)
    wait_until(lambda: scheduler.driver.walks == 1, what="the walk")
    watched.settle()
    say(conn, producers.resume_company(ACME))
    all_heard(conn, scheduler)
    watched.settle()
    statements.reset()
    for _ in range(5):
        watched.step(5)
    assert [
        one.text for one in statements.executed() if "wakeful.clock" not in one.text and "wakeful." in one.text
    ] == []
    assert runs(conn) == []
    watched.step(6)
    wait_ended(conn, 1)


def test_a_flood_of_signals_with_nothing_behind_them_is_one_page_and_delays_nobody_who_parks_there_later(
    conn: Conn, fleet: Schedulers
) -> None:
    scheduler = fleet.start(Tuning(coalescing=NEVER))
    for gate, key in (("company", ACME), ("agent", CODER), ("issue", "I-1")):
        signal(conn, gate, key, 500)
    all_heard(conn, scheduler)
    wait_until(lambda: scheduler.driver.walks == 3, what="a walk each")
    for n, (close, open_) in enumerate(
        [
            (producers.pause_company(ACME), producers.resume_company(ACME)),
            (producers.pause_agent(ACME, CODER), producers.resume_agent(ACME, CODER)),
            (producers.assign_issue(ACME, "I-1", "user:ann"), producers.assign_issue(ACME, "I-1", None)),
        ]
    ):
        say(conn, close)
        wake = request(conn)
        wait_until(lambda wake=wake: row(conn, wake, "wait_reason") != (None,), what="the park")  # type: ignore[misc]  # mypy cannot infer such a lambda
        say(conn, open_)
        wait_ended(conn, n + 1)


def test_a_source_that_brings_work_is_never_delayed(conn: Conn, fleet: Schedulers) -> None:
    executor = InstantExecutor()
    executor.holding = True
    scheduler = fleet.start(Tuning(coalescing=NEVER), executor=executor)
    say(conn, producers.add_agent(ACME, CODER, ["true"], max_concurrent_runs=1))
    for _ in range(12):
        request(conn, None)
    wait_until(lambda: count(conn, "wait_reason IS NOT NULL") == 11, what="all but one parked")
    wait_until(lambda: runs(conn, "state = 'running'"), what="the one that runs")
    executor.let_go()
    wait_ended(conn, 12)
    assert scheduler.driver.walks >= 11


# ── a signal at every point of a walk ───────────────────────────────────────────────────────────────────


def is_page(nth: int) -> Any:
    """Whether a call of ``Lookout.page`` is for the n-th page of the walk behind the company's gate."""
    pages: list[UUID] = []

    def when(lookout: Lookout, conn: Conn, source: tuple[str, str, str], after: UUID) -> bool:
        if source == (ACME, "company", ACME):
            pages.append(after)
        return len(pages) == nth and (nth > 1 or after == FIRST_ID)

    return when


def is_last(coalescer: Coalescer, walk: Any, now: float, **found: Any) -> bool:
    return walk.source == (ACME, "company", ACME) and found["after"] is None


POINTS: list[tuple[str, Any, str, Any]] = [
    ("before its first page", Lookout, "page", is_page(1)),
    ("between two pages", Lookout, "page", is_page(2)),
    ("after its last page", Coalescer, "looked", is_last),
]


@pytest.mark.parametrize(("owner", "name", "when"), [point[1:] for point in POINTS], ids=[p[0] for p in POINTS])
def test_a_signal_at_any_point_of_a_walk_leads_to_a_walk_that_begins_after_it(
    conn: Conn,
    fleet: Schedulers,
    watched: WatchedClock,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    when: Any,
) -> None:
    """The gate opens while the driver is held: what its pages had found closed is looked at again."""
    executor = InstantExecutor()
    scheduler = fleet.start(Tuning(clock=watched), executor=executor)
    say(conn, producers.pause_company(ACME))
    wakes = parked_in_silence(conn, watched, 220)  # three pages
    keeper = Gatekeeper(monkeypatch, owner, name, when)
    signal(conn, "company", ACME)
    assert keeper.reached.wait(20)
    say(conn, producers.resume_company(ACME))
    all_heard(conn, scheduler)
    keeper.open.set()
    if name == "looked":
        watched.settle()
        assert executor.submitted == [], "all of it was closed when it was looked at"
        watched.step(31)
    wait_ended(conn, len(wakes))
    assert len(executor.submitted) == len(wakes)
    walks = scheduler.driver.walks
    watched.step(31)
    assert (count(conn, "state = 'linked'"), scheduler.driver.walks) == (len(wakes), walks)


def test_what_changes_between_pages_makes_nothing_appear_twice_or_get_lost(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D11: the key of a walk never changes, whatever becomes of deadlines, priorities and waits on the way."""
    scheduler = fleet.start(Tuning(clock=watched))
    say(conn, producers.pause_company(ACME))
    wakes = parked_in_silence(conn, watched, 250)
    calls = Calls(monkeypatch, Lookout, "page")
    keeper = Gatekeeper(monkeypatch, Lookout, "page", is_page(2))
    signal(conn, "company", ACME)
    assert keeper.reached.wait(20)
    (first,) = calls.answers
    assert first == sorted(wakes)[:100]
    ended, moved = sorted(wakes)[150], sorted(wakes)[200]
    change = "UPDATE wakeful.wake SET due_at = wakeful.wall() + interval '1 day', priority = 9, version = version + 1"
    conn.execute(f"{change} WHERE id = ANY (%s)", ([*first[::2], first[-1], moved],))
    conn.execute("UPDATE wakeful.wake SET examined_at = wakeful.wall() WHERE id = ANY (%s)", (first,))
    say(conn, producers.retire_wake(ACME, ended))
    keeper.open.set()
    wait_until(lambda: len(calls.answers) == 3, what="the last page")
    seen = [wake for page in calls.answers for wake in page]
    assert seen == [wake for wake in sorted(wakes) if wake != ended]
    watched.settle()
    assert scheduler.driver.walks == 1
