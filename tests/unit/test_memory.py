"""What owners know without asking: deadlines up to a horizon, gates to look behind, and who is due next."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from wakeful.admission import PASS, PassResult
from wakeful.clock import DatabaseTime
from wakeful.memory import FIRST_ID, Memory
from wakeful.outcomes import Admit, Moved, Park, Refusal
from wakeful.signals import Signal
from wakeful.window import Entry

NOW = datetime(2026, 5, 17, 12, tzinfo=UTC)
PAUSED = Refusal("company", "acme", "company.paused", "m", "o")
GATE = ("acme", "company", "acme")


class Hand:
    """A clock that a test turns by hand."""

    at = 1000.0

    def monotonic(self) -> float:
        return self.at

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        raise AssertionError("memory does not wait")


class Remembering:
    def __init__(self, size: int = 100) -> None:
        self.clock = Hand()
        self.time = DatabaseTime(self.clock)
        self.memory = Memory(["request", "execution_wait"], self.clock, self.time, size)
        self.memory.forget()
        self.memory.gates_after = None

    def ready(self) -> Remembering:
        self.time.observe(NOW)
        for window in self.memory.windows.values():
            self.memory.opened(window, [], 100)
        return self


def in_(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def told(wake: UUID, due: datetime | None, owner: str | None = "request") -> Signal:
    return Signal("eligibility", "acme", wake, owner, due=due)


def test_it_has_work_until_everything_was_read_and_then_none() -> None:
    one = Remembering()
    assert one.memory.has_work()
    one.ready()
    assert not one.memory.has_work()
    assert one.memory.next_moment() is None


def test_a_deadline_is_work_when_it_comes_and_not_before() -> None:
    one, wake = Remembering().ready(), uuid4()
    one.memory.take([told(wake, in_(10))])
    assert one.memory.next_moment() == 1010.0
    one.clock.at += 9.9
    assert not one.memory.has_work()
    one.clock.at += 0.1
    assert one.memory.has_work()
    one.memory.ripen()
    assert one.memory.next_batch() == ("acme", {wake: False})
    assert not one.memory.has_work()


def test_a_signal_for_a_due_wake_is_work_now_and_one_without_a_deadline_or_owner_none() -> None:
    one, wake = Remembering().ready(), uuid4()
    one.memory.take([told(uuid4(), None), told(uuid4(), NOW, "nobody"), told(uuid4(), NOW, None)])
    assert not one.memory.has_work()
    one.memory.take([told(wake, NOW)])
    assert one.memory.next_batch() == ("acme", {wake: False})


def test_what_lies_behind_the_horizon_is_left_to_the_next_read() -> None:
    one, near, far = Remembering(), uuid4(), uuid4()
    one.time.observe(NOW)
    window = one.memory.windows["request"]
    one.memory.opened(one.memory.windows["execution_wait"], [], 2)
    one.memory.opened(window, [Entry("acme", uuid4(), in_(20)), Entry("acme", uuid4(), in_(30))], 2)
    one.memory.take([told(near, in_(25)), told(far, in_(31))])
    one.clock.at += 29
    one.memory.ripen()
    batch = one.memory.next_batch()
    assert batch is not None
    assert near in batch[1]
    assert not one.memory.has_work()
    one.clock.at += 1
    assert one.memory.passed_windows() == [window]


def test_a_signal_while_a_window_is_stale_is_left_to_its_read() -> None:
    one = Remembering().ready()
    one.memory.windows["request"].stale = True
    one.memory.take([told(uuid4(), NOW)])
    assert one.memory.next_batch() is None
    assert one.memory.has_work()


def test_a_gates_signal_starts_its_walk_anew() -> None:
    one, last = Remembering().ready(), uuid4()
    gate = Signal("eligibility", "acme", gate="company", key="acme")
    one.memory.take([gate, gate])
    assert one.memory.next_source() == (GATE, FIRST_ID)
    assert one.memory.next_source() is None
    one.memory.walk_on(GATE, last)
    one.memory.take([gate])
    one.memory.walk_on(GATE, last)
    assert one.memory.next_source() == (GATE, FIRST_ID)


def test_companies_take_turns_a_pass_each() -> None:
    one = Remembering().ready()
    for n in range(250):
        one.memory.is_due("acme", UUID(int=n))
    one.memory.is_due("b", UUID(int=1))
    turns = []
    while (batch := one.memory.next_batch()) is not None:
        turns.append((batch[0], len(batch[1])))
    assert turns == [("acme", PASS), ("b", 1), ("acme", PASS), ("acme", 50)]


def test_a_signalled_receipt_stays_signalled_whoever_names_it_again() -> None:
    one, wake = Remembering().ready(), uuid4()
    one.memory.is_due("acme", wake, signalled=True)
    one.memory.is_due("acme", wake)
    assert one.memory.next_batch() == ("acme", {wake: True})


def test_a_busy_row_comes_back_in_a_second_as_it_was() -> None:
    one, quiet, loud = Remembering().ready(), uuid4(), uuid4()
    one.memory.judged("acme", {quiet: False, loud: True}, PassResult(busy=frozenset({quiet, loud})))
    one.clock.at += 0.99
    assert not one.memory.has_work()
    one.clock.at += 0.01
    one.memory.ripen()
    assert one.memory.next_batch() == ("acme", {quiet: False, loud: True})


def test_a_pass_leaves_the_deadlines_it_wrote() -> None:
    one, parked, moved, aside, admitted = Remembering().ready(), *(uuid4() for _ in range(4))
    outcomes = {parked: Park(PAUSED, in_(30), changed=True), moved: Moved(in_(40)), admitted: Admit()}
    result = PassResult(outcomes, set_aside={aside: in_(5)})
    one.memory.judged("acme", dict.fromkeys(outcomes, False), result)
    due = []
    for _ in range(40):
        one.clock.at += 1
        one.memory.ripen()
        while (batch := one.memory.next_batch()) is not None:
            due += [(one.clock.at - 1000, wake) for wake in batch[1]]
    assert due == [(5, aside), (30, parked), (40, moved)]


def test_a_silent_park_leaves_nothing() -> None:
    one, wake = Remembering().ready(), uuid4()
    one.memory.judged("acme", {wake: True}, PassResult({wake: Park(PAUSED, None, changed=False)}))
    assert one.memory.next_moment() is None
    assert not one.memory.has_work()


def test_a_probed_gate_is_walked_only_when_it_turns_out_open() -> None:
    one, wake = Remembering().ready(), uuid4()
    still: dict[UUID, Park] = {wake: Park(PAUSED, None, changed=False)}
    for result, walked in [
        (PassResult(still), False),
        (PassResult({wake: Admit()}), True),
        (PassResult({wake: Park(Refusal("agent", "a", "agent.paused", "m", "o"), None, changed=True)}), True),
        (PassResult(), True),  # it ended meanwhile: ask whoever is next
    ]:
        one.memory.probe(GATE, wake)
        assert one.memory.next_batch() == ("acme", {wake: True})
        one.memory.judged("acme", {wake: True}, result)
        assert one.memory.next_source() == ((GATE, FIRST_ID) if walked else None)


def test_a_probe_whose_row_was_held_is_asked_again() -> None:
    one, wake = Remembering().ready(), uuid4()
    one.memory.probe(GATE, wake)
    one.memory.next_batch()
    one.memory.judged("acme", {wake: True}, PassResult(busy=frozenset({wake})))
    assert one.memory.next_source() is None
    one.clock.at += 1
    one.memory.ripen()
    assert one.memory.next_batch() == ("acme", {wake: True})
    one.memory.judged("acme", {wake: True}, PassResult({wake: Admit()}))
    assert one.memory.next_source() == (GATE, FIRST_ID)


def test_memory_is_bounded_and_what_was_dropped_is_read_again() -> None:
    one = Remembering(size=10).ready()
    for n in range(1000):
        one.memory.take([told(UUID(int=n), in_(1000 - n))])
    assert len(one.memory._deadlines) <= 40
    window = one.memory.windows["request"]
    assert window.horizon is not None
    assert in_(1) <= window.horizon <= in_(41)
    one.clock.at += 41
    assert window in one.memory.passed_windows()


def test_forgetting_forgets_all_and_asks_for_all() -> None:
    one = Remembering().ready()
    one.memory.take([told(uuid4(), in_(10)), told(uuid4(), NOW), Signal("eligibility", "acme", gate="a", key="b")])
    one.memory.probe(GATE, uuid4())
    one.memory.judged("acme", {}, PassResult(busy=frozenset({uuid4()})))
    one.memory.forget()
    assert one.memory.next_batch() is None
    assert one.memory.next_source() is None
    assert one.memory.next_moment() is None
    assert one.memory.gates_after == ("", "", "")
    assert len(one.memory.passed_windows()) == 2


def test_of_several_readings_of_the_databases_time_the_latest_reckoning_stands() -> None:
    clock = Hand()
    time = DatabaseTime(clock)
    assert time.now() is None
    assert time.monotonic_at(NOW) == clock.at
    time.observe(NOW)
    clock.at += 10
    time.observe(in_(9))  # it was three statements on its way
    assert time.now() == in_(10)
    time.observe(in_(11))
    assert time.now() == in_(11)
    time.correct(in_(5))
    assert (time.now(), time.has_come(in_(5)), time.has_come(in_(5.001))) == (in_(5), True, False)
    assert time.monotonic_at(in_(15)) == clock.at + 10
    assert time.moment(clock.at + 10) == in_(15)
