from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wakeful.timers import Timers

steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 9), st.integers(0, 50)),
        st.tuples(st.just("earlier"), st.integers(0, 9), st.integers(0, 50)),
        st.tuples(st.just("discard"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 50)),
        st.tuples(st.just("keep"), st.integers(0, 12), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_behaves_like_a_dictionary_of_deadlines(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    for step, key, due in steps:
        if step == "set":
            timers.set(key, due)
            model[key] = due
        elif step == "earlier":
            timers.set_earlier(key, due)
            model[key] = min(due, model.get(key, due))
        elif step == "discard":
            timers.discard(key)
            model.pop(key, None)
        elif step == "keep":
            last = timers.keep_nearest(key)
            if len(model) > key:
                kept = sorted(model.values())[:key]
                assert last == (kept[-1] if kept else None)
                # Of equal deadlines it does not matter which are kept.
                assert len(timers) == key
                model = {k: model[k] for k in model if k in timers}
                assert sorted(model.values()) == kept
            else:
                assert last is None
        else:
            popped = list(timers.pop_due(due))
            assert [model[k] for k in popped] == sorted(d for d in model.values() if d <= due)
            for k in popped:
                del model[k]
        assert timers.next() == min(model.values(), default=None)
        assert len(timers) == len(model)
        assert all(k in timers for k in model)


def test_a_deadline_set_anew_again_and_again_does_not_grow_the_heap() -> None:
    timers: Timers[str] = Timers()
    for due in range(10_000):
        timers.set("wake", 1e6 - due)
    assert len(timers._heap) < 100
    assert list(timers.pop_due(1e6)) == ["wake"]


def test_equal_deadlines_come_in_the_order_they_were_set() -> None:
    timers: Timers[object] = Timers()
    keys = [object(), "text", ("a", 1), 5]  # what cannot be compared with each other
    for key in keys:
        timers.set(key, 1.0)
    assert list(timers.pop_due(1.0)) == keys


def test_a_key_set_while_the_due_ones_are_popped_is_popped_too_if_it_is_due() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 1)
    timers.set("z", 3)
    seen = []
    for key in timers.pop_due(2):
        seen.append(key)
        if key == "a":
            timers.set("b", 2)
    assert seen == ["a", "b"]


def test_clear_forgets_everything() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 1)
    timers.clear()
    assert timers.next() is None
    assert "a" not in timers
    assert list(timers.pop_due(9)) == []


def test_a_keys_deadline_and_all_keys_can_be_asked_for() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 3.0)
    timers.set("b", 1.0)
    timers.set("a", 2.0)
    assert (timers.get("a"), timers.get("b"), timers.get("c")) == (2.0, 1.0, None)
    assert sorted(timers) == ["a", "b"]
    timers.discard("a")
    assert (timers.get("a"), list(timers)) == (None, ["b"])
