"""Locks go by key where there are no statistics yet: what a pass reads does not grow with what others have saved."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from wakeful import store

Conn = psycopg.Connection[Any]
MANY = 400


def rows_read(node: dict[str, Any]) -> float:
    """Rows that a plan's nodes yielded or threw away, all loops together."""
    own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    own += node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"]
    return float(own) + sum(rows_read(child) for child in node.get("Plans", ()))


@pytest.mark.usefixtures("company")
def test_the_issues_of_a_pass_are_locked_by_their_keys(conn: Conn) -> None:
    conn.execute(
        "SELECT count(wakeful.request_wake('acme', 'coder', 'I-' || n)) FROM generate_series(1, %s) AS n", (MANY,)
    )
    wakes = [wake for (wake,) in conn.execute("SELECT id FROM wakeful.wake ORDER BY id LIMIT 2").fetchall()]
    text = store.query("admission.lock_issues") % {"company": "$1", "ids": "$2"}
    with conn.transaction():
        store.run(conn, "settings.cached_plans")
        conn.execute(f"PREPARE locking (text, uuid[]) AS {text}")
        asked = ", ".join(f"'{wake}'" for wake in wakes)
        explained = conn.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE locking ('acme', ARRAY[{asked}]::uuid[])")
        [(plans,)] = explained.fetchall()
    assert rows_read(plans[0]["Plan"]) < 20
