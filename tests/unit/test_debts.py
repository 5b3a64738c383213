from __future__ import annotations

from wakeful.backoff import CAP, FIRST
from wakeful.debts import Debts


def test_who_fails_again_and_again_rests_longer_and_longer_up_to_the_cap() -> None:
    debts: Debts[str] = Debts(lambda: 0.999999)
    now, rests = 0.0, []
    for _ in range(9):
        until = debts.failed(now, "a")
        assert debts.rest("a", now) == until
        rests.append(round(until - now))
        now = until
        assert debts.rest("a", now) is None
    assert rests == [FIRST, 2, 4, 8, 16, 32, CAP, CAP, CAP]
    debts.paid("a")
    assert (len(debts), debts.failures("a")) == (0, 0)
    assert round(debts.failed(now, "a") - now) == FIRST


def test_those_that_fail_together_come_back_together_and_others_are_not_touched() -> None:
    draws = iter([0.5, 0.25, 0.75])
    debts: Debts[str] = Debts(lambda: next(draws))
    assert debts.failed(0.0, "a") == 0.5
    assert debts.failed(1.0, "a", "b") == 1.5
    assert (debts.failures("a"), debts.failures("b"), debts.failures("c")) == (2, 1, 0)
    assert (debts.rest("a", 1.0), debts.rest("b", 1.0), debts.rest("c", 1.0)) == (1.5, 1.5, None)
    assert debts.failed(1.0, "c") == 1.75
    assert (debts.next(1.0), debts.next(1.5), debts.next(2.0)) == (1.5, 1.75, None)


def test_who_never_comes_back_is_forgotten_and_who_is_forgiven_may_try_at_once() -> None:
    debts: Debts[str] = Debts(lambda: 0.5)
    debts.failed(0.0, "gone")
    debts.failed(CAP, "here")
    debts.forget_old(CAP + 1.0)
    assert (debts.failures("gone"), debts.failures("here")) == (0, 1)
    debts.forgive()
    assert debts.rest("here", CAP) is None
    assert len(debts) == 0
