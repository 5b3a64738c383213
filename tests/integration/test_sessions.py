"""Sessions of agent programs: given to the next run, rotated, dropped when lost, and written under the fence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests import passes
from tests.workplace import Workplace, scheduler

import wakeful
from wakeful import fence, store, terminals
from wakeful.crash_points import no_crash
from wakeful.errors import InvalidInput
from wakeful.executions import EndClass, ExitReport, Grade, Output, RunKey
from wakeful.results import Conclusion
from wakeful.scheduler import Tuning
from wakeful.testing import Database, VirtualClock, expect_blocked
from wakeful.work import read

Conn = psycopg.Connection[Any]


@pytest.fixture
def place(database: Database, conn: Conn, company: str, clock: VirtualClock, tmp_path: Path) -> Iterator[Workplace]:
    made = Workplace(conn, tmp_path)
    made.agent()
    running = scheduler(database.dsn, tmp_path, tuning=Tuning(clock=clock))
    yield made
    assert running.stop()


def leaves(token: str, **more: Any) -> dict[str, Any]:
    return {"result": {"session": token, **more}}


def kept(place: Workplace) -> list[tuple[Any, ...]]:
    return place.rows("SELECT agent, issue, key, token, runs FROM wakeful.session ORDER BY agent, issue, key")


# ── with real children ──────────────────────────────────────────────────────────────────────────────────


def test_a_session_belongs_to_its_agent_issue_and_key(place: Workplace) -> None:
    place.agent("tester")
    assert place.work(leaves("s1"), "I-1").given is None
    assert place.work({}, "I-1").given == "s1"
    assert place.work({}, "I-2").given is None
    assert place.work({}).given is None
    assert place.work(leaves("t1"), agent="tester").given is None
    assert place.work(leaves("k1") | {"session_key": "review"}, "I-1").given is None
    assert place.work({}, "I-1").given == "s1"
    assert place.work({"session_key": "review"}, "I-1").given == "k1"
    assert kept(place) == [
        ("coder", "I-1", "", "s1", 3),
        ("coder", "I-1", "review", "k1", 2),
        ("tester", "", "", "t1", 1),
    ]


def test_a_retry_goes_on_with_the_session_of_the_run_it_retries(place: Workplace) -> None:
    failed = place.work(leaves("k1", **{"class": "failed"}) | {"session_key": "review"}, "I-1")
    wake = place.do(wakeful.request_retry("acme", failed.id, payload={"result": {}})).wake
    assert wake is not None
    assert place.end(place.run_of(wake)).given == "k1"


def test_a_program_may_answer_with_another_token_each_time(place: Workplace) -> None:
    for token, given in (("s1", None), ("s2", "s1"), ("s3", "s2")):
        assert place.work(leaves(token), "I-1").given == given
    assert kept(place) == [("coder", "I-1", "", "s3", 3)]


def test_it_is_rotated_after_so_many_runs_whether_they_report_it_or_not(place: Workplace) -> None:
    place.agent(session_policy={"rotate_runs": 3})
    given = [
        place.work(orders, "I-1").given
        for orders in (leaves("s1"), {"exit": 3}, {"signal": 9}, leaves("s2"), {}, {}, {})
    ]
    assert given == [None, "s1", "s1", None, "s2", "s2", None]
    # The last run was given none and left none: what is kept stays rotated.
    assert kept(place) == [("coder", "I-1", "", "s2", 3)]
    assert place.work({}, "I-1").given is None


def test_it_is_rotated_after_so_many_days(place: Workplace, clock: VirtualClock) -> None:
    place.agent(session_policy={"mode": "reuse", "rotate_days": 7})
    place.work(leaves("s1"), "I-1")
    clock.advance(timedelta(days=7) - timedelta(hours=1))
    # Going on with a session does not make it younger.
    assert place.work(leaves("s2"), "I-1").given == "s1"
    clock.advance(timedelta(hours=1))
    assert place.work(leaves("s3"), "I-1").given is None
    assert place.work({}, "I-1").given == "s3"
    [(runs, fresh)] = place.rows("SELECT runs, created_at > wakeful.now() - interval '1 hour' FROM wakeful.session")
    assert (runs, fresh) == (2, True)


def test_the_policy_fresh_gives_none(place: Workplace) -> None:
    place.agent(session_policy={"mode": "fresh"})
    assert [place.work(leaves(token), "I-1").given for token in ("s1", "s2")] == [None, None]
    place.agent(session_policy={"mode": "reuse"})
    assert place.work({}, "I-1").given == "s2"


def test_after_a_lost_session_the_next_attempt_is_fresh(place: Workplace) -> None:
    place.work(leaves("s1"), "I-1")
    lost = place.work(leaves("s1", **{"class": "session_lost"}), "I-1")
    assert (lost.given, lost.end_class) == ("s1", "session_lost")
    assert kept(place) == []
    wake = place.do(wakeful.request_retry("acme", lost.id, payload=leaves("s2"))).wake
    assert wake is not None
    assert place.end(place.run_of(wake)).given is None
    assert place.work({}, "I-1").given == "s2"


def test_a_stopped_run_leaves_its_session_too(place: Workplace) -> None:
    run = place.wake(leaves("s1") | {"block": True}, "I-1")
    place.blocked(run)
    place.do(wakeful.stop_run("acme", run))
    assert place.end(run).end_class == "stopped"
    assert place.work({}, "I-1").given == "s1"


def test_a_bad_result_leaves_no_session(place: Workplace) -> None:
    for token in ("", "s" * 4097, 5):
        assert place.work({"result": {"session": token}}, "I-1").end_class == "bad_result"
    assert place.work({"result": {"session": None}}, "I-1").end_class == "ok"
    assert kept(place) == []


# ── at the fence ────────────────────────────────────────────────────────────────────────────────────────

NOTHING = Output("/nowhere/stdout", 0, "", "")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def claimed(conn: Conn, issue: str | None = None) -> RunKey:
    made = wakeful.run(conn, wakeful.request_wake("acme", "coder", issue)).wake
    assert made is not None
    passes.admit(conn, made)
    [key] = passes.start(conn)
    return key


def ending(key: RunKey, session: str | None, end_class: EndClass = EndClass.OK) -> terminals.Ending:
    state = "succeeded" if end_class is EndClass.OK else "failed"
    report = ExitReport(key, 0, None, None, Grade.CONTAINED, NOW, NOW, NOTHING, NOTHING)
    return terminals.Ending(key, Conclusion(state, end_class, f"run.{end_class}", session=session), report)


def record(conn: Conn, *endings: terminals.Ending) -> terminals.Settled:
    return terminals.record(conn, "acme", endings, crash=no_crash)


def tokens(conn: Conn) -> list[tuple[str, int]]:
    return conn.execute("SELECT token, runs FROM wakeful.session ORDER BY token").fetchall()


@pytest.mark.parametrize("end_class", [EndClass.OK, EndClass.SESSION_LOST])
def test_whatever_a_newer_generation_has_overtaken_writes_no_session(
    conn: Conn, company: str, end_class: EndClass
) -> None:
    record(conn, ending(claimed(conn, "I-1"), "s1"))
    old = claimed(conn, "I-1")
    died = terminals.Death(old, Grade.CONTAINED, "its runner was killed")
    terminals.record(conn, company, [], [died], crash=no_crash)
    [new] = passes.start(conn)
    assert new == replace(old, generation=2)
    settled = record(conn, ending(old, "late", end_class))
    assert settled.refused == {old}
    assert tokens(conn) == [("s1", 1)]
    record(conn, ending(new, "s2"))
    assert record(conn, ending(old, "later", end_class)).refused == {old}
    assert tokens(conn) == [("s2", 2)]


def test_a_writer_behind_the_fence_waits_and_is_refused(database: Database, conn: Conn, company: str) -> None:
    key = claimed(conn, "I-1")
    newer = database.connect(autocommit=False)
    newer.execute("SELECT set_config('wakeful.company', 'acme', false)")
    fence.enter(newer, fence.Claim(company, key.run, key.generation))
    newer.execute("UPDATE wakeful.run SET generation = generation + 1 WHERE id = %s", (key.run,))
    late = database.connect()
    with expect_blocked(
        lambda: record(late, ending(key, "late")), behind=newer, watcher=database.connect(), lock="transactionid"
    ) as blocked:
        newer.commit()
        assert blocked.result().refused == {key}
    assert tokens(conn) == []


def test_the_next_generation_is_given_the_session_again_and_input_says_so(conn: Conn, company: str) -> None:
    record(conn, ending(claimed(conn, "I-1"), "s1"))
    old = claimed(conn, "I-1")
    terminals.record(conn, company, [], [terminals.Death(old, Grade.CONTAINED, "killed")], crash=no_crash)
    # Meanwhile the policy has changed: each claim asks it anew.
    wakeful.run(conn, wakeful.add_agent("acme", "coder", ["true"], session_policy={"mode": "fresh"}))
    [new] = passes.start(conn)
    given = read(conn, company, [new])[new]
    assert given.spec.input["session"] is None


def test_several_runs_of_one_session_may_end_in_one_transaction(conn: Conn, company: str) -> None:
    keys = [claimed(conn) for _ in range(3)]
    record(conn, *(ending(key, f"s{number}") for number, key in enumerate(keys)))
    assert tokens(conn) == [("s2", 1)]
    keys = [claimed(conn) for _ in range(3)]
    record(conn, ending(keys[0], None), ending(keys[1], "t"), ending(keys[2], None, EndClass.SESSION_LOST))
    # The one that lost s2 no longer finds it: t is another one's, and stays.
    assert tokens(conn) == [("t", 3)]


def test_only_the_lost_session_is_dropped(conn: Conn, company: str) -> None:
    record(conn, ending(claimed(conn), "s1"))
    loser, quiet, other = claimed(conn), claimed(conn), claimed(conn)
    record(conn, ending(other, "s2"))
    # What had been given s1 and says nothing has not used s2.
    record(conn, ending(quiet, None))
    record(conn, ending(loser, None, EndClass.SESSION_LOST))
    assert tokens(conn) == [("s2", 2)]
    record(conn, ending(claimed(conn), None, EndClass.SESSION_LOST))
    assert tokens(conn) == []


def test_even_a_run_that_was_given_none_forces_the_next_one_to_be_fresh(conn: Conn, company: str) -> None:
    record(conn, ending(claimed(conn), "s1"))
    wakeful.run(conn, wakeful.add_agent("acme", "coder", ["true"], session_policy={"mode": "fresh"}))
    record(conn, ending(claimed(conn), None, EndClass.SESSION_LOST))
    assert tokens(conn) == []


def test_a_run_that_executed_nothing_has_not_used_its_session(conn: Conn, company: str) -> None:
    record(conn, ending(claimed(conn), "s1"))
    end = Conclusion("failed", EndClass.FAILED, "run.not_started")
    record(conn, terminals.Ending(claimed(conn), end, grade=Grade.CONTAINED))
    assert tokens(conn) == [("s1", 1)]


# ── the door ────────────────────────────────────────────────────────────────────────────────────────────

BAD_POLICIES: list[Any] = [
    {"mode": "sometimes"},
    {"mode": 5},
    {"rotate_runs": 0},
    {"rotate_runs": 1.5},
    {"rotate_runs": True},
    {"rotate_days": -1},
    {"rotate_days": 1_000_000},
    {"rotate_weeks": 1},
    ["reuse"],
    "reuse",
]


@pytest.mark.parametrize("policy", BAD_POLICIES, ids=str)
def test_a_bad_policy_is_refused_at_both_doors(conn: Conn, company: str, policy: Any) -> None:
    with pytest.raises(InvalidInput):
        wakeful.add_agent("acme", "a", ["true"], session_policy=policy)
    with pytest.raises(psycopg.DatabaseError) as raised:
        conn.execute(
            "SELECT wakeful.add_agent('acme', 'a', '{true}', session_policy => %s)", (psycopg.types.json.Jsonb(policy),)
        )
    assert raised.value.sqlstate == "WK422"


BAD_READERS: list[Any] = [
    {},
    {"kind": 5},
    {"kind": ""},
    {"kind": "k" * 201},
    ["json_lines"],
    {"kind": "k", "x": "y" * 65_536},
]


@pytest.mark.parametrize("reader", BAD_READERS, ids=lambda reader: str(reader)[:20])
def test_a_bad_reader_is_refused_at_both_doors(conn: Conn, company: str, reader: Any) -> None:
    with pytest.raises(InvalidInput):
        wakeful.add_agent("acme", "a", ["true"], reader=reader)
    with pytest.raises(psycopg.DatabaseError) as raised:
        conn.execute(
            "SELECT wakeful.add_agent('acme', 'a', '{true}', reader => %s)", (psycopg.types.json.Jsonb(reader),)
        )
    assert raised.value.sqlstate == "WK422"


def test_a_contract_without_them_takes_the_defaults_back(conn: Conn, company: str) -> None:
    def contract() -> Any:
        return conn.execute("SELECT session_policy, reader FROM wakeful.agent WHERE id = 'coder'").fetchone()

    given = {"session_policy": {"mode": "fresh", "rotate_runs": None}, "reader": {"kind": "json_lines"}}
    assert wakeful.run(conn, wakeful.add_agent("acme", "coder", ["true"], **given)).outcome == "merged"
    assert contract() == ({"mode": "fresh"}, {"kind": "json_lines"})
    assert wakeful.run(conn, wakeful.add_agent("acme", "coder", ["true"], **given)).outcome == "existing"
    assert wakeful.run(conn, wakeful.add_agent("acme", "coder", ["true"])).outcome == "merged"
    assert contract() == ({"mode": "reuse"}, None)
    for name in ("session_policy => NULL", "session_policy => 'null'", "reader => 'null'"):
        with pytest.raises(psycopg.DatabaseError):
            conn.execute(f"SELECT wakeful.add_agent('acme', 'a', '{{true}}', {name})")


def test_an_erased_company_keeps_no_session(conn: Conn, company: str) -> None:
    record(conn, ending(claimed(conn), "secret-token"))
    record(conn, ending(claimed(conn), "secret-token"))
    wakeful.run(conn, wakeful.archive_company(company))
    wakeful.run(conn, wakeful.erase_company(company))
    assert tokens(conn) == []
    found = store.run(conn, "export.tables", {"company": company}).fetchall()
    for table in found:
        text = conn.execute(f"SELECT coalesce(string_agg(t::text, ' '), '') FROM wakeful.{table.name} t").fetchone()  # noqa: S608 - our own names
        assert text is not None
        assert "secret-token" not in text[0], table.name
