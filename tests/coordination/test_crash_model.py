"""Every crash, in the weakest legal filesystem, of the real transaction and cleanup code; recovery crashed too.

The first number after "invariant" in a violation says which promise was broken.
"""

import pytest

from wakeful_coordination.testing.flush import purpose
from wakeful_coordination.testing.generation_changes import GenerationChanges
from wakeful_coordination.testing.scenarios import OperatorsOrders, TerminalAndCleanup, TwoInstanceTransaction
from wakeful_coordination.testing.whole_end import WholeEnd

#: Changes made by one terminal and cleanup; arrivals beyond it meet a finished end.
STEPS = 14


def test_invariants_08_to_12_and_19_hold_after_any_crash_of_a_two_instance_transaction() -> None:
    found = TwoInstanceTransaction().explorer(depth=2).run()
    assert not found.violations[:3]
    assert found.states > 2000


def test_invariants_08_09_and_11_hold_when_a_generation_is_replaced_before_recovery() -> None:
    found = TwoInstanceTransaction(replace=True).explorer(depth=1, thorough=True).run()
    assert not found.violations[:3]
    assert found.states > 100


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("replace", [False, True])
def test_invariants_08_to_12_hold_after_every_subset_of_changes_survived(replace: bool) -> None:
    found = TwoInstanceTransaction(replace=replace).explorer(depth=2, thorough=True).run()
    assert not found.violations[:3]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_invariants_08_09_and_11_hold_when_the_recovery_after_a_replacement_crashes() -> None:
    assert not TwoInstanceTransaction(replace=True).explorer(depth=2).run().violations[:3]


def test_invariants_13_14_16_and_18_hold_after_any_crash_of_terminal_and_cleanup() -> None:
    found = TerminalAndCleanup().explorer(depth=2, thorough=True).run()
    assert not found.violations[:3]
    assert found.states > 100


@pytest.mark.nightly
def test_invariants_13_14_16_and_18_hold_after_three_crashes_in_a_row() -> None:
    assert not TerminalAndCleanup().explorer(depth=3, thorough=True).run().violations[:3]


@pytest.mark.parametrize("noreplace", [True, False], ids=["renameat2", "link-and-unlink"])
def test_invariant_17_holds_whenever_a_newer_cache_arrives(noreplace: bool) -> None:
    for step in range(STEPS):
        found = TerminalAndCleanup([step]).explorer(depth=2, noreplace=noreplace).run()
        assert not found.violations[:3], step


def test_invariant_17_holds_whenever_two_newer_caches_arrive() -> None:
    for first in range(STEPS):
        for second in range(first, STEPS):
            found = TerminalAndCleanup([first, second]).explorer(depth=1).run()
            assert not found.violations[:3], (first, second)


def test_invariant_21_holds_after_any_crash_of_opening_replacing_and_retiring() -> None:
    found = GenerationChanges().explorer(depth=2, thorough=True).run()
    assert not found.violations[:3]


def test_invariant_14_holds_after_any_crash_of_a_whole_end() -> None:
    found = WholeEnd().explorer(depth=2).run()
    assert not found.violations[:3]
    assert found.states > 50


@pytest.mark.parametrize("retry", [False, True], ids=["set aside", "taken up again"])
def test_invariants_09_and_11_hold_after_any_crash_of_an_operators_order(retry: bool) -> None:
    found = OperatorsOrders(retry=retry).explorer(depth=2, thorough=True).run()
    assert not found.violations[:3]


SCENARIOS = {
    "transaction": lambda: TwoInstanceTransaction(),
    "replaced": lambda: TwoInstanceTransaction(replace=True),
    "set aside": lambda: OperatorsOrders(),
    "taken up again": lambda: OperatorsOrders(retry=True),
    "terminal": lambda: TerminalAndCleanup(),
    "newer cache": lambda: TerminalAndCleanup([8]),
    "generation": lambda: GenerationChanges(),
    "whole end": lambda: WholeEnd(),
}
REQUIRED = {
    "transaction": {
        "outbox/pending record bytes",
        "outbox/pending record name",
        "instance state bytes",
        "instance state name",
        "receipts record name",
        "receipts record bytes",
    },
    "set aside": {"outbox/quarantine record name", "outbox/quarantine record bytes"},
    "taken up again": {"outbox/pending record name"},
    "terminal": {
        "instance terminal bytes",
        "instance terminal name",
        "cache set aside",
        "cache deleted",
    },
    "newer cache": {"cache put back"},
    "generation": {
        "instance name",
        "instance lease name",
        "instance generation.json bytes",
        "instance generation.json name",
    },
    "whole end": {"instance end bytes", "instance end name"},
}


@pytest.mark.parametrize(
    ("scenario", "missing"), [(name, one) for name, all_of in REQUIRED.items() for one in sorted(all_of)]
)
def test_each_required_fsync_is_missed_when_it_is_left_out(scenario: str, missing: str) -> None:
    def violated(depth: int) -> bool:
        explorer = SCENARIOS[scenario]().explorer(depth=depth, enough=1, deaf=lambda flush: purpose(flush) == missing)
        return bool(explorer.run().violations)

    assert violated(1) or violated(2), f"nothing depends on {missing}"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_fsync_of_the_code_is_either_required_or_said_not_to_be(scenario: str) -> None:
    seen = {purpose(flush) for flush in SCENARIOS[scenario]().explorer(depth=1).run().flushes} - {None}
    assert seen <= set().union(*REQUIRED.values())
