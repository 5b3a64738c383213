"""Each of these breaks is found by the test it names: coordination's mutants C1 to C17.

C12 and C13, an engine that hides how a run ended, break code outside the package, and need whole runs to be seen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parents[1]
ROOTS = ("scheduler", "coordination", "plugins")

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A break: in ``module``, ``old`` (which stands there once) becomes ``new``; ``test`` must go red."""

    name: str
    module: str
    old: str
    new: str
    test: str
    package: str = "coordination/wakeful_coordination"


ENDS = "../integration/test_terminal_conformance.py"

MUTANTS = [
    Mutant(
        "C1 leases unsorted",
        "leases.py",
        "instances = tuple(sorted(set(instances)))",
        "instances = tuple(dict.fromkeys(instances))",
        "test_leases.py -k invariant_04_leases",
    ),
    Mutant(
        "C2 a live owner overtaken",
        "leases.py",
        "if found is None or isinstance(found, Dead):",
        "if True:",
        "test_dead_owners.py -k unfinished_transaction_of_a_live",
    ),
    Mutant(
        "C3 a pid without its start time decides",
        "session.py",
        "        if not free:",
        "        if __import__('os').path.exists(f\"/proc/{known.get('pid')}\"):",
        "test_dead_owners.py -k pid",
    ),
    Mutant(
        "C4 the generation is read at cleanup",
        "held_cache.py",
        "            if files.stat(held, at) is None:",
        "            import dataclasses\n"
        "            from wakeful_coordination.generation import read_current\n"
        "            now = read_current(self._root, at, instance).generation\n"
        "            terminal = dataclasses.replace(terminal, generation=now)\n"
        "            if files.stat(held, at) is None:",
        "test_terminals.py -k cache_of_a_replacement",
    ),
    Mutant(
        "C5 unchecked at mutation",
        "authority.py",
        "            self._mark(transaction)\n            self._check(transaction)\n",
        "            self._mark(transaction)\n",
        "test_transactions.py -k replacement_in_the_middle",
    ),
    Mutant(
        "C6 unchecked at commit",
        "authority.py",
        '                applied.append(f"{mutation.instance}/{mutation.name}")\n'
        "            self._check(transaction)\n",
        '                applied.append(f"{mutation.instance}/{mutation.name}")\n',
        "test_transactions.py -k replacement_in_the_middle",
    ),
    Mutant(
        "C7 a replay binds to the newer generation",
        "generation.py",
        "    if own != captured.id:",
        "    if False:",
        "test_transactions.py -k replayed_after_a_replacement",
    ),
    Mutant(
        "C8 the held bytes are not read",
        "held_cache.py",
        "            if self.is_own(at, held, place, terminal):",
        "            if True:",
        "test_terminals.py -k arrived_before_the_move",
    ),
    Mutant(
        "C9 a restore overwrites",
        "held_cache.py",
        "            files.link(held, at, LIVE, at)\n",
        "            files.rename(held, LIVE, at)\n            return Cleaned('restored')\n",
        "test_terminals.py -k moved_by_mistake",
    ),
    Mutant(
        "C10 a second terminal on retry",
        "terminal.py",
        "publish.new_file(self._root, at, name, data, place=home.place)",
        "publish.new_file(self._root, at, f'terminal-{captured.id}-{nonce}.json', data, place=home.place)",
        "test_terminals.py -k invariant_13_the_same",
    ),
    Mutant(
        "C11 agent.end before the cleanup is finished",
        "ending.py",
        "    return AgentEnd(terminal, caches.clean(terminal))",
        "    try:\n        return AgentEnd(terminal, caches.clean(terminal))\n"
        "    except Exception:\n        return AgentEnd(terminal, Cleaned('absent'))",
        "test_terminals.py -k invariant_14",
    ),
    Mutant(
        "C12 a caught child error hides a terminal failure",
        "attendance.py",
        "            if failure is not None:\n",
        "            if failure is not None and outcome != 'succeeded':\n",
        f"{ENDS} -k caught_error",
        package="scheduler/wakeful",
    ),
    Mutant(
        "C13 a cancellation becomes success",
        "results.py",
        "    if report.ended_by is EndClass.STOPPED:\n",
        "    if report.ended_by is EndClass.STOPPED and report.exit_code != 0:\n",
        f"{ENDS} -k cancellation_keeps",
        package="scheduler/wakeful",
    ),
    Mutant(
        "C13 a cancellation whose terminal fails becomes a failure",
        "post_mortem.py",
        '    if conclusion.state == "succeeded":\n',
        "    if True:\n",
        f"{ENDS} -k cancellation_keeps",
        package="scheduler/wakeful",
    ),
    Mutant(
        "C13 the costs of a cancellation are lost",
        "results.py",
        'return Conclusion("cancelled", EndClass.STOPPED, "run.stopped", **account)',
        'return Conclusion("cancelled", EndClass.STOPPED, "run.stopped")',
        f"{ENDS} -k cancellation_keeps",
        package="scheduler/wakeful",
    ),
    Mutant(
        "C14 one lock for all instances",
        "lease_file.py",
        "place = layout.instance_path(layout.instance_id(instance))",
        "place = layout.instance_path('a')",
        "test_leases.py -k invariant_23",
    ),
    Mutant(
        "C15 a nested lease locks again",
        "lease.py",
        "                self.depth += 1\n",
        "                self.depth += 1\n                ledger.try_lock(self.fd)\n",
        "test_leases.py -k invariant_05",
    ),
    Mutant(
        "C15 a lease nested among several locks again",
        "leases.py",
        "            lease.depth += 1\n",
        "            lease.depth += 1\n            self._ledger.try_lock(lease.fd)\n",
        "test_leases.py -k invariant_05",
    ),
    Mutant(
        "nobody steps aside for those who wait",
        "leases.py",
        "aside = lease.waited and not impatient and",
        "aside = False and",
        "test_lease_waits.py -k had_to_wait",
    ),
    Mutant(
        "C16 quarantine applies",
        "authority.py",
        "        outcome = self._quarantine.put(transaction.txid, transaction, reason, applied)\n",
        "        for mutation in transaction.mutations:\n            self._mutate(transaction, mutation)\n"
        "        outcome = self._quarantine.put(transaction.txid, transaction, reason, applied)\n",
        "test_transactions.py -k replayed_after_a_replacement",
    ),
    Mutant(
        "C17 bytes are not flushed before they get their name",
        "publish.py",
        '            root.sync(fd, f"{place}/{spare}")\n',
        "",
        "test_crash_model.py -k invariants_13_14_16_and_18_hold_after_any",
    ),
    Mutant(
        "C17 a new name is not flushed",
        "publish.py",
        '        _dropped(root, at, spare)\n        root.fail(error, f"{place}/{name}")\n    root.sync(at, place)\n',
        '        _dropped(root, at, spare)\n        root.fail(error, f"{place}/{name}")\n',
        "test_crash_model.py -k invariants_13_14_16_and_18_hold_after_any",
    ),
    Mutant(
        "C17 a replaced name is not flushed",
        "publish.py",
        "    if durable:\n        root.sync(at, place)\n",
        "",
        "test_crash_model.py -k invariant_21",
    ),
    Mutant(
        "C17 a receipt is not flushed",
        "publish.py",
        "    root.sync(target_at, place)\n",
        "",
        "test_crash_model.py -k operators_order",
    ),
    Mutant(
        "C17 a deletion is not flushed",
        "held_cache.py",
        "                files.unlink(held, at)\n                self._root.sync(at, place)\n",
        "                files.unlink(held, at)\n",
        "test_crash_model.py -k invariants_13_14_16_and_18_hold_after_any",
    ),
    Mutant(
        "C17 a cache put back is not flushed",
        "held_cache.py",
        "        self._root.sync(at, place)\n        files.unlink(held, at)\n",
        "        files.unlink(held, at)\n",
        "test_crash_model.py -k newer_cache_arrives",
    ),
    Mutant(
        "C17 a cache set aside is not flushed",
        "held_cache.py",
        "            self._root.sync(at, place)\n            if self.is_own(",
        "            if self.is_own(",
        "test_crash_model.py -k invariants_13_14_16_and_18_hold_after_any",
    ),
]


def outcome(copy: Path, test: str) -> subprocess.CompletedProcess[str]:
    name, *options = test.split(maxsplit=1)
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"),
        *("-o", f"pythonpath={' '.join(str(copy / root) for root in ROOTS)}"),
        *(f"--basetemp={copy}-tmp", str(TESTS / name)),
        *(option for line in options for option in line.split(maxsplit=1)),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=dict(os.environ))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for root in ROOTS:
        shutil.copytree(ROOT / root, tmp_path / "copy" / root, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "copy"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_found(copy: Path, mutant: Mutant) -> None:
    module = copy / mutant.package / mutant.module
    text = module.read_text()
    assert text.count(mutant.old) == 1, "the place of the break has changed: move the mutant along"
    module.write_text(text.replace(mutant.old, mutant.new))
    done = outcome(copy, mutant.test)
    assert done.returncode == 1, f"survived: {done.stdout[-2000:]}"


@pytest.mark.parametrize("test", ["test_terminals.py", f"{ENDS} -k caught_error or cancellation_keeps"])
def test_the_unbroken_copy_passes(copy: Path, test: str) -> None:
    done = outcome(copy, test)
    assert done.returncode == 0, done.stdout[-2000:]
