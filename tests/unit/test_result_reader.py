"""The JSON-lines reader: rules over bytes, bounded, exact, and silent about what it cannot read."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakeful.errors import ExecutorError
from wakeful.executions import EndClass, ExitReport, Grade, Output, RunKey
from wakeful.results import conclude
from wakeful.usage import BadUsage, Usage, read_usage
from wakeful_plugins.result_reader import CHUNK, LINE, JsonLinesReader, lines

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)
NOTHING = Output("/run/stdout", 0, "", "")
ENDED = ExitReport(RunKey("acme", UUID(int=1), 1), 0, None, None, Grade.CONTAINED, NOW, NOW, NOTHING, NOTHING)


@dataclass(frozen=True)
class Stream:
    """A saved output in memory, which gives no more at a time than a file might."""

    data: bytes = b""
    truncated: bool = False
    most: int = 1 << 30

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, limit: int) -> bytes:
        return self.data[offset : offset + min(limit, self.most)]


def printed(*values: Any) -> bytes:
    return b"".join(value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n" for value in values)


def read(rules: list[dict[str, Any]], *values: Any, **settings: Any) -> dict[str, Any]:
    config = {"kind": "json_lines", "rules": rules} | settings
    return JsonLinesReader().read(config, Stream(printed(*values)), Stream())


def found(rules: list[dict[str, Any]], *values: Any, **settings: Any) -> dict[str, Any]:
    fields = read(rules, *values, **settings)
    del fields["reader"]
    return fields


# ── what rules say ──────────────────────────────────────────────────────────────────────────────────────


def test_the_last_word_counts_and_later_rules_override_earlier_ones() -> None:
    rules = [{"session": "id", "message": "text"}, {"when": {"error": True}, "class": "failed"}]
    assert found(rules, {"id": "s1", "text": "a"}, {"id": "s2"}, {"text": "b"}) == {"session": "s2", "message": "b"}
    assert found(rules, {"error": True}, {"error": False}) == {"class": "failed"}
    overriding = [{"class": "failed"}, {"when": {"lost": True}, "class": "session_lost"}]
    assert found(overriding, {"lost": True}) == {"class": "session_lost"}
    assert found(overriding, {"lost": True}, {}) == {"class": "failed"}


CONDITIONS: list[tuple[Any, Any, bool]] = [
    ("a", "a", True),
    ("a", "b", False),
    (["a", "b"], "b", True),
    (1, 1, True),
    (1, 1.0, True),
    (0.1, 0.1, True),
    (1, True, False),
    (True, 1, False),
    (True, True, True),
    (0, False, False),
    ("1", 1, False),
    (None, None, True),
    (None, 0, False),
    ({"contains": "limit"}, "the limit is reached", True),
    ({"contains": "limit"}, "all is well", False),
    ({"contains": "limit"}, ["limit"], False),
    ({"present": True}, None, True),
    ({"present": False}, None, False),
]


@pytest.mark.parametrize(("wanted", "value", "holds"), CONDITIONS)
def test_conditions(wanted: Any, value: Any, holds: bool) -> None:
    assert (found([{"when": {"x.y": wanted}, "class": "failed"}], {"x": {"y": value}}) != {}) is holds


def test_a_missing_value_is_not_null_but_not_present() -> None:
    assert found([{"when": {"x": None}, "class": "failed"}], {}) == {}
    assert found([{"when": {"x": {"present": False}}, "class": "failed"}], {}) == {"class": "failed"}
    assert found([{"when": {"x": 1, "y": 2}, "class": "failed"}], {"x": 1}) == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [("a.b", "text"), ("list.1", "two"), (["a", "b"], "text"), (["dotted.name"], "here"), ("n", "7")],
)
def test_paths_go_through_objects_and_lists(path: Any, value: str) -> None:
    line = {"a": {"b": "text"}, "list": ["one", "two"], "dotted.name": "here", "n": 7}
    assert found([{"session": path}], line) == {"session": value}


@pytest.mark.parametrize("path", ["a", "a.b.c", "list.2", "list.-1", "list.x", "list.99999999", "truth", "none", "no"])
def test_what_a_path_does_not_reach_says_nothing(path: str) -> None:
    line = {"a": {"b": "text"}, "list": ["one", "two"], "truth": True, "none": None}
    assert found([{"session": path, "message": path}], line) == {}


@pytest.mark.parametrize(
    ("value", "after", "moment"),
    [
        ("2026-06-01T10:00:00+02:00", None, datetime(2026, 6, 1, 8, tzinfo=UTC)),
        (1780300800, None, datetime(2026, 6, 1, 8, tzinfo=UTC)),
        (1780300800.5, None, datetime(2026, 6, 1, 8, 0, 0, 500_000, tzinfo=UTC)),
        (1780300800500, None, datetime(2026, 6, 1, 8, 0, 0, 500_000, tzinfo=UTC)),
        ("1780300800", None, datetime(2026, 6, 1, 8, tzinfo=UTC)),
        ("usage limit reached|1780300800", "|", datetime(2026, 6, 1, 8, tzinfo=UTC)),
        ("usage limit reached", "|", None),
        ("tomorrow", None, None),
        ("2026-06-01T10:00:00", None, None),
        ("1999-01-01T00:00:00Z", None, None),
        (10**30, None, None),
        (4102444800 + 366 * 86400, None, None),
        (-1, None, None),
        (True, None, None),
    ],
)
def test_a_provider_limit_tells_until_when(value: Any, after: str | None, moment: datetime | None) -> None:
    source = {"path": "reset", "after": after} if after else "reset"
    said = found([{"class": "provider_limited", "until": source}], {"reset": value})
    until = said.pop("until", None)
    assert said == {"class": "provider_limited"}
    assert (until and datetime.fromisoformat(until)) == moment


def test_until_belongs_to_a_provider_limit_only() -> None:
    assert found([{"class": "failed", "until": "reset"}], {"reset": 1780300800}) == {"class": "failed"}


# ── usage ───────────────────────────────────────────────────────────────────────────────────────────────

PER_MESSAGE = {
    "when": {"type": "assistant"},
    "usage": {
        "take": "sum",
        "once": "message.id",
        "provider": {"value": "anthropic"},
        "model": "message.model",
        "tokens_in": ["message.usage.input", "message.usage.cache_written"],
        "tokens_out": "message.usage.output",
        "tokens_cached": "message.usage.cache_read",
    },
}


def message(id: str, model: str, **usage: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": id, "model": model, "usage": usage}}


def test_tokens_are_added_up_by_model_and_a_line_told_twice_counts_once() -> None:
    said = found(
        [PER_MESSAGE],
        message("m1", "large", input=10, cache_written=5, output=1),
        message("m1", "large", input=10, cache_written=5, output=7),
        message("m2", "small", input=3, output=2, cache_read=100),
        message("m3", "large", input=1, output=1),
        {"type": "other", "message": {"usage": {"input": 1000}}},
    )
    assert said["usage"] == [
        {"provider": "anthropic", "model": "large", "tokens_in": 16, "tokens_out": 8, "provenance": "unknown"},
        {
            "provider": "anthropic",
            "model": "small",
            "tokens_in": 3,
            "tokens_out": 2,
            "tokens_cached": 100,
            "provenance": "unknown",
        },
    ]


def money(take: str, *lines: Any, **settings: Any) -> list[dict[str, Any]]:
    usage: list[dict[str, Any]] = found([{"usage": {"take": take, "money": "cost"}}], *lines, **settings)["usage"]
    return usage


def test_money_is_exact_and_summed_or_the_last() -> None:
    tenths = [{"cost": 0.1}] * 10
    assert money("sum", *tenths) == [{"money": "1.000000", "provenance": "reported"}]
    assert money("last", *tenths, {"cost": 2.5e-3}) == [{"money": "0.002500", "provenance": "reported"}]
    estimated = found([{"usage": {"money": "cost", "provenance": "estimated"}}], {"cost": 0})
    assert estimated["usage"] == [{"money": "0.000000", "provenance": "estimated"}]


@pytest.mark.parametrize(
    "line",
    [
        {"cost": -1},
        {"cost": "5"},
        {"cost": True},
        {"cost": 1e12},
        b'{"cost": 1e999999}\n',
        b'{"cost": 1e99999999999}\n',
    ],
)
def test_a_price_that_is_none_makes_the_sum_unknown(line: Any) -> None:
    assert money("sum", {"cost": 1}, line) == [{"provenance": "unknown"}]


def test_one_part_without_a_price_makes_the_whole_unknown() -> None:
    rules = [{"usage": {"money": "cost", "tokens_in": "in"}}]
    assert found(rules, {"in": 1, "cost": 1}, {"in": 2})["usage"] == [{"tokens_in": 3, "provenance": "unknown"}]
    assert found(rules, {"in": 1, "cost": 1}, {})["usage"] == [
        {"tokens_in": 1, "money": "1.000000", "provenance": "reported"}
    ]


def test_too_many_models_are_unknown() -> None:
    rules = [{"usage": {"model": "m", "money": "cost"}}]
    assert len(found(rules, *({"m": f"{n}", "cost": 1} for n in range(50)))["usage"]) == 50
    assert found(rules, *({"m": f"{n}", "cost": 1} for n in range(51)))["usage"] == [{"provenance": "unknown"}]


# ── bounds ──────────────────────────────────────────────────────────────────────────────────────────────


def test_of_a_long_output_both_ends_are_read_and_sums_are_unknown() -> None:
    filler = [{"n": n} for n in range(500)]
    lines = [{"id": "s1"}, {"cost": 1}, *filler, {"cost": 2}, {"text": "bye"}]
    rules = [
        {"session": "id", "message": "text"},
        {"usage": {"take": "sum", "model": {"value": "m"}, "money": "cost"}},
        {"usage": {"take": "last", "money": "cost"}},
    ]
    whole = read(rules, *lines)
    assert whole["usage"][0] == {"model": "m", "money": "3.000000", "provenance": "reported"}
    assert "gap" not in whole["reader"]
    short = read(rules, *lines, head_kib=1, tail_kib=1)
    assert (short["session"], short["message"], short["reader"]["gap"]) == ("s1", "bye", True)
    assert short["usage"] == [
        {"model": "m", "provenance": "unknown"},
        {"money": "2.000000", "provenance": "reported"},
    ]
    assert short["reader"]["lines"] < 250
    assert short["reader"]["skipped"] == 0


def test_an_output_whose_end_was_cut_off_knows_no_last_word() -> None:
    config = {"kind": "json_lines", "rules": [{"usage": {"take": "last", "money": "cost"}}]}
    cut = Stream(printed({"cost": 1}, b"\n[wakeful: output cut after 64 bytes]\n"), truncated=True)
    said = JsonLinesReader().read(config, cut, Stream())
    assert said["usage"] == [{"provenance": "unknown"}]
    assert said["reader"]["gap"] is True


def test_lines_over_the_limit_are_skipped_and_counted() -> None:
    def line(length: int) -> bytes:
        return b'{"s": "' + b"x" * (length - 9) + b'"}\n'

    config = {"kind": "json_lines", "rules": [{"class": "failed"}], "tail_kib": 16384}
    for length, skipped in ((LINE, 0), (LINE + 1, 1), (3 * LINE, 1)):
        said = JsonLinesReader().read(config, Stream(line(length) + printed({"a": 1})), Stream())
        assert said["reader"] == {"kind": "json_lines", "lines": 2, "matched": 2 - skipped, "skipped": skipped}


def test_a_line_without_an_end_is_not_kept_in_memory() -> None:
    class Endless(Stream):
        @property
        def size(self) -> int:
            return 16 * LINE

        def read(self, offset: int, limit: int) -> bytes:
            return b"x" * min(limit, self.size - offset)

    tracemalloc.start()
    try:
        assert list(lines(Endless(), 0, 16 * LINE)) == [None]
        assert tracemalloc.get_traced_memory()[1] < 4 * LINE
    finally:
        tracemalloc.stop()


@given(
    st.lists(st.binary(max_size=12), max_size=12),
    st.booleans(),
    st.integers(1, 9),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_lines_are_those_that_lie_whole_in_either_end(
    parts: list[bytes], ended: bool, most: int, head: int, tail: int
) -> None:
    data = b"\n".join(parts) + b"\n" * ended
    got = list(lines(Stream(data, most=most), head, tail))
    expected, start = [], 0
    for part in data.split(b"\n"):
        end = start + len(part)
        complete = end < len(data)
        if len(data) <= head + tail:
            inside = complete or bool(part)
        else:
            # A line of the tail counts if the byte before it, its predecessor's end, lies in the tail too.
            inside = (complete and end < head) or (start > len(data) - tail and (complete or bool(part)))
        if inside:
            expected.append(part)
        start = end + 1
    assert got == expected


def test_a_line_may_span_chunks() -> None:
    text = "x" * (3 * CHUNK)
    assert found([{"message": "m"}], {"pad": text, "m": "here"}) == {"message": "here"}


@pytest.mark.parametrize(
    "line",
    [
        b"plain words\n",
        b"{broken\n",
        b'{"a": NaN}\n',
        b'{"session": "\xff"}\n',
        b"[1, 2]\n",
        b"null\n",
        b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
        b'{"a": ' + b"9" * 5000 + b"}\n",
        b'{"a": 1e9999999999999999999}\n',
    ],
    ids=["words", "broken", "NaN", "no UTF-8", "list", "null", "deep", "digits", "exponent"],
)
def test_what_is_no_json_object_is_skipped_and_counted(line: bytes) -> None:
    said = read([{"session": "session"}], {"session": "s1"}, line, b"\n", b"   \n")
    assert said == {
        "session": "s1",
        "reader": {"kind": "json_lines", "lines": 2, "matched": 1, "skipped": 1},
    }


def test_texts_are_bounded_and_storable() -> None:
    said = found(
        [{"session": "id", "message": "text", "usage": {"model": "m", "tokens_in": "n"}}],
        {"id": "s1", "text": "a\0\ud800" + "b" * 9000, "m": "m" * 300, "n": 1},
        {"id": "i" * 4097, "n": 1, "m": "m" * 300},
        {"id": "", "n": 1, "m": "m" * 300},
    )
    assert said["session"] == "s1"
    assert said["message"] == "a\ufffd\ufffd" + "b" * 3997
    assert said["usage"][0]["model"] == "m" * 200


def test_the_other_stream_can_be_read() -> None:
    config = {"kind": "json_lines", "stream": "stderr", "rules": [{"session": "id"}]}
    said = JsonLinesReader().read(config, Stream(printed({"id": "out"})), Stream(printed({"id": "err"})))
    assert said["session"] == "err"


def test_files_that_are_gone_leave_what_was_read_and_say_so() -> None:
    class Gone(Stream):
        def read(self, offset: int, limit: int) -> bytes:
            if offset:
                raise ExecutorError("no files of this run are on this host")
            return super().read(offset, limit)

    config = {"kind": "json_lines", "rules": [{"session": "id", "usage": {"take": "last", "money": "cost"}}]}
    said = JsonLinesReader().read(config, Gone(printed({"id": "s1", "cost": 1}, {"id": "s2"}), most=30), Stream())
    assert said["session"] == "s1"
    assert said["usage"] == [{"provenance": "unknown"}]
    assert said["reader"]["error"] == "ExecutorError: no files of this run are on this host"


# ── configurations ──────────────────────────────────────────────────────────────────────────────────────

ONE = [{"session": "id"}]
BAD_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({}, "rules is not a list"),
    ({"rules": []}, "rules is not a list"),
    ({"rules": [{}] * 51}, "rules is not a list"),
    ({"rules": ONE, "colour": 1}, "no 'colour'"),
    ({"rules": ONE, "stream": "stdin"}, "stream is none of"),
    ({"rules": ONE, "stream": ["stdout"]}, "stream is none of"),
    ({"rules": ONE, "head_kib": -1}, "head_kib"),
    ({"rules": ONE, "tail_kib": 16385}, "tail_kib"),
    ({"rules": ONE, "tail_kib": True}, "tail_kib"),
    ({"rules": ["session"]}, r"rules\[0\] is not an object"),
    ({"rules": [{"sesion": "id"}]}, "no 'sesion'"),
    ({"rules": [{"when": "x"}]}, "when is not an object"),
    ({"rules": [{"when": {"x": []}}]}, r"when\['x'\]"),
    ({"rules": [{"when": {"x": [{}]}}]}, r"when\['x'\]"),
    ({"rules": [{"when": {"x": {"contains": 5}}}]}, r"when\['x'\]"),
    ({"rules": [{"when": {"x": {"contains": "a", "present": True}}}]}, r"when\['x'\]"),
    ({"rules": [{"when": {"": 1}}]}, "no path"),
    ({"rules": [{"class": "stopped"}]}, "class is none of"),
    ({"rules": [{"class": ["ok"]}]}, "class is none of"),
    ({"rules": [{"session": 5}]}, "session is no path"),
    ({"rules": [{"session": "a..b"}]}, "session is no path"),
    ({"rules": [{"session": []}]}, "session is no path"),
    ({"rules": [{"session": {"value": ""}}]}, "session is neither"),
    ({"rules": [{"until": {"path": "x", "after": ""}}]}, "until is neither"),
    ({"rules": [{"until": {"path": "x", "before": "|"}}]}, "no 'before'"),
    ({"rules": [{"usage": {}}]}, "names none of"),
    ({"rules": [{"usage": {"tokens": "n"}}]}, "no 'tokens'"),
    ({"rules": [{"usage": {"money": "n", "take": "first"}}]}, "take is none of"),
    ({"rules": [{"usage": {"money": "n", "provenance": "unknown"}}]}, "provenance is none of"),
    ({"rules": [{"usage": {"money": "n", "once": 5}}]}, "once is no path"),
    ({"rules": [{"usage": None}]}, "usage is not an object"),
]


@pytest.mark.parametrize(("config", "says"), BAD_CONFIGS)
def test_an_unusable_configuration_says_what_is_wrong_with_it(config: dict[str, Any], says: str) -> None:
    said = JsonLinesReader().read({"kind": "json_lines"} | config, Stream(printed({"id": "s"})), Stream())
    assert set(said) == {"reader"}
    assert said["reader"]["kind"] == "json_lines"
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(said["reader"]["error"])


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc") | st.text(max_size=4), inner),
    max_leaves=8,
)
names = st.sampled_from(
    ["when", "class", "session", "message", "until", "usage", "take", "once", "money", "tokens_in", "model"]
)
junk = st.recursive(
    scalars | st.sampled_from(["a", "a.b", "sum", "last", "failed", "provider_limited"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.sampled_from("abc"), inner, max_size=4),
    max_leaves=12,
)
sensible = st.fixed_dictionaries(
    {},
    optional={
        "when": st.dictionaries(st.sampled_from(["a", "a.b"]), scalars, max_size=1),
        "class": st.sampled_from(["ok", "failed", "provider_limited"]),
        "session": st.sampled_from(["a", "b.0"]),
        "message": st.just("a"),
        "until": st.just({"path": "a", "after": "|"}),
        "usage": st.fixed_dictionaries(
            {"money": st.just("a"), "take": st.sampled_from(["sum", "last"])},
            optional={"once": st.just("b"), "model": st.just("c"), "tokens_in": st.just(["a", "b"])},
        ),
    },
)


@settings(max_examples=300)
@given(
    st.lists(sensible | junk, max_size=3),
    st.lists(st.binary(max_size=20) | st.dictionaries(st.sampled_from("abc"), values, max_size=3), max_size=5),
    st.sampled_from([(0, None), (3, None), (None, 9)]),
)
def test_whatever_is_configured_and_printed_nothing_raises_and_all_is_storable(
    rules: list[Any], printed_lines: list[Any], ended: tuple[int | None, int | None]
) -> None:
    said = read(rules, *(line + b"\n" if isinstance(line, bytes) else line for line in printed_lines))
    end = conclude(replace(ENDED, exit_code=ended[0], signal=ended[1]), said)
    assert end.state in ("succeeded", "failed")
    assert json.dumps(end.result, allow_nan=False)
    # What the reader hands over is always a result that can be accepted.
    if "error" not in said["reader"]:
        assert end.error is None


# ── what a result's usage may say ───────────────────────────────────────────────────────────────────────


def test_usage_is_kept_exactly_and_unknown_stays_unknown() -> None:
    [line] = read_usage(
        [{"provider": "p", "model": "m", "tokens_in": 1, "tokens_out": 2, "tokens_cached": 0, "money": 0.1}]
    )
    assert (line.money, line.provenance) == (Decimal("0.100000"), "reported")
    assert read_usage([{"tokens_in": 5}]) == (Usage(tokens_in=5),)
    assert read_usage([{"money": "0.0000015", "provenance": "estimated"}])[0].money == Decimal("0.000002")
    assert read_usage([{"money": 0}])[0].money == 0
    assert read_usage([]) == ()


BAD_USAGE: list[tuple[Any, str]] = [
    ({}, "usage is not a list"),
    ([{}] * 101, "usage is not a list"),
    (["x"], r"usage\[0\] is not an object"),
    ([{}, {"money": -1}], r"usage\[1\].money"),
    ([{"money": True}], "money"),
    ([{"money": "1e3"}], "money"),
    ([{"money": "-1"}], "money"),
    ([{"money": "\u0661"}], "money"),
    ([{"money": 10**12}], "money"),
    ([{"money": "999999999999.9999999"}], "money"),
    ([{"money": [1]}], "money"),
    ([{"money": 999_999_999_999}] * 2, "adds up"),
    ([{"money": 1, "provenance": "unknown"}], "calls it unknown"),
    ([{"provenance": "guessed"}], "provenance"),
    ([{"provenance": ["reported"]}], "provenance"),
    ([{"tokens_in": -1}], "tokens_in"),
    ([{"tokens_out": 1.5}], "tokens_out"),
    ([{"tokens_cached": True}], "tokens_cached"),
    ([{"tokens_in": 2**63}], "tokens_in"),
    ([{"model": 5}], "model"),
    ([{"provider": "p" * 201}], "provider"),
]


@pytest.mark.parametrize(("value", "says"), BAD_USAGE)
def test_bad_usage_is_refused_by_the_field_at_fault(value: Any, says: str) -> None:
    with pytest.raises(BadUsage, match=says):
        read_usage(value)
    end = conclude(replace(ENDED, result=json.dumps({"usage": value}).encode()))
    assert (end.end_class, end.usage) == (EndClass.BAD_RESULT, ())


# ── what takes the place of a result.json ───────────────────────────────────────────────────────────────

SAID = {"session": "s1", "message": "hello", "usage": [{"money": "2"}], "reader": {"kind": "json_lines"}}


def test_without_a_class_the_exit_status_decides() -> None:
    end = conclude(ENDED, SAID)
    assert (end.state, end.reason, end.message, end.session) == ("succeeded", "run.ok", "hello", "s1")
    end = conclude(replace(ENDED, exit_code=3), SAID)
    assert (end.state, end.reason, end.message) == ("failed", "run.failed", "hello")
    assert (end.usage[0].money, end.usage[0].provenance) == (2, "reported")


def test_with_a_class_the_exit_status_is_not_believed_either_way() -> None:
    assert conclude(ENDED, SAID | {"class": "session_lost"}).end_class is EndClass.SESSION_LOST
    assert conclude(replace(ENDED, exit_code=3), SAID | {"class": "ok"}).state == "succeeded"


@pytest.mark.parametrize(
    "how", [{"signal": 9, "exit_code": None}, {"ended_by": EndClass.TIMED_OUT}, {"ended_by": EndClass.STOPPED}]
)
def test_of_a_run_that_was_cut_short_the_bill_is_an_estimate_and_the_session_stands(how: dict[str, Any]) -> None:
    end = conclude(replace(ENDED, **how), SAID)
    assert end.state != "succeeded"
    assert (end.session, end.usage[0].money, end.usage[0].provenance) == ("s1", 2, "estimated")
    # What the program itself wrote down whole is as good as it says.
    written = json.dumps({"session": "s2", "usage": [{"money": 3}]}).encode()
    end = conclude(replace(ENDED, **how, result=written))
    assert (end.session, end.usage[0].money, end.usage[0].provenance) == ("s2", 3, "reported")


def test_a_result_json_makes_the_reader_superfluous_even_a_bad_one() -> None:
    end = conclude(replace(ENDED, result=b"{}"), SAID)
    assert (end.session, end.usage) == (None, ())
    end = conclude(replace(ENDED, result=b"{"), SAID)
    assert (end.end_class, end.session, end.usage) == (EndClass.BAD_RESULT, None, ())


@pytest.mark.parametrize(
    "said",
    [
        {"usage": "much"},
        {"class": "stopped"},
        {"session": ""},
        {"money": Decimal(1)},
        {"message": "x" * 70_000},
        {"x": float("nan")},
        {"reader": {"kind": "mine", "error": "no files"}},
    ],
)
def test_a_reader_that_answers_badly_changes_no_end_but_is_told_of(said: dict[str, Any]) -> None:
    end = conclude(ENDED, said)
    assert (end.state, end.end_class) == ("succeeded", EndClass.OK)
    assert end.error is not None
    assert end.error.startswith("result reader: ")
    assert end.usage == ()
