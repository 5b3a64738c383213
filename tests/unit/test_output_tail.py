"""The tail of an output: always storable, and honest about what it is."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wakeful_plugins.output_tail import LOOKBACK, decode_tail

LIMIT = 16
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@given(TEXT)
@example("ä" * 9)
@example("x" + "€" * 6)
@example("\U0001f600" * 5)
def test_text_is_cut_between_characters_and_not_altered(text: str) -> None:
    tail, altered = decode_tail(text.encode(), LIMIT)
    assert not altered
    assert text.endswith(tail)
    size = len(tail.encode())
    assert size <= LIMIT
    assert tail == text or size > LIMIT - 4


@given(st.binary(max_size=64))
@example(b"\xff\xb2")
@example(b"a\0b")
@example("€".encode()[:2])
@example(b"\xed\xa0\x80")  # half of a surrogate pair
@example(b"\xf0" * 20)
def test_any_bytes_become_storable_text(data: bytes) -> None:
    tail, altered = decode_tail(data, LIMIT)
    stored = tail.encode()
    assert b"\0" not in stored
    assert len(stored) <= LIMIT
    assert altered or data.endswith(stored)
    if not altered:
        assert len(stored) > min(len(data), LIMIT) - 4


@given(st.binary(min_size=LIMIT + LOOKBACK, max_size=64))
@example("ä€\U0001f600".encode() * 5)
def test_the_end_of_the_output_is_enough(data: bytes) -> None:
    """Reading more than the limit and the look-back changes nothing."""
    assert decode_tail(data[-(LIMIT + LOOKBACK) :], LIMIT) == decode_tail(data, LIMIT)


@pytest.mark.parametrize(
    ("data", "tail", "altered"),
    [
        (b"", "", False),
        (b"\xff\xb2", REPLACEMENT * 2, True),
        (b"a\0b", f"a{REPLACEMENT}b", True),
        (REPLACEMENT.encode(), REPLACEMENT, False),
        (b"cut off \xe2\x82", f"cut off {REPLACEMENT}", True),
        (b"\xff" * 99, REPLACEMENT * 5, True),
        ("ä".encode() + b"x" * 15, "x" * 15, False),
        (b"\xb2" + b"x" * 16, "x" * 16, False),
    ],
)
def test_examples(data: bytes, tail: str, altered: bool) -> None:
    assert decode_tail(data, LIMIT) == (tail, altered)
