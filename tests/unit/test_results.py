"""What an exit record and a result.json conclude to; nothing a program leaves behind makes this raise."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.executions import EndClass, ExitReport, Grade, Output, RunKey
from wakeful.follow_ups import NextWake, Question
from wakeful.results import LIMIT, BadResult, conclude, read_result

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)
NOTHING = Output("/run/stdout", 0, "", "")
ENDED = ExitReport(RunKey("acme", UUID(int=1), 1), 0, None, None, Grade.CONTAINED, NOW, NOW, NOTHING, NOTHING)


def report(**changes: Any) -> ExitReport:
    return replace(ENDED, **changes)


def written(value: Any) -> bytes:
    return json.dumps(value).encode()


# what the runner saw, then state, class, reason
CASES: list[tuple[str, dict[str, Any], tuple[str, str, str]]] = [
    ("exit 0", {}, ("succeeded", "ok", "run.ok")),
    ("exit 3", {"exit_code": 3}, ("failed", "failed", "run.failed")),
    ("signal", {"exit_code": None, "signal": 9}, ("failed", "killed", "run.killed")),
    (
        "stopped",
        {"exit_code": None, "signal": 15, "ended_by": EndClass.STOPPED},
        ("cancelled", "stopped", "run.stopped"),
    ),
    (
        "stopped, though it says ok",
        {"ended_by": EndClass.STOPPED, "result": b"{}"},
        ("cancelled", "stopped", "run.stopped"),
    ),
    ("timed out", {"ended_by": EndClass.TIMED_OUT, "result": b"{}"}, ("failed", "timed_out", "run.timed_out")),
    ("silent", {"ended_by": EndClass.SILENT}, ("failed", "silent", "run.silent")),
    ("killed by the runner", {"ended_by": EndClass.KILLED}, ("failed", "killed", "run.killed")),
    ("not started", {"exit_code": None, "error": "no such file"}, ("failed", "failed", "run.not_started")),
    ("empty result", {"result": b"{}"}, ("succeeded", "ok", "run.ok")),
    ("result fails, exit 0", {"result": b'{"class": "failed"}'}, ("failed", "failed", "run.failed")),
    ("result ok, exit 3", {"exit_code": 3, "result": b'{"class": "ok"}'}, ("succeeded", "ok", "run.ok")),
    ("result without a class, exit 3", {"exit_code": 3, "result": b"{}"}, ("failed", "failed", "run.failed")),
    (
        "result ok, then killed",
        {"exit_code": None, "signal": 9, "result": b'{"class": "ok"}'},
        ("succeeded", "ok", "run.ok"),
    ),
    (
        "needs input",
        {"exit_code": 3, "result": b'{"class": "needs_input"}'},
        ("failed", "needs_input", "run.needs_input"),
    ),
    ("session lost", {"result": b'{"class": "session_lost"}'}, ("failed", "session_lost", "run.session_lost")),
    ("claims to be stopped", {"result": b'{"class": "stopped"}'}, ("failed", "bad_result", "run.bad_result")),
    ("unreadable, exit 0", {"result": b"{"}, ("failed", "bad_result", "run.bad_result")),
    ("empty file", {"result": b""}, ("failed", "bad_result", "run.bad_result")),
]


@pytest.mark.parametrize(("changes", "expected"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_conclusions(changes: dict[str, Any], expected: tuple[str, str, str]) -> None:
    end = conclude(report(**changes))
    assert (end.state, end.end_class.value, end.reason) == expected


def test_the_accepted_result_is_kept_whole_and_an_unreadable_one_as_text() -> None:
    said = {"class": "failed", "message": "no answer", "mine": {"x": [1, 2.5, None]}}
    end = conclude(report(result=written(said)))
    assert (end.result, end.message) == (said, "no answer")
    end = conclude(report(result=b"\xff\0{"))
    assert end.result == {"unreadable": "\ufffd\ufffd{"}


def test_the_next_wake_is_read() -> None:
    end = conclude(report(result=written({"next": {"at": "2026-06-01T10:00:00+02:00", "payload": {"page": 2}}})))
    assert end.next_wake == NextWake(datetime(2026, 6, 1, 8, tzinfo=UTC), {"page": 2})


@pytest.mark.parametrize(
    ("following", "asked"),
    [
        ({"question": {"text": "Which?\0"}, "kind": "choice"}, Question({"text": "Which?\ufffd"}, "choice")),
        ({"question": "Ship it?"}, Question("Ship it?", "question")),
        ({"question": False}, Question(False, "question")),
    ],
)
def test_a_question_is_read(following: Any, asked: Question) -> None:
    for end_class in ({}, {"class": "needs_input"}):
        assert conclude(report(result=written({**end_class, "next": following}))).next_wake == asked


BAD: list[tuple[bytes, str]] = [
    (b"[]", "not an object"),
    (b'"ok"', "not an object"),
    ("{}".encode("utf-16"), "UTF-8"),
    (b'{"message": "\xff"}', "UTF-8"),
    (b'{"x": NaN}', "NaN"),
    (b'{"x": -Infinity}', "-Infinity"),
    (b'{"x": 1e999}', "too large"),
    (b'{"a":' + b"[" * 600 + b"]" * 600 + b"}", "deeply"),
    (b'{"next": {"at": "2026-06-01T10:00:00Z", "payload": [' + b"1e308," * 9000 + b"1]}}", "64 KiB"),
    (b'{"next": {"at": "' + b"9" * 5000 + b'"}}', "ISO 8601"),
    (b'{"x": ' + b"9" * 5000 + b"}", "not JSON"),
    (b"[" * 60_000, "deeply"),
    (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "deeply"),
    (b'{"a":' + b"[" * 7000 + b"]" * 7000 + b"}", "deeply"),
    (b'{"x": "' + b"a" * LIMIT + b'"}', "65536"),
    (b'{"class": "splendid"}', "splendid"),
    (b'{"class": 5}', "5"),
    (b'{"class": ["ok"]}', "class"),
    (b'{"class": {}}', "class"),
    (b'{"class": null}', "class"),
    (b'{"class": "timed_out"}', "timed_out"),
    (b'{"message": 5}', "message"),
    (b'{"message": null}', "message"),
    (b'{"artifacts": "a"}', "artifacts"),
    (b'{"next": "tomorrow"}', "next"),
    (b'{"next": {}}', "next"),
    (b'{"next": {"at": 5}}', "next"),
    (b'{"next": {"question": null}}', "question"),
    (b'{"next": {"question": "?", "at": "2026-06-01T10:00:00Z"}}', "either"),
    (b'{"next": {"question": "?", "kind": ""}}', "kind"),
    (b'{"next": {"question": "?", "kind": 5}}', "kind"),
    (b'{"next": {"question": [' + b"1e308," * 9000 + b"1]}}", "64 KiB"),
    (b'{"next": {"at": "tomorrow"}}', "tomorrow"),
    (b'{"next": {"at": "2026-06-01T10:00:00"}}', "time zone"),
    (b'{"next": {"at": "1999-12-31T23:59:59+00:00"}}', "2000"),
    (b'{"next": {"at": "2101-01-01T00:00:00Z"}}', "2100"),
    (b'{"next": {"at": "0001-01-01T00:00:00+23:59"}}', "2000"),
    (b'{"next": {"at": "9999-12-31T23:59:59-23:59"}}', "2100"),
    (written({"next": {"at": "2026-06-01T10:00:00Z", "payload": "\u20ac" * 15_000}}), "65536|64 KiB"),
]


@pytest.mark.parametrize(("raw", "says"), BAD, ids=[raw[:24].decode("utf-8", "replace") for raw, _ in BAD])
def test_a_bad_result_is_refused_by_the_field_at_fault(raw: bytes, says: str) -> None:
    with pytest.raises(BadResult, match=says):
        read_result(raw)
    end = conclude(report(result=raw[: LIMIT + 1]))
    assert (end.state, end.end_class) == ("failed", EndClass.BAD_RESULT)
    assert end.message is not None
    assert end.message.startswith("result.json: ")
    assert len(end.message) < 1000
    storable(end)


def test_the_limit_is_on_the_bytes() -> None:
    exact = b'{"x":"' + b"a" * (LIMIT - 8) + b'"}'
    assert len(exact) == LIMIT
    assert read_result(exact)["x"] == "a" * (LIMIT - 8)
    with pytest.raises(BadResult, match="65536"):
        read_result(exact + b" ")


def test_text_is_made_storable_wherever_it_stands() -> None:
    raw = rb'{"message": "a\u0000b\ud800c", "x": [{"k\u0000": "\udfff"}], "pair": "\ud83d\ude00"}'
    result = read_result(raw)
    assert result["message"] == "a\ufffdb\ufffdc"
    assert result["x"] == [{"k\ufffd": "\ufffd"}]
    assert result["pair"] == "\U0001f600"


def storable(end: Any) -> None:
    """What is stored must be text and JSON that PostgreSQL takes."""
    json.dumps(end.result, allow_nan=False)
    for text in (end.message or "", end.error or "", *texts(end.result)):
        text.encode("utf-8")
        assert "\0" not in text


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in texts(part)]
    return [text for item in value for text in texts(item)] if isinstance(value, list) else []


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=12)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)
results = st.fixed_dictionaries(
    {},
    optional={
        "class": st.sampled_from([*(c.value for c in EndClass)]) | values,
        "message": values,
        "artifacts": values,
        "next": st.fixed_dictionaries({"at": values | st.just("2026-06-01T10:00:00Z")}, optional={"payload": values})
        | values,
        "other": values,
    },
)


@given(st.binary(max_size=200) | results.map(written) | values.map(written), st.sampled_from([0, 3, None]))
def test_nothing_a_program_writes_raises_and_all_of_it_can_be_stored(raw: bytes, code: int | None) -> None:
    end = conclude(report(result=raw, exit_code=code, signal=None if code is not None else 9))
    assert end.state in ("succeeded", "failed")
    assert (end.state == "succeeded") == (end.end_class is EndClass.OK)
    storable(end)
