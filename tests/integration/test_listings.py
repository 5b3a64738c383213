from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from wakeful import listings
from wakeful.errors import InvalidInput, NotFound

Conn = psycopg.Connection[Any]

ENDED = "2031-05-06 07:08:09.123456+00"


def add_runs(conn: Conn, company: str, count: int, *, ended: str | None = ENDED) -> list[UUID]:
    state = "queued" if ended is None else "succeeded"
    rows = conn.execute(
        "INSERT INTO wakeful.run (company, agent, state, ended_at)"
        " SELECT %s, 'coder', %s, %s FROM generate_series(1, %s) RETURNING id",
        (company, state, ended, count),
    ).fetchall()
    return [row[0] for row in rows]


def walk(conn: Conn, name: str, *, limit: int, **how: Any) -> list[Any]:
    key = listings.LISTINGS[name].key
    seen: list[Any] = []
    after = None
    while True:
        page = listings.page(conn, name, limit=limit, after=after, **how)
        assert len(page.rows) <= limit
        seen += [row[key] for row in page.rows]
        if page.after is None:
            return seen
        after = page.after


@pytest.mark.parametrize("by_end", [False, True])
def test_rows_of_one_timestamp_are_all_reached_once(conn: Conn, company: str, by_end: bool) -> None:
    ids = add_runs(conn, company, 15)
    seen = walk(conn, "runs", company=company, limit=4, by_end=by_end)
    assert seen == sorted(ids, reverse=True)


def test_microseconds_are_part_of_the_order(conn: Conn, company: str) -> None:
    late = add_runs(conn, company, 1, ended="2031-05-06 07:08:09.000002+00")
    early = add_runs(conn, company, 1, ended="2031-05-06 07:08:09.000001+00")
    assert walk(conn, "runs", company=company, limit=1, by_end=True) == late + early


def test_what_has_not_ended_comes_before_every_end(conn: Conn, company: str) -> None:
    ended = add_runs(conn, company, 3)
    live = add_runs(conn, company, 3, ended=None)
    seen = walk(conn, "runs", company=company, limit=2, by_end=True)
    assert seen == sorted(live, reverse=True) + sorted(ended, reverse=True)


def test_a_run_that_ends_while_somebody_pages_is_not_lost(conn: Conn, company: str) -> None:
    ended = add_runs(conn, company, 5)
    live = sorted(add_runs(conn, company, 5, ended=None), reverse=True)
    first = listings.page(conn, "runs", company=company, limit=2, by_end=True)
    conn.execute("UPDATE wakeful.run SET state = 'cancelled', ended_at = now() WHERE id = %s", (live[3],))
    seen = {row["id"] for row in first.rows}
    after = first.after
    while after is not None:
        page = listings.page(conn, "runs", company=company, limit=2, by_end=True, after=after)
        seen |= {row["id"] for row in page.rows}
        after = page.after
    assert seen == {*ended, *live}


def test_wakes_page_in_both_orders(conn: Conn, company: str) -> None:
    for _ in range(7):
        conn.execute("SELECT wakeful.request_wake(company => %s, agent => 'coder')", (company,))
    ids = [row[0] for row in conn.execute("SELECT id FROM wakeful.wake ORDER BY id DESC").fetchall()]
    for wake in ids[::2]:
        conn.execute("SELECT wakeful.retire_wake(company => %s, wake => %s)", (company, wake))
    ended = conn.execute("SELECT id FROM wakeful.wake WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC")
    by_end = [*ids[1::2], *(row[0] for row in ended.fetchall())]
    assert walk(conn, "wakes", company=company, limit=2) == ids
    assert walk(conn, "wakes", company=company, limit=2, by_end=True) == by_end


def test_every_listing_pages_to_its_end(conn: Conn, company: str) -> None:
    other = "SELECT wakeful.add_company(company => %s)"
    for name in ("bolt", "corp"):
        conn.execute(other, (name,))
    for name in ("one", "two", "three"):
        conn.execute("SELECT wakeful.add_project(company => %s, project => %s)", (company, name))
        conn.execute("SELECT wakeful.add_agent(company => %s, agent => %s, command => '{true}')", (company, name))
        conn.execute("SELECT wakeful.create_issue(company => %s, issue => %s)", (company, name))
        conn.execute(
            "SELECT wakeful.set_budget(company => %s, policy => %s, amount => 1)", (company, f"project:{name}")
        )
        conn.execute("SELECT wakeful.add_spend(company => %s, amount => 0.5, project => %s)", (company, name))
        conn.execute("INSERT INTO wakeful.host (id) VALUES (%s)", (name,))
    for name in ("draining", "panic", "retention_days"):
        conn.execute("SELECT wakeful.set_setting(name => %s, value => %s)", (name, "7" if "days" in name else "true"))
    expected = {
        "companies": ["acme", "bolt", "corp"],
        "projects": ["one", "three", "two"],
        "agents": ["coder", "one", "three", "two"],
        "issues": ["one", "three", "two"],
        "budgets": ["project:one", "project:three", "project:two"],
        "hosts": ["one", "three", "two"],
        "settings": ["draining", "panic", "retention_days"],
    }
    for name in listings.LISTINGS:
        whose = None if name == "companies" else company
        whole = walk(conn, name, company=whose, limit=1000)
        assert walk(conn, name, company=whose, limit=1) == whole, name
        assert whole == expected.get(name, whole), name
    assert len(walk(conn, "spend", company=company, limit=2)) == 3
    assert len(walk(conn, "audit", company=company, limit=2)) > 3
    budget = listings.page(conn, "budgets", company=company).rows[0]
    assert (budget["amount"], budget["spent"]) == (1, 0.5)


def test_filters_and_words_for_several_states(conn: Conn, company: str) -> None:
    conn.execute("SELECT wakeful.add_agent(company => %s, agent => 'other', command => '{true}')", (company,))
    for agent in ("coder", "other"):
        conn.execute("SELECT wakeful.request_wake(company => %s, agent => %s, issue => %s)", (company, agent, agent))
    wake = listings.page(conn, "wakes", company=company, agent="other").rows
    assert [row["issue"] for row in wake] == ["other"]
    conn.execute("SELECT wakeful.retire_wake(company => %s, wake => %s)", (company, wake[0]["id"]))
    conn.execute(
        "UPDATE wakeful.wake SET wait_gate = 'host', wait_key = 'k', wait_reason = 'host.busy' WHERE agent = 'coder'"
    )

    def issues(**how: Any) -> list[str]:
        return [row["issue"] for row in listings.page(conn, "wakes", company=company, **how).rows]

    assert issues(states=["pending"]) == ["coder"]
    assert issues(states=["will-not-run"]) == ["other"]
    assert issues(states=["pending", "cancelled"]) == ["other", "coder"]
    assert issues(gate="host") == ["coder"]
    assert issues(gate="host", key="else") == []
    assert issues(issue="other") == ["other"]


def test_a_page_reads_no_payload(conn: Conn, company: str) -> None:
    marker = "cafe" * 4096
    conn.execute(
        "SELECT wakeful.request_wake(company => %s, agent => 'coder', payload => %s)", (company, json.dumps(marker))
    )
    run = add_runs(conn, company, 1)[0]
    page = listings.page(conn, "wakes", company=company)
    assert "cafecafe" not in str(page.rows)
    assert "stdout_tail" not in listings.page(conn, "runs", company=company).rows[0]
    assert "stdout_tail" not in listings.run(conn, company, run)


def cursor_of(*parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "%%%",
        "ÄÖ",
        cursor_of("runs"),
        cursor_of("runs", None, 5),
        cursor_of("runs", None, "not a uuid"),
        cursor_of("wakes", None, str(UUID(int=1))),
        cursor_of("runs by end", None, str(UUID(int=1))),
        cursor_of("runs", "2031-01-01T00:00:00", str(UUID(int=1))),
        cursor_of("runs", "yesterday", str(UUID(int=1))),
        base64.urlsafe_b64encode(b"[" * 20000).decode(),
    ],
)
def test_a_bad_cursor_is_an_error(conn: Conn, company: str, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        listings.page(conn, "runs", company=company, after=cursor)


@pytest.mark.parametrize("key", ["a\0b", "\ud800"])
def test_a_cursor_cannot_carry_what_the_database_cannot_hold(conn: Conn, company: str, key: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        listings.page(conn, "issues", company=company, after=cursor_of("issues", None, key))


def test_what_cannot_be_listed_is_refused(conn: Conn, company: str) -> None:
    with pytest.raises(InvalidInput, match="no state of runs"):
        listings.page(conn, "runs", company=company, states=["sleeping"])
    with pytest.raises(InvalidInput, match="1 to 1000 rows"):
        listings.page(conn, "runs", company=company, limit=0)
    with pytest.raises(InvalidInput, match="cannot be narrowed"):
        listings.page(conn, "budgets", company=company, agent="coder")
    with pytest.raises(InvalidInput, match="no end"):
        listings.page(conn, "budgets", company=company, by_end=True)


def test_one_record(conn: Conn, company: str) -> None:
    assert listings.one(conn, "agents", company, "coder")["command"] == ["true"]
    with pytest.raises(NotFound, match="issue 'none' does not exist"):
        listings.one(conn, "issues", company, "none")
    with pytest.raises(NotFound):
        listings.run(conn, company, UUID(int=7))
    older, newer = add_runs(conn, company, 2)
    assert listings.run(conn, company, older)["id"] == older
    assert listings.run(conn, company, newer)["id"] == newer


def test_a_viewer_pages_only_its_company(conn: Conn, company: str, database: Any) -> None:
    conn.execute("SELECT wakeful.add_company(company => 'bolt')")
    viewer = database.connect_as("wakeful_viewer")
    assert listings.page(viewer, "companies").rows == ()
    viewer.execute("SELECT set_config('wakeful.company', 'acme', false)")
    assert [row["company"] for row in listings.page(viewer, "companies").rows] == ["acme"]
