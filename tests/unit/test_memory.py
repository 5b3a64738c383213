"""What owners know without asking: deadlines up to a horizon, gates to look behind, and who is due next."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from wakeful.admission import PASS, PassResult
from wakeful.clock import DatabaseTime
from wakeful.coalesce import FIRST_ID, WINDOW
from wakeful.line import Manner
from wakeful.memory import HELD, Memory
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
        owners = ["request", "execution_wait", "settlement"]
        self.memory = Memory(owners, self.clock, self.time, size, namers=["request"], draw=lambda: 0.5)
        self.memory.forget()
        self.memory.gates_after = None
        self.memory.named_after.clear()
        self.memory.owners_read = True

    def ready(self) -> Remembering:
        self.time.observe(NOW)
        for window in self.memory.windows.values():
            self.memory.opened(window, [], 100)
        return self

    def next_source(self) -> tuple[tuple[str, str, str], UUID] | None:
        """The source whose page is read next, and where; the page holds nothing."""
        walk = self.memory.walks.take(self.clock.at)
        if walk is None:
            return None
        found = (walk.source, walk.after)
        self.memory.looked(walk, [], PassResult())
        return found


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


def test_a_wait_that_another_owner_times_is_remembered_by_that_owners_window() -> None:
    """That of waits is full of nearer deadlines; the other's has told all it has, and is not read again."""
    for horizons, remembered in (({"execution_wait": 60}, True), ({"settlement": 60}, False)):
        one, wake = Remembering().ready(), uuid4()
        for name, seconds in horizons.items():
            one.memory.windows[name].narrow(in_(seconds))
        pause = PassResult({wake: Park(PAUSED, in_(3600), changed=True)}, timers={wake: "settlement"})
        one.memory.judged("acme", {wake: True}, pause)
        one.clock.at += 3600
        for window in one.memory.windows.values():
            window.horizon = None
        one.memory.ripen()
        assert (one.memory.next_batch() is not None) is remembered


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
    for other in ("execution_wait", "settlement"):
        one.memory.opened(one.memory.windows[other], [], 2)
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


def gate_signal(gate: tuple[str, str, str] = GATE) -> Signal:
    return Signal("eligibility", gate[0], gate=gate[1], key=gate[2])


def test_a_gates_signal_leads_to_its_walk_and_one_during_that_to_another() -> None:
    one, page = Remembering().ready(), [UUID(int=n) for n in range(PASS)]
    blocked = PassResult(dict.fromkeys(page, Park(PAUSED, None, changed=False)))
    one.memory.take([gate_signal(), gate_signal()])
    walk = one.memory.walks.take(one.clock.at)
    assert walk is not None
    assert (walk.source, walk.after) == (GATE, FIRST_ID)
    assert one.memory.walks.take(one.clock.at) is None
    one.memory.looked(walk, page, blocked)
    one.memory.take([gate_signal()])
    assert one.memory.walks.take(one.clock.at) is walk
    assert walk.after == page[-1]
    one.memory.looked(walk, page[:1], blocked)
    assert not one.memory.has_work()
    assert one.memory.next_moment() == one.clock.at + WINDOW
    one.clock.at += WINDOW
    assert one.memory.has_work()
    one.memory.ripen()
    assert one.next_source() == (GATE, FIRST_ID)
    assert not one.memory.has_work()
    assert one.memory.next_moment() is None


def test_a_known_deadline_fires_on_time_whatever_the_window_of_its_gate_says() -> None:
    one, wake = Remembering().ready(), uuid4()
    one.memory.take([gate_signal()])
    walk = one.memory.walks.take(one.clock.at)
    assert walk is not None
    one.memory.looked(walk, [wake], PassResult({wake: Park(PAUSED, in_(10), changed=False)}))
    one.memory.judged("acme", {wake: True}, PassResult({wake: Park(PAUSED, in_(10), changed=False)}))
    one.memory.take([gate_signal()])
    assert one.memory.next_moment() == one.clock.at + 10
    one.clock.at += 10
    one.memory.ripen()
    assert one.memory.next_batch() == ("acme", {wake: False})
    assert not one.memory.has_work()
    assert one.memory.next_moment() == one.clock.at + WINDOW - 10


def test_a_walk_ends_where_a_page_has_used_up_what_there_was() -> None:
    for gate, over in ((GATE, False), (("acme", "concurrency", "agent:a"), True)):
        one, page = Remembering().ready(), [UUID(int=n) for n in range(PASS)]
        one.memory.take([gate_signal(gate)])
        walk = one.memory.walks.take(one.clock.at)
        assert walk is not None
        outcomes = {wake: Park(Refusal(gate[1], gate[2], "r", "m", "o"), None, changed=False) for wake in page}
        one.memory.looked(walk, page, PassResult(outcomes))
        assert one.memory.walks.has_work() is not over


def test_what_a_pass_parks_behind_a_gate_lets_its_next_signal_act_at_once() -> None:
    one, wake = Remembering().ready(), uuid4()
    one.memory.take([gate_signal()])
    assert one.next_source() == (GATE, FIRST_ID)
    one.memory.take([gate_signal()])
    assert not one.memory.walks.has_work()
    one.memory.judged("acme", {wake: False}, PassResult({wake: Park(PAUSED, in_(30), changed=True)}))
    assert one.next_source() == (GATE, FIRST_ID)
    # One that was saved as waiting already comes with a signal of its own.
    one.memory.take([told(uuid4(), in_(60), "execution_wait"), gate_signal()])
    assert one.next_source() == (GATE, FIRST_ID)


# ── settlement ──────────────────────────────────────────────────────────────────────────────────────────


def settlement(wake: UUID) -> Signal:
    return Signal("settlement", "acme", wake)


def test_a_settlement_reaches_the_settlement_pass_of_its_receipt_and_no_other() -> None:
    one, wake, plain = Remembering().ready(), uuid4(), uuid4()
    one.memory.take([settlement(wake), settlement(wake), told(plain, NOW)])
    assert one.memory.next_batch() == ("acme", {plain: False})
    assert one.memory.next_batch(Manner.SETTLED) == ("acme", {wake: True})
    assert not one.memory.has_work()


def test_deadlines_of_the_owner_settlement_are_only_settled_and_all_others_ordinary() -> None:
    one, wakes = Remembering(), [uuid4() for _ in range(5)]
    one.time.observe(NOW)
    memory, due = one.memory, in_(10)
    memory.opened(memory.windows["request"], [Entry("acme", wakes[0], due)], 100)
    memory.opened(memory.windows["execution_wait"], [], 100)
    memory.opened(memory.windows["settlement"], [Entry("acme", wakes[1], due), Entry("acme", wakes[2], NOW)], 100)
    assert memory.next_batch() is None
    assert memory.next_batch(Manner.SETTLED) == ("acme", {wakes[2]: False})
    memory.take([told(wakes[3], due, "settlement"), told(wakes[4], due, "request")])
    one.clock.at += 10
    memory.ripen()
    assert memory.next_batch() == ("acme", {wakes[0]: False, wakes[4]: False})
    assert memory.next_batch(Manner.SETTLED) == ("acme", {wakes[1]: False, wakes[3]: False})


def test_settlements_are_passes_of_at_most_100_and_companies_take_turns() -> None:
    one = Remembering().ready()
    for n in range(150):
        one.memory.take([settlement(UUID(int=n))])
    one.memory.take([Signal("settlement", "zeta", UUID(int=0))])
    turns = []
    while (batch := one.memory.next_batch(Manner.SETTLED)) is not None:
        turns.append((batch[0], len(batch[1])))
    assert turns == [("acme", PASS), ("zeta", 1), ("acme", 50)]


def test_what_a_settlement_leaves_is_looked_at_as_it_says() -> None:
    one, busy, aside, back, later, late = Remembering().ready(), *(uuid4() for _ in range(5))
    result = PassResult(
        {later: Moved(in_(20)), late: Moved(NOW)},
        busy=frozenset({busy}),
        reopened=frozenset({back}),
        set_aside={aside: in_(5)},
    )
    one.memory.judged("acme", dict.fromkeys([busy, aside, back, later, late], True), result, Manner.SETTLED)
    seen = []
    for _ in range(25):
        one.memory.ripen()
        for manner in Manner:
            while (batch := one.memory.next_batch(manner)) is not None:
                seen += [(one.clock.at - 1000, manner, wake) for wake in batch[1]]
        one.clock.at += 1
    assert seen == [
        (0, Manner.JUDGED, back),
        (1, Manner.JUDGED, late),  # due, and no settlement's any more
        (1, Manner.SETTLED, busy),
        (5, Manner.SETTLED, aside),
        (20, Manner.SETTLED, later),
    ]


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
        assert one.next_source() == ((GATE, FIRST_ID) if walked else None)


def test_a_probe_whose_row_was_held_is_asked_again() -> None:
    one, wake = Remembering().ready(), uuid4()
    one.memory.probe(GATE, wake)
    one.memory.next_batch()
    one.memory.judged("acme", {wake: True}, PassResult(busy=frozenset({wake})))
    assert one.next_source() is None
    one.clock.at += 1
    one.memory.ripen()
    assert one.memory.next_batch() == ("acme", {wake: True})
    one.memory.judged("acme", {wake: True}, PassResult({wake: Admit()}))
    assert one.next_source() == (GATE, FIRST_ID)


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
    one.memory.take([settlement(uuid4())])
    one.memory.judged("acme", {}, PassResult(busy=frozenset({uuid4()})))
    one.memory.forget()
    assert one.memory.next_batch() is None
    assert one.memory.next_batch(Manner.SETTLED) is None
    assert one.next_source() is None
    assert one.memory.next_moment() is None
    assert one.memory.gates_after == ("", "", "")
    assert one.memory.named_after == {"request": None}
    assert not one.memory.owners_read
    assert len(one.memory.passed_windows()) == 3


def test_receipts_that_other_rows_name_are_released_one_by_one_and_judged_as_any_other_afterwards() -> None:
    one, busy, aside, parked = Remembering().ready(), *(uuid4() for _ in range(3))
    for wake in (busy, aside, parked):
        one.memory.is_due("acme", wake, Manner.RELEASED)
    assert [one.memory.next_batch(Manner.RELEASED) for _ in range(4)] == [
        ("acme", {busy: False}),
        ("acme", {aside: False}),
        ("acme", {parked: False}),
        None,
    ]
    result = PassResult(
        {parked: Park(PAUSED, in_(30), changed=True)}, busy=frozenset({busy}), set_aside={aside: in_(5)}
    )
    one.memory.judged("acme", dict.fromkeys([busy, aside, parked], False), result, Manner.RELEASED)
    one.clock.at += 30
    one.memory.ripen()
    assert one.memory.next_batch(Manner.RELEASED) == ("acme", {busy: False})
    assert one.memory.next_batch() == ("acme", {aside: False, parked: False})


# ── what others hold ────────────────────────────────────────────────────────────────────────────────────


def test_rows_that_somebody_holds_are_left_out_of_what_is_read_until_they_come_back() -> None:
    one, held = Remembering().ready(), [uuid4() for _ in range(3)]
    one.memory.judged("acme", dict.fromkeys(held, False), PassResult(busy=frozenset(held)))
    companies, rows = one.memory.held()
    assert (companies, set(rows)) == ([], set(held))
    one.clock.at += 1
    one.memory.ripen()
    assert one.memory.held() == ([], [])


def test_a_company_of_which_very_many_rows_are_held_is_left_out_as_a_whole_and_read_again_soon() -> None:
    one, elsewhere = Remembering().ready(), uuid4()
    for n in range(HELD):
        one.memory.judged("acme", {}, PassResult(busy=frozenset({UUID(int=n)})))
    one.memory.judged("zeta", {}, PassResult(busy=frozenset({elsewhere})))
    assert one.memory.held() == (["acme"], [elsewhere])
    window = one.memory.windows["request"]
    one.memory.opened(window, [], 100, complete=False)
    assert window.horizon == in_(1)
    assert not one.memory.passed_windows()
    one.clock.at += 1
    assert one.memory.passed_windows() == [window]


# ── failure debt ────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_failed_pass_held_comes_back_later_and_later_and_alone_in_the_end() -> None:
    one, bad = Remembering().ready(), UUID(int=5)
    for n in range(PASS):
        one.memory.is_due("acme", UUID(int=n), signalled=True)
    pauses, sizes = [], []
    for _ in range(9):
        since = one.clock.at
        while True:
            one.memory.ripen()
            batch = one.memory.next_batch()
            if batch is not None and bad in batch[1]:
                break
            if batch is not None:
                one.memory.judged("acme", batch[1], PassResult())
            else:
                one.clock.at += 0.25
        pauses.append(one.clock.at - since)
        sizes.append(len(batch[1]))
        assert set(batch[1].values()) == {True}
        one.memory.failed("acme", batch[1])
    assert sizes == [100, 50, 25, 12, 6, 3, 1, 1, 1]
    assert pauses == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    one.memory.judged("acme", {bad: True}, PassResult())
    one.memory.is_due("acme", bad)
    assert one.memory.next_batch() == ("acme", {bad: False})


def test_a_receipt_that_failed_rests_though_everything_was_forgotten_unless_it_is_forgiven() -> None:
    one, bad, good = Remembering().ready(), uuid4(), uuid4()
    one.memory.failed("acme", {bad: False})
    one.memory.forget()
    one.memory.is_due("acme", bad)
    one.memory.is_due("acme", good)
    assert one.memory.next_batch() == ("acme", {good: False})
    assert one.memory.next_batch() is None
    one.memory.forgive()
    one.memory.is_due("acme", bad)
    assert one.memory.next_batch() == ("acme", {bad: False})


def test_an_owner_whose_window_cannot_be_read_rests_and_the_others_do_not() -> None:
    one = Remembering()
    one.time.observe(NOW)
    one.memory.jobs.failed(one.clock.at, ("window", "request"))
    assert [window.owner for window in one.memory.passed_windows()] == ["execution_wait", "settlement"]
    for window in one.memory.passed_windows():
        one.memory.opened(window, [], 100)
    assert not one.memory.has_work()
    assert one.memory.next_moment() == one.clock.at + 0.5
    one.clock.at += 0.5
    assert [window.owner for window in one.memory.passed_windows()] == ["request"]
    assert one.memory.has_work()


def test_before_the_first_read_a_failed_one_is_no_work_until_its_rest_is_over() -> None:
    one = Remembering()
    for name in one.memory.windows:
        one.memory.jobs.failed(one.clock.at, ("window", name))
    assert not one.memory.has_work()
    assert one.memory.next_moment() == one.clock.at + 0.5


def test_what_is_read_in_the_background_goes_on_beside_what_fails() -> None:
    one = Remembering().ready()
    one.memory.gates_after, one.memory.named_after = ("", "", ""), {"request": None}
    assert one.memory.next_job() == ("gates",)
    one.memory.jobs.failed(one.clock.at, ("gates",))
    assert one.memory.next_job() == ("named", "request")
    del one.memory.named_after["request"]
    one.memory.owners_read = False
    assert one.memory.next_job() == ("owners",)
    one.memory.owners_read = True
    assert one.memory.next_job() is None
    assert not one.memory.has_work()
    one.clock.at += 0.5
    assert one.memory.next_job() == ("gates",)
    assert one.memory.has_work()


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
