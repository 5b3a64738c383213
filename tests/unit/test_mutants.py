"""Every mutant still applies to the code, and the test that must see it exists. `make mutants` runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATCHES = sorted((ROOT / "tests" / "mutations").glob("*.patch"))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_it_applies_and_its_test_exists(patch: Path) -> None:
    apply = ["git", "apply", "--check", "--unidiff-zero", "--recount", str(patch)]
    applied = subprocess.run(apply, cwd=ROOT, capture_output=True, text=True, check=False)
    assert applied.returncode == 0, applied.stderr
    head = dict(line.split(": ", 1) for line in patch.read_text(encoding="utf-8").splitlines()[:2])
    file, _, name = head["red"].partition("::")
    assert re.search(rf"^def {re.escape(name.partition('[')[0])}\(", (ROOT / file).read_text(encoding="utf-8"), re.M)


def test_the_deadlines_and_drivers_mutants_are_all_there() -> None:
    assert {patch.stem[:3] for patch in PATCHES} >= {f"D{number:02}" for number in range(1, 20)}
