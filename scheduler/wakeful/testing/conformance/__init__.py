"""Behavioural conformance of an owner: ten rules, each shown on real PostgreSQL with real schedulers.

A plugin's test names its owner in a :class:`Case` and calls :func:`check` once per rule::

    CASE = Case(plugins=("my_plugin",), owner="cron", save=save)

    @pytest.mark.parametrize("rule", RULES)
    def test_conformance(rule, database, tmp_path):
        check(rule, CASE, database, tmp_path)

A rule that is broken raises :class:`NonConforming`, whose message names the rule, what was seen, and what is expected.
"""

from __future__ import annotations

from pathlib import Path

from wakeful.testing.conformance.case import Case, NonConforming, Place
from wakeful.testing.database import Database

RULES = (
    "reconstructs after restart",
    "pages without loss or repeat",
    "re-reads at due",
    "silent when blocked",
    "wakes on its gate's producer",
    "settles once under concurrency",
    "honours generation",
    "idle when disabled",
    "survives SIGKILL at each commit boundary",
    "keeps its exits apart",
)

__all__ = ["RULES", "Case", "NonConforming", "Place", "check"]


def check(rule: str, case: Case, database: Database, directory: Path, *, patience: float = 30.0) -> None:
    """Show that an owner keeps one rule.

    Arguments:
        rule: one of :data:`RULES`.
        case: the owner, and how its receipts are made.
        database: a fresh one, for this rule alone.
        directory: a fresh one, for the schedulers' data.
        patience: seconds after which what should have happened did not.

    Raises:
        NonConforming: the owner breaks the rule.
        ValueError: there is no such rule.
    """
    from wakeful.testing.conformance import faults, timing
    from wakeful.testing.conformance.stage import Stage

    checks = dict(zip(RULES, (*timing.CHECKS, *faults.CHECKS), strict=True))
    if rule not in checks:
        raise ValueError(f"{rule!r} is no rule; one of: {', '.join(RULES)}")
    with Stage(rule, case, database, directory, patience) as stage:
        checks[rule](stage)
