from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from wakeful.line import Line

arrivals = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.booleans()), max_size=80)


def taken(line: Line, most: int) -> list[tuple[str, dict[UUID, bool]]]:
    passes = []
    while (batch := line.take(lambda company, wake: most)) is not None:
        passes.append(batch)
    return passes


@given(arrivals, st.integers(1, 5))
def test_each_receipt_is_taken_once_in_small_passes_by_turns(arrivals: list[tuple[str, int, bool]], most: int) -> None:
    line, model = Line(), {}
    for company, n, signalled in arrivals:
        line.add(company, UUID(int=n), signalled=signalled)
        model[company, n] = signalled or model.get((company, n), False)
    assert bool(line) is bool(model)
    passes = taken(line, most)
    assert not line
    assert {(company, wake.int): signalled for company, chosen in passes for wake, signalled in chosen.items()} == model
    assert sum(len(chosen) for _, chosen in passes) == len(model)
    assert all(len(chosen) <= most for _, chosen in passes)
    # No company has a second pass before every other one that waits has had its first.
    companies = list(dict.fromkeys(company for company, *_ in arrivals))
    assert [company for company, _ in passes][: len(companies)] == companies


def test_only_equals_share_a_pass() -> None:
    line = Line()
    for n in range(6):
        line.add("a", UUID(int=n))
    sizes = {0: 2, 1: 1, 2: 2, 3: 2, 4: 1, 5: 2}
    passes = []
    while (batch := line.take(lambda company, wake: sizes[wake.int])) is not None:
        passes.append([wake.int for wake in batch[1]])
    assert passes == [[0, 2], [1], [3, 5], [4]]


def test_what_is_forgotten_is_not_taken() -> None:
    line = Line()
    line.add("a", UUID(int=1))
    line.clear()
    assert not line
    assert taken(line, 9) == []
