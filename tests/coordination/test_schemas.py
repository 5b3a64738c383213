"""The event (V3) and transaction (V1) schemas: pinned by golden files, refused when unknown or ambiguous."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful_coordination import Coordination, CoordinationError, Generation, Mutation
from wakeful_coordination.errors import InvalidRecord, UnknownVersion
from wakeful_coordination.event import new_event, parse_event
from wakeful_coordination.layout import shard
from wakeful_coordination.record import decode, encode
from wakeful_coordination.transaction import new_transaction, parse_transaction

GOLDEN = Path(__file__).parent / "golden"
EVENT = (GOLDEN / "event_v3.json").read_bytes()
TRANSACTION = (GOLDEN / "transaction_v1.json").read_bytes()

FIRST = Generation("acme.run-7", 1, "0000000000000000000000000000a001")
SECOND = Generation("acme.run-8", 4, "0000000000000000000000000000b002")


def event(**changes: object) -> dict[str, object]:
    return json.loads(EVENT) | changes


def transaction(**changes: object) -> bytes:
    return json.dumps(json.loads(TRANSACTION) | changes).encode()


def test_the_v3_event_is_what_its_golden_file_says() -> None:
    made = new_event(
        id="00000000000000000000000000000e01",
        type="comment",
        at=datetime(2026, 11, 30, 8, tzinfo=UTC),
        instance="acme.run-7",
        generation_id=FIRST.id,
        body={"text": "héllo"},
    )
    assert encode(made.record) == EVENT
    assert parse_event(json.loads(EVENT)) == made
    assert set(made.record) == {"v", "id", "type", "at", "scope", "body"}
    assert set(json.loads(EVENT)["scope"]) == {"instance", "generation_id"}


def test_the_v1_transaction_is_what_its_golden_file_says() -> None:
    made = new_transaction(
        txid="00000000000000000000000000000e01",
        event=parse_event(json.loads(EVENT)),
        generations=[SECOND, FIRST],
        mutations=[Mutation("acme.run-8", "state.json", '{"step": 2}')],
        sid="0000000000000000000000000000c003",
        created_at=datetime(2026, 11, 30, 8, 0, 1, tzinfo=UTC),
    )
    assert made.data == TRANSACTION
    assert parse_transaction(TRANSACTION, txid=made.txid) == made
    assert made.generations == (FIRST, SECOND)


def test_what_is_published_is_such_a_transaction_and_nothing_is_added_for_the_check(
    coord: Coordination, path: str
) -> None:
    generation = coord.generations.open("a")
    made = coord.transaction(generation, "comment", {})
    coord.publish(made)
    data = Path(path, "outbox/pending", f"{made.txid}.json").read_bytes()
    coord.authority.settle(made.txid)
    receipt = Path(path, "receipts", shard(made.txid), f"{made.txid}.json").read_bytes()
    assert data == made.data == receipt
    assert set(json.loads(data)) == set(json.loads(TRANSACTION))


def test_unknown_keys_are_kept_and_unknown_versions_refused() -> None:
    assert parse_event(event(later="x")).record["later"] == "x"
    assert b"later" in parse_transaction(transaction(later="x")).data
    for version in (0, 2, 4, "3", 3.0, True, None):
        with pytest.raises(UnknownVersion):
            parse_event(event(v=version))
    for version in (0, 2, 3, "1", 1.0, True, None):
        with pytest.raises(UnknownVersion):
            parse_transaction(transaction(v=version))
    with pytest.raises(UnknownVersion):
        parse_transaction(transaction(event=event(v=4)))


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "short"},
        {"id": "../../../../etc/passwd"},
        {"type": "Comment"},
        {"type": ""},
        {"at": "yesterday"},
        {"at": "2026-11-30T08:00:00"},
        {"scope": {"instance": "a"}},
        {"scope": {"instance": "../a", "generation_id": FIRST.id}},
        {"scope": {"instance": ".", "generation_id": FIRST.id}},
        {"scope": []},
        {"body": "text"},
        {"body": {"text": "x" * 70_000}},
    ],
)
def test_an_event_that_says_nothing_definite_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRecord):
        parse_event(event(**changes))


GOOD = json.loads(TRANSACTION)


@pytest.mark.parametrize(
    "changes",
    [
        {"txid": "x"},
        {"kind": "other"},
        {"instances": []},
        {"instances": list(reversed(GOOD["instances"]))},
        {"instances": GOOD["instances"] * 2},
        {"instances": GOOD["instances"][1:]},
        {"instances": [GOOD["instances"][0] | {"seq": 0}]},
        {"instances": [GOOD["instances"][0] | {"seq": True}]},
        {"instances": [GOOD["instances"][0] | {"generation_id": "0" * 32}, GOOD["instances"][1]]},
        {"mutations": [GOOD["mutations"][0] | {"op": "append"}]},
        {"mutations": [GOOD["mutations"][0] | {"name": "generation.json"}]},
        {"mutations": [GOOD["mutations"][0] | {"name": "../state.json"}]},
        {"mutations": [GOOD["mutations"][0] | {"body": "torn"}]},
        {"mutations": [GOOD["mutations"][0] | {"instance": "elsewhere"}]},
        {"mutations": GOOD["mutations"] * 2},
        {"mutations": [GOOD["mutations"][0] | {"body": "\ud800"}]},
        {"sid": 7},
        {"created_at": None},
    ],
)
def test_a_transaction_that_no_replay_could_apply_in_one_way_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRecord):
        parse_transaction(transaction(**changes))


def test_a_transaction_under_another_name_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="under the name"):
        parse_transaction(TRANSACTION, txid="0" * 32)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"v": 1, "v": 1}',
        b'{"v": NaN}',
        b"\xff\xfe",
        b"{" * 100_000,
        b"\x00" * 100,
        b'{"v": 1}' + b" " * (1 << 20),
    ],
)
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decode(data, what="record", version=1)


@given(st.binary(max_size=300) | st.text(max_size=200).map(lambda text: text.encode()))
def test_no_bytes_raise_anything_but_a_refusal(data: bytes) -> None:
    with pytest.raises(CoordinationError):
        parse_transaction(data)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(GOOD)), values)
def test_any_value_in_the_place_of_a_field_is_taken_or_refused_never_a_fault(field: str, value: object) -> None:
    with contextlib.suppress(CoordinationError):
        parse_transaction(json.dumps(GOOD | {field: value}).encode())


@given(st.dictionaries(st.text(max_size=8), values, max_size=5))
def test_a_record_comes_back_as_it_was(body: dict[str, object]) -> None:
    record = body | {"v": 1}
    try:
        data = encode(record)
    except InvalidRecord:
        return  # lone surrogates have no bytes
    assert decode(data, what="record", version=1) == record
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1


def test_lone_surrogates_are_refused_not_a_fault(coord: Coordination) -> None:
    generation = coord.generations.open("a")
    with pytest.raises(InvalidRecord):
        coord.transaction(generation, "comment", {"text": "\ud800"})
    with pytest.raises(InvalidRecord):
        coord.transaction(generation, "comment", {}, mutations=[Mutation("a", "state.json", "\ud800")])


@pytest.mark.parametrize(
    "token", ["", "a", "a:1", "a:x:" + "0" * 32, "a:0:" + "0" * 32, "../a:1:" + "0" * 32, "a:1:zz"]
)
def test_a_token_that_names_no_generation_is_refused(token: str) -> None:
    with pytest.raises(InvalidRecord):
        Generation.parse(token)
