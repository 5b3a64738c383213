"""A company's export: all of its rows and nobody else's, whatever its name, as they were at one moment."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import psycopg
import pytest
from tests.rows import say

from wakeful import company_data, producers
from wakeful.errors import NotFound
from wakeful.testing import Database

Conn = psycopg.Connection[Any]
AWKWARD = "o'%s \\ %(x)s {} \"é"


def exported(conn: Conn, company: str) -> Counter[str]:
    rows = [json.loads(line) for line in company_data.export(conn, company)]
    assert {row["row"]["company"] for row in rows} == {company}
    return Counter(row["table"] for row in rows)


def test_an_awkward_name_exports_its_own_rows(conn: Conn, company: str) -> None:
    say(
        conn,
        producers.add_company(AWKWARD),
        producers.create_issue(AWKWARD, "I-1"),
        producers.create_issue(AWKWARD, "I-2"),
    )
    tables = exported(conn, AWKWARD)
    assert (tables["company"], tables["issue"], tables["agent"]) == (1, 2, 0)
    assert exported(conn, company)["agent"] == 1


def test_what_is_written_meanwhile_is_not_in_it(conn: Conn, database: Database, company: str) -> None:
    say(conn, producers.create_issue(company, "I-1"))
    lines = company_data.export(conn, company)
    first = json.loads(next(lines))
    say(database.connect(), producers.create_issue(company, "I-2"))
    tables = Counter([first["table"], *(json.loads(line)["table"] for line in lines)])
    assert tables["issue"] == 1


def test_a_company_that_is_not_there(conn: Conn, company: str) -> None:
    with pytest.raises(NotFound, match="'nowhere' does not exist"):
        list(company_data.export(conn, "nowhere"))
