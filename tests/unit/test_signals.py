"""Anybody may NOTIFY the channel: whatever comes is a signal with usable identity, or nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful.signals import Signal, asks_for_everything, parse

ID = "01970000-0000-7000-8000-000000000001"

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
almost = st.fixed_dictionaries(
    {"t": st.sampled_from(["eligibility", "dispatch", "settings", "renewal", "settlement"])},
    optional={name: junk | st.just(ID) for name in ("c", "w", "o", "g", "k", "r", "h", "at", "s")},
)


@given(st.text() | junk.map(json.dumps) | almost.map(json.dumps))
def test_no_text_raises_and_every_signal_can_be_sent_back_to_the_database(payload: str) -> None:
    signal = parse(payload)
    if signal is not None:
        texts = (signal.company, signal.owner, signal.gate, signal.key, signal.host, signal.setting)
        for text in texts:
            assert text is None or (0 < len(text) <= 1000 and "\0" not in text)
            assert text is None or text.encode("utf-8")
        assert signal.due is None or signal.due.tzinfo is UTC


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "null",
        "[]",
        '"eligibility"',
        "{}",
        '{"t": "lunch"}',
        '{"t": []}',
        '{"t": "eligibility", "c": 5}',
        '{"t": "eligibility", "w": "not-a-uuid"}',
        '{"t": "eligibility", "w": 7}',
        '{"t": "eligibility", "at": "noon"}',
        '{"t": "eligibility", "at": NaN}',
        '{"t": "eligibility", "at": 1e300}',
        '{"t": "eligibility", "c": "a\\u0000b"}',
        '{"t": "eligibility", "c": "\\ud800"}',
        '{"t": "eligibility", "c": ""}',
        '{"t": "eligibility", "k": "' + "x" * 2000 + '"}',
        '{"t": "dispatch"}',
        '{"t": "eligibility"}',
        '{"t": "eligibility", "c": "acme"}',
        '{"t": "eligibility", "c": "acme", "g": "budget"}',
        "[" * 100_000,
        '{"t": "eligibility", "c": "acme"',
    ],
)
def test_what_is_no_signal_is_dropped(payload: str) -> None:
    assert parse(payload) is None


@pytest.mark.parametrize(
    ("payload", "asks"),
    [
        ('{"t": "eligibility"}', True),
        ('{"t": "dispatch"}', True),
        ('{"t": "settlement"}', True),
        ('{"t": "renewal"}', True),
        ('{"t": "eligibility", "c": "acme"}', True),
        ('{"t": "settlement", "c": "acme"}', True),
        ('{"t": "settlement", "c": "acme", "g": "budget", "k": "company"}', True),
        ('{"t": "eligibility", "c": null, "w": null}', True),
        ('{"t": "settings"}', False),  # the one that may
        ('{"t": "lunch"}', False),
        ('{"t": "eligibility", "c": ""}', False),
        ("hello", False),
        (f'{{"t": "settlement", "c": "acme", "w": "{ID}"}}', False),
        ('{"t": "dispatch", "c": "acme"}', False),
    ],
)
def test_what_names_nothing_asks_for_everything_and_is_told_apart(payload: str, asks: bool) -> None:
    assert asks_for_everything(payload) is asks
    assert parse(payload) is None or not asks


@pytest.mark.parametrize(
    ("payload", "signal"),
    [
        (
            {"t": "eligibility", "c": "acme", "g": "budget", "k": "project:p"},
            Signal("eligibility", "acme", gate="budget", key="project:p"),
        ),
        ({"t": "dispatch", "c": "acme", "g": None, "k": None}, Signal("dispatch", "acme")),
        (
            {"t": "eligibility", "c": "acme", "w": ID, "o": "request", "at": 0.5},
            Signal("eligibility", "acme", UUID(ID), "request", due=datetime.fromtimestamp(0.5, UTC)),
        ),
        ({"t": "dispatch", "c": "acme", "r": ID, "h": None}, Signal("dispatch", "acme", run=UUID(ID))),
        ({"t": "settings", "s": "draining"}, Signal("settings", setting="draining")),
        ({"t": "renewal", "h": "web-1", "at": 0}, Signal("renewal", host="web-1", due=datetime.fromtimestamp(0, UTC))),
    ],
)
def test_what_producers_send_is_read(payload: dict[str, Any], signal: Signal) -> None:
    assert parse(json.dumps(payload)) == signal
