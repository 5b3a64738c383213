"""Topics: each signal reaches whom it is for, bookkeeping nobody, and nothing but a setting asks for everything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.gatekeeper import Calls
from tests.passes import admission, admit, parked, row, runs
from tests.rows import request, say
from tests.schedulers import InstantExecutor, Schedulers, WatchedClock, all_heard

from wakeful import hookimpl, producers
from wakeful.admission import Admission
from wakeful.coalesce import WINDOW
from wakeful.outcomes import Admit, End, Park, Proceed, Verdict
from wakeful.receipts import Fact
from wakeful.scheduler import Tuning
from wakeful.testing import Database, Statements

Conn = psycopg.Connection[Any]
ACME, CODER = "acme", "coder"

pytestmark = pytest.mark.usefixtures("web")


def notify(conn: Conn, **signal: Any) -> None:
    conn.execute("SELECT pg_notify('wakeful', %s)", (json.dumps(signal),))


def parked_in_silence(conn: Conn, clock: WatchedClock) -> UUID:
    """A wake behind its paused agent, whose grace and its one revalidation are over."""
    say(conn, producers.pause_agent(ACME, CODER))
    wake = request(conn, None)
    wait_until(lambda: row(conn, wake, "wait_reason") == ("agent.paused_manual",), what="the park")
    clock.settle()
    clock.step(WINDOW + 1)
    wait_until(lambda: row(conn, wake, "due_at") == (None,), what="silence")
    clock.settle()
    return wake


def ran(statements: Statements) -> set[str]:
    """What ran but for the test's own signals."""
    return {one.text for one in statements.executed() if "pg_notify" not in one.text}


# ── whom a signal reaches ───────────────────────────────────────────────────────────────────────────────


def test_dispatch_wakes_no_owner_and_eligibility_no_dispatcher(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    """D15: a gate's opening signals both topics; each alone reaches one of them."""
    scheduler = fleet.start(Tuning(clock=watched))
    parked_in_silence(conn, watched)
    walks, passes = scheduler.driver.walks, scheduler.driver.passes
    statements.reset()
    notify(conn, t="dispatch", c=ACME, g="agent", k=CODER)
    notify(conn, t="dispatch", c=ACME)
    all_heard(conn, scheduler)
    watched.settle()
    assert (scheduler.driver.walks, scheduler.driver.passes) == (walks, passes)
    assert not [text for text in ran(statements) if "wakeful.wake" in text]
    statements.reset()
    notify(conn, t="eligibility", c=ACME, g="agent", k="nobody")
    all_heard(conn, scheduler)
    wait_until(lambda: scheduler.driver.walks == walks + 1, what="the one walk")
    watched.settle()
    (page,) = ran(statements)
    assert "FROM wakeful.wake w" in page


def test_a_signal_that_names_nothing_reads_nothing_and_is_counted(
    conn: Conn, fleet: Schedulers, watched: WatchedClock, statements: Statements
) -> None:
    """D16: only an instance's setting may ask for everything."""
    scheduler = fleet.start(Tuning(clock=watched))
    parked_in_silence(conn, watched)
    statements.reset()
    for topic in ("eligibility", "settlement", "dispatch"):
        notify(conn, t=topic)
        notify(conn, t=topic, c=None, w=None, g=None, k=None)
    for topic in ("eligibility", "settlement"):
        notify(conn, t=topic, c=ACME)
    conn.execute("SELECT pg_notify('wakeful', 'mark')")
    wait_until(lambda: scheduler.control.strange == 9, what="all signals heard")
    watched.settle()
    assert scheduler.control.boundless == 8
    assert ran(statements) == set()
    say(conn, producers.set_setting("dedup_days", 8))
    wait_until(lambda: [t for t in ran(statements) if "FROM wakeful.setting" in t], what="a look at the settings")


def test_a_settlement_reaches_its_receipts_settlement_pass_alone_and_comes_back_for_a_held_row(
    conn: Conn, database: Database, fleet: Schedulers, watched: WatchedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [failed_run(conn, None), failed_run(conn, None)]
    scheduler = fleet.start(Tuning(clock=watched))
    watched.settle()
    settled, judged = Calls(monkeypatch, Admission, "settle"), Calls(monkeypatch, Admission, "admit")
    wake, other = (producers.run(conn, producers.open_chat_action(ACME, run, "user:ann")).wake for run in sources)
    assert wake is not None
    assert other is not None
    notify(conn, t="settlement", c=ACME, w=str(wake))
    wait_until(lambda: settled.answers, what="a settlement pass")
    assert row(conn, wake, "state") == ("deferred",), "its action is open"
    with database.connect(autocommit=False) as holding:
        holding.execute("SELECT FROM wakeful.wake WHERE id = %s FOR UPDATE", (wake,))
        notify(conn, t="settlement", c=ACME, w=str(wake))
        wait_until(lambda: len(settled.answers) == 2, what="another settlement pass")
        assert settled.answers[1].busy == {wake}
        watched.settle()
        holding.rollback()
    watched.step(1.1)
    wait_until(lambda: len(settled.answers) == 3, what="its return")
    say(conn, producers.settle_chat_action(ACME, wake, "failed"))
    wait_until(lambda: row(conn, wake, "state") == ("settled",), what="the settlement")
    assert [(company, list(ids)) for _, _, company, ids in settled.made] == [(ACME, [wake])] * 4
    assert judged.made == []
    # A gate's signal that reaches such a receipt is an ordinary look.
    notify(conn, t="eligibility", c=ACME, g="chat", k=str(other))
    wait_until(lambda: judged.made, what="an ordinary pass")
    assert (len(settled.made), scheduler.driver.walks) == (4, 1)


def failed_run(conn: Conn, issue: str | None) -> UUID:
    wake = request(conn, issue)
    run = admit(conn, wake).runs[wake]
    conn.execute("UPDATE wakeful.run SET state = 'failed', ended_at = wakeful.now() WHERE id = %s", (run,))
    return run


# ── the scheduler's own bookkeeping ─────────────────────────────────────────────────────────────────────


class Coalescing:
    """Ends its receipts in the run of another, or fails on them."""

    name = "coalescing"
    kinds = frozenset({"joined", "broken"})

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        if any(fact.kind == "broken" for fact in facts):
            raise RuntimeError("not today")
        return [End("coalesced", "joined.other", "another run carries it") for _ in facts]


def test_bookkeeping_on_wakes_signals_nobody(conn: Conn, listener: Listener) -> None:
    by = admission(Coalescing())
    say(conn, producers.pause_agent(ACME, "other"))
    waits, links, joins, breaks = (
        request(conn, None, agent="other"),
        request(conn, None),
        request(conn, None, kind="joined"),
        request(conn, None, kind="broken"),
    )
    listener.heard()
    # park
    assert parked(admit(conn, waits, by=by), waits) == "agent.paused_manual"
    assert listener.heard() == []
    # settle down: its grace is over
    conn.execute("UPDATE wakeful.wake SET due_at = wakeful.now() WHERE id = %s", (waits,))
    outcome = admit(conn, waits, by=by).outcomes[waits]
    assert isinstance(outcome, Park)
    assert (outcome.changed, row(conn, waits, "due_at")) == (False, (None,))
    assert listener.heard() == []
    # set aside
    assert breaks in admit(conn, breaks, by=by).set_aside
    assert listener.heard() == []
    # coalesce
    admit(conn, joins, by=by)
    assert row(conn, joins, "state") == ("coalesced",)
    assert listener.heard() == []
    # link: a queued run is the dispatchers' business, and nobody else's
    assert isinstance(admit(conn, links, by=by).outcomes[links], Admit)
    assert [signal["t"] for signal in listener.heard()] == ["dispatch"]


# ── receipts that other rows name ───────────────────────────────────────────────────────────────────────


class Naming:
    """Owner of a kind whose receipts a host's own table names."""

    name = "naming"
    kinds = frozenset({"naming"})

    def __init__(self) -> None:
        self.pages: list[int] = []
        self.failures = 0

    def judge(self, facts: Sequence[Fact]) -> Sequence[Verdict]:
        return [Proceed() for _ in facts]

    def named(self, conn: Conn, after: Any, limit: int) -> Sequence[tuple[str, UUID, Any]]:
        if self.failures:
            self.failures -= 1
            raise SystemExit("not today")
        found = conn.execute(
            "SELECT company, wake, id FROM public.named WHERE id > %s ORDER BY id LIMIT %s", (after or 0, limit)
        ).fetchall()
        self.pages.append(len(found))
        return found


class Plugin:
    def __init__(self, owner: Any) -> None:
        self._owner = owner

    @hookimpl
    def register_owners(self) -> Any:
        return [self._owner]


@pytest.mark.parametrize("failures", [0, 2])
def test_named_receipts_are_due_at_once_after_a_start_whatever_their_deadline(
    conn: Conn, fleet: Schedulers, failures: int
) -> None:
    """Duty 5's shape: other rows name receipts; each is released, page by page, without its grace."""
    conn.execute("CREATE TABLE public.named (id integer PRIMARY KEY, company text, wake uuid)")
    conn.execute("GRANT SELECT ON public.named TO PUBLIC")
    say(conn, producers.pause_agent(ACME, "other"))
    (tomorrow,) = conn.execute("SELECT wakeful.wall() + interval '1 day'").fetchone() or (None,)
    named = [request(conn, None, kind="naming", at=tomorrow) for _ in range(101)]
    behind = request(conn, None, agent="other", kind="naming", at=tomorrow)
    stays = request(conn, None, kind="naming", at=tomorrow)
    for n, wake in enumerate([*named, behind]):
        conn.execute("INSERT INTO public.named VALUES (%s, 'acme', %s)", (n + 1, wake))
    owner, executor = Naming(), InstantExecutor()
    owner.failures = failures
    scheduler = fleet.start(more=[Plugin(owner)], executor=executor)
    plain = request(conn, None)
    wait_until(lambda: len(runs(conn, "ended_at IS NOT NULL")) == 102, what="the named receipts' runs")
    wait_until(lambda: row(conn, behind, "wait_reason") == ("agent.paused_manual",), what="the park")
    assert (row(conn, plain, "state"), row(conn, stays, "state", "due_at")) == (("linked",), ("deferred", tomorrow))
    assert owner.pages == [100, 2]
    assert len(executor.submitted) == 102
    # A reconnect looks again; what has ended is nothing to it.
    pages = len(owner.pages)
    scheduler.driver.connected(owner=True)
    wait_until(lambda: sum(owner.pages[pages:]) == 102, what="another look at all names")
    assert len(executor.submitted) == 102


@pytest.mark.parametrize(
    "page",
    [5, [("acme", "no id", 1)], [("acme",)], [["acme", UUID(int=1), 1]], [("acme", UUID(int=1), 1)] * 101],
    ids=["no page", "no ids", "no receipts", "no tuples", "too many"],
)
def test_an_owner_that_names_nonsense_is_asked_again_later_and_stops_no_other(
    conn: Conn, fleet: Schedulers, page: Any, caplog: pytest.LogCaptureFixture
) -> None:
    owner = Naming()
    owner.named = lambda conn, after, limit: page  # type: ignore[method-assign]  # a plugin's mistake
    scheduler = fleet.start(more=[Plugin(owner)])
    wait_until(lambda: "owner naming" in caplog.text or "named naming" in caplog.text, what="the complaint")
    wake = request(conn, None)
    wait_until(lambda: len(runs(conn, "wake = %s AND ended_at IS NOT NULL", wake)) == 1, what="a run")
    assert scheduler.driver.is_alive()


def test_an_owner_that_names_the_same_page_for_ever_is_no_endless_loop(
    conn: Conn, fleet: Schedulers, caplog: pytest.LogCaptureFixture
) -> None:
    owner, asked = Naming(), []

    def named(conn: Conn, after: Any, limit: int) -> Sequence[tuple[str, UUID, Any]]:
        asked.append(after)
        return [(ACME, UUID(int=n), 7) for n in range(limit)]

    owner.named = named  # type: ignore[method-assign]  # a plugin's mistake
    fleet.start(more=[Plugin(owner)])
    wait_until(lambda: "names the same receipts again" in caplog.text, what="the complaint")
    assert asked[:2] == [None, 7]
