"""Of many signals the first acts at once and the others together: never too late, never more often than needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from wakeful.coalesce import FIRST_ID, MOMENT, WINDOW, Coalescer, Walk

GATE = ("acme", "budget", "company")
OTHER = ("acme", "provider", "acme/default")
AGENT = ("acme", "agent", "coder")
PAGE = UUID(int=7)


def walked(one: Coalescer, now: float, *, admitted: bool = False, waiting: bool = True) -> Walk:
    """Take the next walk, which has one page."""
    walk = one.take(now)
    assert walk is not None
    one.looked(walk, now, admitted=admitted, waiting=waiting, after=None)
    return walk


def idle(one: Coalescer, now: float) -> bool:
    one.ripen(now)
    return not one.has_work()


# ── by example ──────────────────────────────────────────────────────────────────────────────────────────


def test_10_000_signals_of_one_source_within_a_second_are_two_walks() -> None:
    one, walks = Coalescer(), []
    for n in range(10_000):
        one.signalled(GATE, n / 10_000)
        if one.has_work():
            walks.append(walked(one, n / 10_000).began)
    assert walks == [0.0]
    assert one.next_moment() == WINDOW
    assert idle(one, WINDOW - 0.001)
    assert not idle(one, WINDOW)
    walked(one, WINDOW)
    assert one.next_moment() is None
    assert idle(one, 10 * WINDOW)
    assert len(one) == 0


def test_a_source_that_brings_work_is_never_delayed() -> None:
    one = Coalescer()
    for n in range(100):
        one.signalled(GATE, n / 10)
        assert walked(one, n / 10, admitted=True).began == n / 10


def test_signals_while_a_walk_is_under_way_lead_to_one_walk_after_it() -> None:
    for admitted, next_at in ((True, 5.0), (False, WINDOW)):
        one = Coalescer()
        one.signalled(GATE, 0.0)
        one.signalled(GATE, 0.5)  # its first page is still to be taken: it covers this one
        walk = one.take(1.0)
        assert walk is not None
        one.signalled(GATE, 2.0)
        one.looked(walk, 3.0, admitted=admitted, waiting=True, after=PAGE)
        assert one.take(4.0) is walk
        assert walk.after == PAGE
        one.signalled(GATE, 4.0)
        one.looked(walk, 5.0, admitted=False, waiting=True, after=None)
        if admitted:
            assert one.has_work()
        else:
            assert one.next_moment() == 1.0 + WINDOW
            one.ripen(1.0 + next_at)
        again = one.take(1.0 + next_at)
        assert again is not None
        assert (again is not walk, again.after) == (True, FIRST_ID)
        one.looked(again, 40.0, admitted=False, waiting=True, after=None)
        assert idle(one, 200.0)


def test_a_walk_longer_than_the_window_is_followed_at_its_end() -> None:
    one = Coalescer()
    one.signalled(GATE, 0.0)
    walk = one.take(0.0)
    assert walk is not None
    one.signalled(GATE, 1.0)
    one.looked(walk, 100.0, admitted=False, waiting=True, after=None)
    assert one.has_work()
    assert walked(one, 100.0).began == 100.0


def test_sources_do_not_share_a_window() -> None:
    one = Coalescer()
    one.signalled(GATE, 0.0)
    walked(one, 0.0)
    one.signalled(OTHER, 1.0)
    assert walked(one, 1.0).source == OTHER


def test_what_is_parked_where_nothing_was_lets_the_next_signal_act_at_once() -> None:
    for parked, opens in (([GATE[1:]], True), ([OTHER[1:]], False), ([], False), (None, True)):
        one = Coalescer()
        one.signalled(GATE, 0.0)
        walked(one, 0.0, waiting=False)
        one.stirred("acme", parked)
        one.stirred("other company", None)
        one.signalled(GATE, 1.0)
        assert one.has_work() is opens


def test_what_may_be_saved_in_silence_behind_what_was_admitted_lets_the_end_of_that_act_at_once() -> None:
    for gate, opens in ((("acme", "execution", "I-1"), True), (GATE, False), (("other", "execution", "I-1"), False)):
        one = Coalescer()
        one.signalled(gate, 0.0)
        walked(one, 0.0, waiting=False)
        one.admitted("acme", 1.0)
        one.signalled(gate, MOMENT + 2.0)
        assert one.has_work() is opens, gate


def test_a_flood_of_signals_with_nothing_behind_them_is_two_walks() -> None:
    one, walks = Coalescer(), 0
    for n in range(10_000):
        one.signalled(GATE, n / 1000)
        while one.has_work():
            walked(one, n / 1000, waiting=False)
            walks += 1
    assert walks == 1
    one.ripen(WINDOW)
    walked(one, WINDOW, waiting=False)
    assert idle(one, 10 * WINDOW)


def test_whatever_is_parked_may_concern_an_issue_or_an_agent() -> None:
    one = Coalescer()
    one.signalled(AGENT, 0.0)
    walked(one, 0.0, waiting=False)
    one.stirred("acme", [OTHER[1:]])
    one.signalled(AGENT, 1.0)
    assert one.has_work()


def test_what_is_parked_behind_the_back_of_a_walk_counts_too() -> None:
    for source in (GATE, AGENT):
        one = Coalescer()
        one.signalled(source, 0.0)
        walk = one.take(0.0)
        assert walk is not None
        one.looked(walk, 0.0, admitted=False, waiting=False, after=PAGE)
        one.stirred("acme", [GATE[1:]])
        walked(one, 1.0, waiting=False)
        one.signalled(source, 2.0)
        assert one.has_work()


def test_a_signal_owed_when_something_is_parked_is_paid_at_once() -> None:
    one = Coalescer()
    one.signalled(GATE, 0.0)
    walked(one, 0.0, waiting=False)
    one.signalled(GATE, 1.0)
    one.stirred("acme", [GATE[1:]])
    assert walked(one, 2.0).began == 2.0
    assert one.next_moment() is None


def test_what_was_seen_waiting_keeps_the_window_closed_whatever_is_parked_beside_it() -> None:
    one = Coalescer()
    one.signalled(GATE, 0.0)
    walked(one, 0.0)
    one.stirred("acme", [GATE[1:]])
    one.signalled(GATE, 1.0)
    assert one.next_moment() == WINDOW
    assert not one.has_work()


def test_a_gate_seen_open_is_walked_whatever_its_window_says() -> None:
    one = Coalescer()
    one.needed(GATE)
    walked(one, 0.0)
    one.needed(GATE)
    walk = one.take(1.0)
    assert walk is not None
    one.needed(GATE)
    one.looked(walk, 2.0, admitted=False, waiting=True, after=None)
    assert walked(one, 2.0).began == 2.0
    assert idle(one, 3.0)


def test_what_an_admission_of_a_moment_ago_took_closes_no_window_once() -> None:
    slot = ("acme", "concurrency", "agent:coder")
    for source, admitted_at, acts in (
        (slot, 0.0, True),
        (("acme", "execution", "I-1"), 0.0, True),
        (slot, -MOMENT, False),
        (GATE, 0.0, False),
        (("zeta", "execution", "I-1"), 0.0, False),
    ):
        one = Coalescer()
        one.admitted("acme", admitted_at)
        one.signalled(source, 0.0)
        walked(one, 0.0)
        one.signalled(source, 1.0)
        assert one.has_work() is acts, source
        if acts:
            walked(one, 1.0)
            one.signalled(source, 2.0)
            assert not one.has_work(), "once for each admission"
            one.ripen(1.0 + WINDOW)
            one.admitted("acme", 40.0)
            walked(one, 40.0)
            one.signalled(source, 41.0)
            assert one.has_work(), "and for each"


def test_a_page_that_could_not_be_read_is_tried_again_where_it_was() -> None:
    one = Coalescer()
    one.signalled(GATE, 0.0)
    walk = one.take(0.0)
    assert walk is not None
    one.looked(walk, 0.0, admitted=False, waiting=True, after=PAGE)
    assert one.take(1.0) is walk
    one.put_back(walk, 3.0)
    assert (one.has_work(), one.next_moment()) == (False, 3.0)
    one.signalled(GATE, 2.0)
    assert not one.has_work()
    one.ripen(3.0)
    assert one.take(3.0) is walk
    assert walk.after == PAGE
    one.looked(walk, 3.0, admitted=False, waiting=True, after=None)
    assert one.next_moment() == WINDOW


def test_companies_take_turns_a_page_each() -> None:
    one = Coalescer()
    for n in range(3):
        one.signalled(("acme", "issue", str(n)), 0.0)
    one.signalled(("zeta", "issue", "0"), 0.0)
    order = [walked(one, 0.0).source[0] for _ in range(4)]
    assert order == ["acme", "zeta", "acme", "acme"]


def test_forgetting_forgets_all() -> None:
    one = Coalescer()
    for source in (GATE, OTHER, AGENT):
        one.signalled(source, 0.0)
    walked(one, 0.0, waiting=False)
    one.signalled(GATE, 1.0)
    put_back = one.take(1.0)
    assert put_back is not None
    one.put_back(put_back, 2.0)
    one.clear()
    assert (len(one), one.has_work(), one.next_moment()) == (0, False, None)
    one.signalled(GATE, 1.0)
    assert one.has_work()


# ── against a simple model: a driver that reads a page whenever there is one ────────────────────────────


@dataclass
class Made:
    began: float
    ended: float = float("inf")
    admitted: bool = False
    waiting: bool = True


@dataclass
class History:
    signals: list[float] = field(default_factory=list)
    walks: list[Made] = field(default_factory=list)
    parked: list[float] = field(default_factory=list)


page = st.tuples(st.integers(0, 20), st.booleans(), st.booleans(), st.integers(1, 3))
events = st.lists(
    st.tuples(st.sampled_from(["signal", "signal", "signal", "park", "quiet"]), st.integers(0, 40)), max_size=40
)


def played(events: list[tuple[str, int]], pages: list[tuple[int, bool, bool, int]]) -> tuple[History, Coalescer, float]:
    """What becomes of one source while a driver does nothing else: events at their times, pages that take theirs."""
    one, history, now = Coalescer(), History(), 0.0
    coming = []
    for what, pause in events:
        now += pause
        coming.append((now, what))
    now, results = 0.0, iter(pages)

    def hear(until: float) -> None:
        while coming and coming[0][0] <= until:
            at, what = coming.pop(0)
            if what == "signal":
                history.signals.append(at)
                one.signalled(GATE, at)
            elif what == "park":
                history.parked.append(at)
                one.stirred("acme", [GATE[1:]])

    while True:
        hear(now)
        one.ripen(now)
        if one.has_work():
            takes, admitted, waiting, count = next(results, (0, False, True, 1))
            walk = one.take(now)
            assert walk is not None
            history.walks.append(Made(now, admitted=admitted, waiting=waiting))
            for n in range(count):
                assert n == 0 or one.take(now) is walk
                hear(now + takes)
                now += takes
                after = None if n == count - 1 else UUID(int=n + 1)
                one.looked(walk, now, admitted=admitted, waiting=waiting, after=after)
            history.walks[-1].ended = now
            continue
        moments = [moment for moment in (one.next_moment(), coming[0][0] if coming else None) if moment is not None]
        if not moments:
            return history, one, now
        now = max(now, min(moments))


@given(events, st.lists(page, max_size=40))
def test_for_every_signal_a_walk_begins_in_time(
    events: list[tuple[str, int]], pages: list[tuple[int, bool, bool, int]]
) -> None:
    history, _, _ = played(events, pages)
    for at in history.signals:
        running = [walk.ended for walk in history.walks if walk.began <= at < walk.ended]
        latest = max(at + WINDOW, *running) if running else at + WINDOW
        assert any(at <= walk.began <= latest for walk in history.walks), (at, history.walks)


@given(events, st.lists(page, max_size=40))
def test_no_walk_begins_within_the_window_of_one_that_admitted_nothing(
    events: list[tuple[str, int]], pages: list[tuple[int, bool, bool, int]]
) -> None:
    history, _, _ = played(events, pages)
    assert len(history.walks) <= len(history.signals)
    for before, after in zip(history.walks, history.walks[1:], strict=False):
        stirred = not before.waiting and any(before.began <= at <= after.began for at in history.parked)
        assert before.admitted or stirred or after.began >= before.began + WINDOW
        assert after.began >= before.ended


@given(events, st.lists(page, max_size=40))
def test_what_is_over_is_forgotten(events: list[tuple[str, int]], pages: list[tuple[int, bool, bool, int]]) -> None:
    _, one, now = played(events, pages)
    one.ripen(now + WINDOW)
    assert (len(one), one._empty, len(one._trailing), len(one._excused)) == (0, {}, 0, 0)
