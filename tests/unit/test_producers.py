"""Producers as values: what they render, and what they refuse before anything is sent."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wakeful
from wakeful import producers
from wakeful.errors import InvalidInput
from wakeful.producers import Statement

RUN = UUID("01a22bc2-c7a6-71ef-8435-a34d29d43db5")
FUNCTIONS = sorted(name for name in producers.__all__ if inspect.isfunction(getattr(producers, name)) and name != "run")

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)
values: dict[str, st.SearchStrategy[Any]] = {
    "actor": texts.map(lambda one: f"user:{one}"),
    "assignee": st.none() | texts.map(lambda one: f"agent:{one}"),
    "author": texts.map(lambda one: f"user:{one}"),
    "amount": st.decimals(0, 10**9, places=6),
    "at": st.datetimes(datetime(2000, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC)),
    "by_amount": st.integers(0, 10**9),
    "comments": st.lists(texts, min_size=1, max_size=4, unique=True),
    "command": st.lists(texts, min_size=1, max_size=4),
    "env_allow": st.lists(texts, max_size=3),
    "env_values": st.dictionaries(texts, texts, max_size=3),
    "estimate": st.decimals(0, 10**6, places=2),
    "expected_version": st.integers(1, 99),
    "force": st.booleans(),
    "generation": st.integers(1, 99),
    "hard_stop": st.booleans(),
    "action": st.uuids(),
    "labels": st.lists(texts, max_size=3),
    "max_attempts": st.integers(1, 9),
    "max_concurrent_runs": st.integers(1, 9),
    "max_runtime": st.none() | st.timedeltas(timedelta(seconds=1), timedelta(days=9)),
    "mode": st.sampled_from(["pause", "cancel"]),
    "on_overrun": st.sampled_from(["finish", "stop"]),
    "payload": st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    ),
    "period": st.sampled_from(["month", "lifetime"]),
    "priority": st.integers(-1000, 1000),
    "provenance": st.sampled_from(["reported", "estimated", "unknown"]),
    "question": st.dictionaries(texts, texts, max_size=3),
    "queue": st.uuids(),
    "reader": st.just({"kind": "json_lines", "rules": [{"session": "session_id"}]}),
    "resuming": st.sampled_from(["auto", "ask"]),
    "revision": st.integers(1, 99),
    "reviewer": st.none() | texts.map(lambda one: f"agent:{one}"),
    "run": st.uuids(),
    "session_policy": st.just({"mode": "reuse", "rotate_runs": 20, "rotate_days": 7}),
    "silence_limit": st.timedeltas(timedelta(seconds=1), timedelta(days=9)),
    "source": st.sampled_from(["assignment", "on_demand", "automation", "timer"]),
    "state": st.sampled_from(["processed", "failed"]),
    "starts_per_second": st.integers(1, 99),
    "status": st.sampled_from(["todo", "done"]),
    "stop_grace": st.timedeltas(timedelta(), timedelta(days=1)),
    "until": st.datetimes(datetime(2000, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC)),
    "value": st.booleans() | st.integers(1, 99),
    "wake": st.uuids().map(str),
    "warn_percent": st.integers(1, 100),
}


# Names that mean something else in one function.
its_own = {
    ("close_lease", "outcome"): st.sampled_from(["released", "failed"]),
    ("resolve_recovery", "outcome"): st.sampled_from(["resolved", "dead", "lost"]),
    ("reorder_comments", "revision"): texts,
    ("answer_card", "status"): st.sampled_from(["answered", "accepted", "rejected"]),
    ("answer_card", "answer"): st.dictionaries(texts, texts, max_size=3),
}


@st.composite
def statements(draw: st.DrawFn) -> Statement:
    make: Callable[..., Statement] = getattr(producers, draw(st.sampled_from(FUNCTIONS)))
    given_values = {}
    for name, parameter in inspect.signature(make).parameters.items():
        if parameter.default is inspect.Parameter.empty or draw(st.booleans()):
            given_values[name] = draw(its_own.get((make.__name__, name), values.get(name, texts)))
    return make(**given_values)


@given(statements())
def test_texts_hold_no_cast_percent_or_colon_besides_their_placeholders(statement: Statement) -> None:
    names = [name for name, _ in statement.arguments]
    text, given_values = statement.psycopg
    assert text.count("%") == len(names) == len(given_values)
    assert text.count("%s") == len(names)
    assert ":" not in text
    text, by_name = statement.sqlalchemy
    assert re.findall(r":(\w+)", text) == names == list(by_name)
    assert text.count(":") == len(names)
    assert "%" not in text
    text, numbered = statement.numbered
    assert re.findall(r"\$(\d+)", text) == [str(at) for at in range(1, len(names) + 1)]
    assert ":" not in text
    assert "%" not in text
    assert tuple(numbered) == tuple(by_name.values()) == given_values
    assert statement.django == statement.psycopg


def test_only_the_given_arguments_are_named() -> None:
    assert wakeful.request_wake("acme", "coder", key="k").psycopg == (
        "SELECT outcome, wake, state, run FROM wakeful.request_wake(company => %s, agent => %s, key => %s)",
        ("acme", "coder", "k"),
    )


def test_null_is_sent_where_it_means_something() -> None:
    assert ("max_concurrent_runs", None) in wakeful.limit_company("acme", None).arguments
    assert ("assignee", None) in wakeful.assign_issue("acme", "I-1", None).arguments
    assert ("max_runtime", None) in wakeful.add_agent("acme", "coder", ["true"], max_runtime=None).arguments
    assert "max_runtime" not in dict(wakeful.add_agent("acme", "coder", ["true"]).arguments)


@given(values["payload"])
def test_a_payload_is_sent_as_the_json_it_is(payload: Any) -> None:
    sent = dict(wakeful.request_wake("acme", "coder", payload=payload).arguments)["payload"]
    assert json.loads(sent) == payload


def test_statements_are_values() -> None:
    assert wakeful.pause_company("acme") == wakeful.pause_company("acme")
    with pytest.raises(AttributeError):
        wakeful.pause_company("acme").function = "drop_company"  # type: ignore[misc]


WAKE = wakeful.request_wake
BAD: list[tuple[Callable[[], Statement], str]] = [
    (lambda: WAKE("", "coder"), "company has 0 characters"),
    (lambda: WAKE("a" * 201, "coder"), "company has 201 characters"),
    (lambda: WAKE("a\0b", "coder"), "NUL"),
    (lambda: WAKE("acme", "\ud800"), "surrogate"),
    (lambda: WAKE(7, "coder"), "company is text, not int"),  # type: ignore[arg-type]
    (lambda: WAKE("acme", "coder", ""), "issue has 0 characters"),
    (lambda: WAKE("acme", "coder", at=datetime(2030, 1, 1)), "no time zone"),
    (lambda: WAKE("acme", "coder", at=datetime(1999, 12, 31, 23, 59, tzinfo=UTC)), "2000 to 2100"),
    (lambda: WAKE("acme", "coder", at=datetime(2101, 1, 1, tzinfo=UTC)), "2000 to 2100"),
    (lambda: WAKE("acme", "coder", at=datetime(2000, 1, 1, tzinfo=timezone(timedelta(hours=5)))), "2000 to 2100"),
    (lambda: WAKE("acme", "coder", at=date(2030, 1, 1)), "at is a datetime"),  # type: ignore[arg-type]
    (lambda: WAKE("acme", "coder", payload=float("nan")), "not JSON"),
    (lambda: WAKE("acme", "coder", payload={"x": [float("inf")]}), "not JSON"),
    (lambda: WAKE("acme", "coder", payload="a\0b"), "NUL"),
    (lambda: WAKE("acme", "coder", payload={"\\\0": 1}), "NUL"),
    (lambda: WAKE("acme", "coder", payload=["\udfff"]), "surrogate"),
    (lambda: WAKE("acme", "coder", payload={1, 2}), "not JSON"),
    (lambda: WAKE("acme", "coder", payload="x" * 65_535), "65537 bytes; the limit is 65536"),
    (lambda: WAKE("acme", "coder", payload=json.loads('{"a":' * 100 + "1" + "}" * 100)), "more than 100 levels"),
    (lambda: WAKE("acme", "coder", payload="é" * 32_768), "65538 bytes; the limit is 65536"),
    (lambda: WAKE("acme", "coder", priority=1001), "between -1000 and 1000"),
    (lambda: WAKE("acme", "coder", priority=True), "whole number, not bool"),
    (lambda: WAKE("acme", "coder", estimate=0.1), "Decimal, not float"),  # type: ignore[arg-type]
    (lambda: WAKE("acme", "coder", estimate=Decimal("NaN")), "not an amount"),
    (lambda: WAKE("acme", "coder", estimate=Decimal("-0.01")), "not an amount"),
    (lambda: WAKE("acme", "coder", estimate=10**12), "not an amount"),
    (lambda: WAKE("acme", "coder", source="cron"), "no source"),
    (lambda: WAKE("acme", "coder", actor="ann"), "user:ID or agent:ID or system:ID"),
    (lambda: WAKE("acme", "coder", actor="user:"), "user:ID"),
    (lambda: wakeful.assign_issue("acme", "I-1", "system:x"), "agent:ID or user:ID"),
    (lambda: wakeful.request_retry("acme", "R-1"), "not a UUID"),
    (lambda: wakeful.stop_run("acme", 7), "run is text, not int"),  # type: ignore[arg-type]
    (lambda: wakeful.add_agent("acme", "coder", []), "at least one word"),
    (lambda: wakeful.add_agent("acme", "coder", "echo hi"), "list of texts, not str"),
    (lambda: wakeful.add_agent("acme", "coder", ["a\0"]), "NUL"),
    (lambda: wakeful.add_agent("acme", "coder", ["a"], env_values={"A": 1}), "text, not int"),  # type: ignore[dict-item]
    (lambda: wakeful.add_agent("acme", "coder", ["a"], max_runtime=timedelta()), "too short"),
    (lambda: wakeful.add_agent("acme", "coder", ["a"], stop_grace=5), "timedelta, not int"),  # type: ignore[arg-type]
    (lambda: wakeful.set_budget("acme", "company", 5, warn_percent=0), "between 1 and 100"),
    (lambda: wakeful.set_budget("acme", "company", 5, hard_stop="no"), "True or False"),  # type: ignore[arg-type]
    (lambda: wakeful.set_issue_status("acme", "I-1", "open"), "no status"),
]


@pytest.mark.parametrize(("make", "cause"), BAD, ids=[cause for _, cause in BAD])
def test_a_bad_value_is_named(make: Callable[[], Statement], cause: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        make()
    assert cause in raised.value.message
    raised.value.message.encode()


def test_a_deep_payload_is_refused_without_a_recursion_error() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="not JSON"):
        WAKE("acme", "coder", payload=deep)


def test_limits_are_inclusive() -> None:
    WAKE("a" * 200, "coder", payload="x" * 65_534, priority=-1000, at=datetime(2000, 1, 1, tzinfo=UTC))
    WAKE("acme", "coder", payload="\\u0000", estimate=Decimal("999999999999.999999"))
    WAKE("acme", "coder", payload=json.loads("[" * 100 + "]" * 100))
    wakeful.stop_run("acme", str(uuid4()))


def test_every_producer_is_public_from_the_package() -> None:
    assert {name for name in producers.__all__ if getattr(wakeful, name) is not getattr(producers, name)} == set()
    assert set(producers.__all__) <= set(wakeful.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        wakeful.nonsense  # noqa: B018 - the look-up is the test


def test_importing_wakeful_loads_nothing_heavy() -> None:
    code = (
        "import sys, wakeful; from wakeful import producers; producers.pause_company('acme').psycopg;"
        "print([m for m in ('psycopg', 'pluggy', 'click', 'sqlalchemy', 'threading') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
