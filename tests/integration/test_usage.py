"""What runs used: kept per attempt, settled, tallied while they run, read from their output. Unknown is never zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests import passes
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.workplace import Run, Workplace, scheduler

import wakeful
from wakeful import config, meter, plugins, terminals
from wakeful.crash_points import no_crash
from wakeful.errors import NotFound
from wakeful.executions import Grade, RunKey
from wakeful.testing import Database, expect_blocked
from wakeful.usage import Usage
from wakeful_plugins import result_reader

Conn = psycopg.Connection[Any]


class OddReader:
    """A host's own reader, which fails in the way its configuration names."""

    name = "odd"

    def read(self, config: Mapping[str, Any], stdout: Any, stderr: Any) -> Any:
        if config["how"] == "raise":
            raise RuntimeError("out of ink")
        return {"number": 5, "nothing": None, "nonsense": {"usage": "much"}, "class": {"class": "needs_input"}}[
            config["how"]
        ]


class OddPlugin:
    @wakeful.hookimpl
    def register_readers(self) -> list[OddReader]:
        return [OddReader()]


@pytest.fixture
def place(database: Database, conn: Conn, company: str, tmp_path: Path) -> Iterator[Workplace]:
    """Runs reserve 5 of the company's 100."""
    made = Workplace(conn, tmp_path)
    made.agent(estimate=5)
    made.do(wakeful.set_budget("acme", "company", 100))
    running = scheduler(database.dsn, tmp_path, more=[OddPlugin()])
    yield made
    assert running.stop()


def uses(*lines: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"result": {"usage": list(lines), **more}}


def spend(place: Workplace, run: Run) -> list[tuple[Any, ...]]:
    return place.rows("SELECT amount, provenance FROM wakeful.spend WHERE run = %s ORDER BY id", run.id)


def reservation(place: Workplace, run: Run) -> str:
    [(state,)] = place.rows("SELECT state FROM wakeful.reservation WHERE run = %s", run.id)
    return str(state)


def known(place: Workplace, run: Run) -> meter.RunUsage:
    return meter.of_run(place.conn, "acme", run.id)


# ── settling ────────────────────────────────────────────────────────────────────────────────────────────


def test_known_money_is_spent_exactly_once_and_the_reservation_settles_at_it(place: Workplace) -> None:
    large = {
        "provider": "p",
        "model": "large",
        "tokens_in": 7,
        "tokens_out": 2,
        "tokens_cached": 1,
        "money": "1.000001",
    }
    run = place.work(uses(large, {"model": "small", "money": 0.1}))
    assert spend(place, run) == [(Decimal("1.100001"), "reported")]
    assert reservation(place, run) == "settled"
    usage = known(place, run)
    assert (usage.money, usage.counted, usage.provenance) == (Decimal("1.100001"), Decimal("1.100001"), "reported")
    assert usage.lines == (
        (1, Usage("p", "large", 7, 2, 1, Decimal("1.000001"), "reported")),
        (1, Usage(model="small", money=Decimal("0.1"), provenance="reported")),
    )


def test_an_estimate_is_told_from_a_bill(place: Workplace) -> None:
    run = place.work(uses({"money": 1}, {"money": 2, "provenance": "estimated"}))
    assert spend(place, run) == [(3, "estimated")]
    assert known(place, run).provenance == "estimated"


@pytest.mark.parametrize(
    "orders",
    [
        {},
        uses(),
        uses({"tokens_in": 5}),
        uses({"money": 1}, {"tokens_in": 5}),
        uses({"provenance": "unknown"}),
        {"result": {"usage": "much"}},
        {"signal": 9},
    ],
    ids=["no result", "no line", "no money", "partly", "said so", "bad result", "killed"],
)
def test_unknown_is_shown_as_unknown_and_counted_at_the_estimate(place: Workplace, orders: dict[str, Any]) -> None:
    run = place.work(orders)
    assert spend(place, run) == [(5, "unknown")]
    assert reservation(place, run) == "settled"
    usage = known(place, run)
    assert (usage.money, usage.provenance, usage.unknown, usage.counted) == (None, "unknown", 1, 5)
    assert usage.known == (1 if orders == uses({"money": 1}, {"tokens_in": 5}) else 0)


def test_nothing_used_is_known_to_be_nothing(place: Workplace) -> None:
    run = place.work(uses({"money": 0}))
    assert spend(place, run) == []
    assert (known(place, run).money, known(place, run).provenance) == (0, "reported")
    assert reservation(place, run) == "settled"


def test_a_run_that_executed_nothing_gives_its_reservation_back(place: Workplace) -> None:
    place.do(wakeful.add_agent("acme", "ghost", ["/no/such/program"], estimate=5))
    run = place.work({}, agent="ghost")
    assert (run.reason, run.attempt) == ("run.not_started", 1)
    assert (spend(place, run), reservation(place, run)) == ([], "released")
    assert known(place, run).money == 0


def test_money_counts_without_any_budget(place: Workplace) -> None:
    place.agent("free")
    place.do(wakeful.set_budget("acme", "company", 100, hard_stop=False))
    run = place.work(uses({"money": 2}), agent="free")
    assert spend(place, run) == [(2, "reported")]
    assert spend(place, place.work({}, agent="free")) == []


def test_more_than_was_reserved_is_counted_in_full(place: Workplace) -> None:
    assert spend(place, place.work(uses({"money": 7}))) == [(7, "reported")]


def test_what_was_not_used_is_free_for_others_at_once(place: Workplace) -> None:
    place.do(wakeful.set_budget("acme", "company", 6))
    first = place.wake(uses({"money": 1}) | {"block": True})
    place.blocked(first)
    waiting = place.do(wakeful.request_wake("acme", "coder", payload={})).wake
    assert waiting is not None
    wait_until(
        lambda: place.rows("SELECT FROM wakeful.wake WHERE id = %s AND wait_gate = 'budget'", waiting), what="the park"
    )
    place.do(wakeful.stop_run("acme", first))
    assert spend(place, place.end(first)) == [(1, "reported")]
    assert place.end(place.run_of(waiting)).state == "succeeded"


def test_spending_a_projects_budget_by_a_result_pauses_it(place: Workplace) -> None:
    place.do(wakeful.add_project("acme", "web"))
    place.do(wakeful.create_issue("acme", "I-1", project="web"))
    run = place.wake(uses({"money": 12}) | {"block": True}, "I-1")
    place.blocked(run)
    # The budget is younger than the run, which has nothing reserved under it.
    place.do(wakeful.set_budget("acme", "project:web", 10))
    place.do(wakeful.stop_run("acme", run))
    place.end(run)
    assert place.rows("SELECT pause_reason FROM wakeful.project") == [("budget",)]


# ── attempts ────────────────────────────────────────────────────────────────────────────────────────────


def test_while_one_attempt_is_unknown_so_is_the_run(place: Workplace) -> None:
    run = place.work({"first": {"vanish": True}} | uses({"money": 1}))
    assert (run.state, run.attempt) == ("succeeded", 2)
    assert spend(place, run) == [(5, "unknown")]
    usage = known(place, run)
    assert (usage.attempts, usage.unknown, usage.known, usage.money) == (2, 1, 1, None)
    assert [attempt for attempt, _ in usage.lines] == [2]
    # What is known is more than was reserved: at least so much was used.
    assert spend(place, place.work({"first": {"vanish": True}} | uses({"money": 7}))) == [(7, "unknown")]


def claimed(conn: Conn) -> RunKey:
    made = wakeful.run(conn, wakeful.request_wake("acme", "coder")).wake
    assert made is not None
    passes.admit(conn, made)
    [key] = passes.start(conn)
    return key


@pytest.mark.parametrize(
    ("executed", "tallies", "expected"),
    [
        ((True, True), (0, 0), [(5, "unknown")]),
        ((False, True), (0, 0), [(5, "unknown")]),
        ((True, False), (0, 0), [(5, "unknown")]),
        ((False, False), (0, 0), []),
        ((True, True), (1, 0), [(1, "reported"), (4, "unknown")]),
        ((True, True), (0, 2), [(2, "reported"), (3, "unknown")]),
        ((True, True), (1, 2), [(1, "reported"), (2, "reported")]),
        ((False, True), (0, 2), [(2, "reported")]),
        ((True, False), (1, 0), [(1, "reported")]),
        ((True, True), (6, 0), [(6, "reported")]),
    ],
)
def test_every_attempt_that_executed_something_must_be_known(
    conn: Conn, company: str, executed: tuple[bool, bool], tallies: tuple[int, int], expected: list[tuple[int, str]]
) -> None:
    wakeful.run(conn, wakeful.set_budget("acme", "company", 100, estimate=5))
    key = claimed(conn)
    for ran, tally in zip(executed, tallies, strict=True):
        if tally:
            wakeful.run(conn, wakeful.add_spend("acme", tally, run=key.run))
        terminals.record(conn, "acme", [], [terminals.Death(key, Grade.CONTAINED, "killed", ran)], crash=no_crash)
        key = RunKey(key.company, key.run, key.generation + 1)
        if ran is executed[0] and key.generation == 2:
            assert passes.start(conn) == (key,)
    # Nobody tries a third time.
    wakeful.run(conn, wakeful.stop_run("acme", key.run))
    query = "SELECT amount, provenance FROM wakeful.spend ORDER BY id"
    assert conn.execute(query).fetchall() == expected
    state = "settled" if expected else "released"
    assert conn.execute("SELECT state FROM wakeful.reservation").fetchall() == [(state,)]


def test_an_end_that_nobody_reported_is_unknown(conn: Conn, company: str) -> None:
    """A run asked to stop whose runner died, and one that a person declared lost."""
    wakeful.run(conn, wakeful.set_budget("acme", "company", 100, estimate=5))
    key = claimed(conn)
    wakeful.run(conn, wakeful.stop_run("acme", key.run))
    settled = terminals.record(conn, "acme", [], [terminals.Death(key, Grade.CONTAINED, "killed")], crash=no_crash)
    assert settled.ended == {key}
    assert conn.execute("SELECT amount, provenance FROM wakeful.spend").fetchall() == [(5, "unknown")]
    key = claimed(conn)
    wakeful.run(conn, wakeful.stop_run("acme", key.run))
    died = terminals.Death(key, Grade.CONTAINED, "never started", executed=False)
    assert terminals.record(conn, "acme", [], [died], crash=no_crash).ended == {key}
    assert conn.execute("SELECT count(*) FROM wakeful.spend").fetchone() == (1,)
    key = claimed(conn)
    conn.execute(
        "UPDATE wakeful.run SET state = 'lost', ended_at = wakeful.now(), evidence = 'attested' WHERE id = %s",
        (key.run,),
    )
    conn.execute("SELECT wakeful.settle_runs('acme', %s)", ([key.run],))
    assert conn.execute("SELECT count(*) FROM wakeful.spend").fetchone() == (2,)


def test_attempts_that_died_are_unknown_when_there_are_no_more(conn: Conn, company: str) -> None:
    wakeful.run(conn, wakeful.set_budget("acme", "company", 100, estimate=5))
    wakeful.run(conn, wakeful.add_agent("acme", "coder", ["true"], max_attempts=1))
    key = claimed(conn)
    terminals.record(conn, "acme", [], [terminals.Death(key, Grade.CONTAINED, "killed")], crash=no_crash)
    assert passes.start(conn) == ()
    assert conn.execute("SELECT state, reason FROM wakeful.run").fetchall() == [("failed", "run.attempts")]
    assert conn.execute("SELECT amount, provenance FROM wakeful.spend").fetchall() == [(5, "unknown")]


def test_of_a_run_that_is_unknown_nothing_can_be_told(conn: Conn, company: str) -> None:
    with pytest.raises(NotFound):
        meter.of_run(conn, company, uuid4())


def test_sums_that_no_column_holds_still_let_the_run_end(place: Workplace) -> None:
    most = 999_999_999_999
    run = place.wake(uses({"money": f"{most}.999999"}) | {"block": True})
    place.blocked(run)
    place.do(wakeful.add_spend("acme", 1, run=run))
    place.do(wakeful.stop_run("acme", run))
    assert spend(place, ended := place.end(run)) == [(1, "reported"), (Decimal(f"{most - 1}.999999"), "reported")]
    for _ in range(3):
        place.do(wakeful.add_spend("acme", most, run=run))
    assert known(place, ended).counted > 3 * most


# ── the running tally ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("said", "rows"),
    [
        ({}, [(2, "reported")]),
        (uses({"tokens_in": 5}), [(2, "reported")]),
        (uses({"money": 3}), [(2, "reported"), (1, "reported")]),
        (uses({"money": 3, "provenance": "estimated"}), [(2, "reported"), (1, "estimated")]),
        (uses({"money": 1}), [(2, "reported")]),
    ],
    ids=["no result", "no money", "the bill is higher", "an estimate", "the bill is lower"],
)
def test_what_is_reported_while_it_runs_is_part_of_what_the_result_says(
    place: Workplace, said: dict[str, Any], rows: list[tuple[int, str]]
) -> None:
    run = place.wake(said | {"block": True})
    place.blocked(run)
    place.do(wakeful.add_spend("acme", 2, run=run))
    assert known(place, place.run(run)).known == 2  # type: ignore[arg-type]  # it lives
    place.do(wakeful.stop_run("acme", run))
    assert spend(place, ended := place.end(run)) == rows
    assert reservation(place, ended) == "settled"
    assert known(place, ended).money == sum(amount for amount, _ in rows)


def test_a_tally_of_unknown_provenance_makes_nothing_known(place: Workplace) -> None:
    run = place.wake({"block": True})
    place.blocked(run)
    place.do(wakeful.add_spend("acme", 2, run=run, provenance="unknown"))
    place.do(wakeful.stop_run("acme", run))
    assert spend(place, ended := place.end(run)) == [(2, "unknown"), (3, "unknown")]
    assert known(place, ended).money is None


def test_the_end_of_a_run_that_overran_frees_its_reservation_and_says_so(
    conn: Conn, company: str, database: Database
) -> None:
    wakeful.run(conn, wakeful.set_budget("acme", "company", 100, estimate=5))
    key = claimed(conn)
    wakeful.run(conn, wakeful.add_spend("acme", 6, run=key.run))
    listener = Listener(database)
    passes.end(conn, key)
    assert {(signal["t"], signal.get("g"), signal.get("k")) for signal in listener.heard()} >= {
        ("eligibility", "budget", "company"),
        ("dispatch", "budget", "company"),
    }


def overrun(conn: Conn, policy: str = "stop") -> RunKey:
    wakeful.run(conn, wakeful.set_budget("acme", "company", 100, estimate=5, on_overrun=policy))
    return claimed(conn)


def state(conn: Conn, key: RunKey) -> tuple[Any, ...]:
    row = conn.execute("SELECT state, stop_reason, stop_by FROM wakeful.run WHERE id = %s", (key.run,)).fetchone()
    assert row is not None
    return row


def test_the_run_is_asked_to_stop_in_the_transaction_that_reaches_its_reservation_once(
    conn: Conn, company: str, database: Database
) -> None:
    key = overrun(conn)
    host = database.connect(autocommit=False)
    listener = Listener(database)
    wakeful.run(host, wakeful.add_spend("acme", Decimal("4.999999"), run=key.run))
    wakeful.run(host, wakeful.add_spend("acme", 0, run=key.run))
    host.commit()
    assert state(conn, key)[0] == "starting"
    assert [signal for signal in listener.heard() if "r" in signal] == []
    wakeful.run(host, wakeful.add_spend("acme", Decimal("0.000001"), run=key.run))
    assert state(conn, key)[0] == "starting"
    host.rollback()
    assert state(conn, key)[0] == "starting"
    wakeful.run(host, wakeful.add_spend("acme", Decimal("0.000001"), run=key.run, key="a"))
    host.commit()
    assert state(conn, key) == ("stopping", "run.overrun", "system:budget")
    for again in ("a", "b"):
        wakeful.run(host, wakeful.add_spend("acme", 1, run=key.run, key=again))
        host.commit()
    assert len([signal for signal in listener.heard() if signal.get("r") == str(key.run)]) == 1
    query = "SELECT actor, after ->> 'reason' FROM wakeful.audit WHERE verb = 'stop'"
    assert conn.execute(query).fetchall() == [("system:budget", "run.overrun")]


def test_of_two_reports_at_once_one_sees_both(conn: Conn, company: str, database: Database) -> None:
    key = overrun(conn)
    first, second = database.connect(autocommit=False), database.connect()
    wakeful.run(first, wakeful.add_spend("acme", 3, run=key.run))
    with expect_blocked(
        lambda: wakeful.run(second, wakeful.add_spend("acme", 3, run=key.run)),
        behind=first,
        watcher=conn,
        lock="transactionid",
    ) as blocked:
        first.commit()
        blocked.result()
    assert state(conn, key)[0] == "stopping"


@pytest.mark.parametrize("policy", ["finish", "stop"])
def test_the_policy_decides_and_the_child_ends_by_it(place: Workplace, policy: str) -> None:
    place.do(wakeful.set_budget("acme", "company", 100, on_overrun=policy))
    run = place.wake({"block": True})
    place.blocked(run)
    place.do(wakeful.add_spend("acme", 5, run=run))
    if policy == "finish":
        assert place.run(run).state == "running"  # type: ignore[union-attr]  # it exists
        place.do(wakeful.stop_run("acme", run))
    ended = place.end(run)
    assert (ended.state, ended.end_class) == ("cancelled", "stopped")
    [(reason,)] = place.rows("SELECT stop_reason FROM wakeful.run")
    assert reason == ("run.overrun" if policy == "stop" else None)


def test_a_run_that_nobody_reports_on_or_that_reserves_nowhere_is_left_alone(conn: Conn, company: str) -> None:
    key = overrun(conn)
    wakeful.run(conn, wakeful.add_spend("acme", 50, agent="coder"))
    assert state(conn, key)[0] == "starting"
    # Another policy's reservation is not this one's: only the agent's budget lets its runs finish.
    wakeful.run(conn, wakeful.set_budget("acme", "company", 100, estimate=5, on_overrun="finish"))
    wakeful.run(conn, wakeful.set_budget("acme", "agent:coder", 100, on_overrun="stop"))
    wakeful.run(conn, wakeful.add_spend("acme", 9, run=key.run))
    assert state(conn, key)[0] == "starting"


def test_a_run_that_reserved_nothing_may_spend_nothing(conn: Conn, company: str) -> None:
    wakeful.run(conn, wakeful.set_budget("acme", "company", 100, on_overrun="stop"))
    key = claimed(conn)
    wakeful.run(conn, wakeful.add_spend("acme", 0, run=key.run))
    assert state(conn, key)[0] == "starting"
    wakeful.run(conn, wakeful.add_spend("acme", Decimal("0.000001"), run=key.run))
    assert state(conn, key)[0] == "stopping"


def test_a_queued_run_that_has_overrun_is_not_started_again(conn: Conn, company: str) -> None:
    key = overrun(conn)
    terminals.record(conn, "acme", [], [terminals.Death(key, Grade.CONTAINED, "killed")], crash=no_crash)
    wakeful.run(conn, wakeful.add_spend("acme", 5, run=key.run))
    assert state(conn, key) == ("cancelled", "run.overrun", "system:budget")
    assert conn.execute("SELECT amount, provenance FROM wakeful.spend").fetchall() == [(5, "reported")]
    assert conn.execute("SELECT state FROM wakeful.reservation").fetchall() == [("settled",)]


def test_what_is_reported_after_the_end_stops_nothing(conn: Conn, company: str) -> None:
    key = overrun(conn)
    passes.end(conn, key)
    wakeful.run(conn, wakeful.add_spend("acme", 9, run=key.run))
    assert state(conn, key) == ("failed", None, None)


# ── what the program printed ────────────────────────────────────────────────────────────────────────────

READER = {
    "kind": "json_lines",
    "rules": [
        {"when": {"type": "init"}, "session": "session_id"},
        {
            "when": {"type": "result"},
            "message": "text",
            "usage": {"take": "last", "provider": {"value": "p"}, "model": "model", "tokens_in": "in", "money": "cost"},
        },
        {"when": {"type": "result", "is_error": True}, "class": "failed"},
        {"when": {"type": "result", "text": {"contains": "limit"}}, "class": "provider_limited",
         "until": {"path": "text", "after": "|"}},
        {"when": {"error": "no such session"}, "class": "session_lost"},
    ],
}  # fmt: skip
SPOKEN = [
    {"type": "init", "session_id": "s1"},
    "some words",
    {"type": "result", "text": "done", "model": "m", "in": 12, "cost": 0.25},
]


def test_its_own_output_takes_the_place_of_a_result(place: Workplace) -> None:
    place.agent(estimate=5, reader=READER)
    run = place.work({"print": SPOKEN}, "I-1")
    assert (run.state, run.message, run.error) == ("succeeded", "done", None)
    assert run.result["reader"] == {"kind": "json_lines", "lines": 4, "matched": 2, "skipped": 1}
    assert spend(place, run) == [(Decimal("0.25"), "reported")]
    assert known(place, run).lines == ((1, Usage("p", "m", 12, None, None, Decimal("0.25"), "reported")),)
    failed = place.work({"print": [{"type": "result", "is_error": True, "text": "broken"}]}, "I-1")
    assert (failed.given, failed.state, failed.message) == ("s1", "failed", "broken")


def test_it_tells_of_limits_and_lost_sessions(place: Workplace) -> None:
    place.agent(reader=READER)
    limited = place.work({"print": [{"type": "result", "text": "limit reached|4102444799"}], "exit": 1})
    assert (limited.state, limited.end_class) == ("failed", "provider_limited")
    assert limited.result["until"] == "2099-12-31T23:59:59+00:00"
    place.work({"print": SPOKEN}, "I-1")
    lost = place.work({"print": [{"error": "no such session"}], "exit": 1}, "I-1")
    assert (lost.given, lost.end_class) == ("s1", "session_lost")
    assert place.work({}, "I-1").given is None


def test_a_result_json_makes_it_superfluous(place: Workplace) -> None:
    place.agent(estimate=5, reader=READER)
    run = place.work({"print": SPOKEN} | uses({"money": 1}))
    assert (run.message, spend(place, run)) == (None, [(1, "reported")])
    bad = place.work({"print": SPOKEN, "result": {"class": "splendid"}})
    assert (bad.end_class, spend(place, bad)) == ("bad_result", [(5, "unknown")])


def test_of_a_run_that_was_stopped_the_output_still_counts(place: Workplace) -> None:
    place.agent(estimate=5, reader=READER)
    run = place.wake({"print": SPOKEN, "block": True}, "I-1")
    place.blocked(run)
    place.do(wakeful.stop_run("acme", run))
    assert spend(place, place.end(run)) == [(Decimal("0.25"), "estimated")]
    assert place.work({}, "I-1").given == "s1"


ODD = [
    ({"kind": "odd", "how": "raise"}, "RuntimeError: out of ink"),
    ({"kind": "odd", "how": "number"}, "it answered with a int"),
    ({"kind": "odd", "how": "nonsense"}, "usage is not a list"),
    ({"kind": "absent"}, "no plugin here provides it"),
    ({"kind": "json_lines", "rules": []}, "rules is not a list"),
]


@pytest.mark.parametrize(("reader", "says"), ODD, ids=[says for _, says in ODD])
def test_a_reader_that_cannot_read_changes_no_end(place: Workplace, reader: dict[str, Any], says: str) -> None:
    place.agent(estimate=5, reader=reader)
    for orders, state in (({}, "succeeded"), ({"exit": 3}, "failed")):
        run = place.work(orders)
        assert run.state == state
        assert run.error is not None
        assert run.error.startswith("result reader: ")
        assert says in run.error
        assert spend(place, run) == [(5, "unknown")]


def test_a_hosts_own_reader_may_say_all_that_a_result_says_or_nothing(place: Workplace) -> None:
    place.agent(reader={"kind": "odd", "how": "class"})
    assert place.work({}).end_class == "needs_input"
    place.agent(reader={"kind": "odd", "how": "nothing"})
    run = place.work({"exit": 3})
    assert (run.state, run.message, run.result, run.error) == ("failed", "exit code 3", None, None)


def test_readers_are_registered_by_plugins_one_for_each_name(database: Database, tmp_path: Path) -> None:
    class Second(OddPlugin):
        pass

    class Broken:
        @wakeful.hookimpl
        def register_readers(self) -> list[Any]:
            return [object()]

    settings = config.load({"dsn": database.dsn, "data": str(tmp_path)}, {}, tmp_path)
    hooks = plugins.load(settings, discover=False, plugins=[result_reader, OddPlugin(), Second(), Broken()])
    assert [reader.name for reader in hooks.readers()] == ["json_lines", "odd"]
    assert [(status.state, "result reader" in status.reason) for status in hooks.report] == [
        ("active", False),
        ("active", False),
        ("failed", True),
        ("failed", True),
    ]


def test_rows_of_usage_go_with_their_run_and_spend_stays(conn: Conn, company: str) -> None:
    wakeful.run(conn, wakeful.set_budget("acme", "company", 100, estimate=5))
    key = claimed(conn)
    insert = (
        "INSERT INTO wakeful.usage (company, run, attempt, line, money, provenance) VALUES ('acme', %s, 1, %s, %s, %s)"
    )
    conn.execute(insert, (key.run, 0, 1, "reported"))
    for money, provenance in ((1, "unknown"), (-1, "reported"), (None, "guessed")):
        with pytest.raises(psycopg.errors.CheckViolation):
            conn.execute(insert, (key.run, 1, money, provenance))
    passes.end(conn, key)
    conn.execute("DELETE FROM wakeful.run WHERE id = %s", (key.run,))
    assert conn.execute("SELECT count(*) FROM wakeful.usage").fetchone() == (0,)
    assert conn.execute("SELECT count(*) FROM wakeful.spend").fetchone() == (1,)


def test_the_run_of_another_company_is_not_found(conn: Conn, company: str) -> None:
    wakeful.run(conn, wakeful.add_company("other"))
    key = claimed(conn)
    assert meter.of_run(conn, "acme", key.run).unknown == 1
    with pytest.raises(NotFound):
        meter.of_run(conn, "other", UUID(str(key.run)))
