"""Break the code in known ways; each break must turn its test red: python tests/mutations/run.py [NAME …].

Each mutant is a small patch beside this file. Its head names the behaviour it breaks and the test that must fail:

    behaviour: what goes wrong
    red: tests/…::test_name

A patch is applied to a copy of the tracked files, never to this checkout. A mutant whose test stays green survives
and fails the run; so does one whose patch does not apply any more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WITHIN = 240


@dataclass(frozen=True)
class Mutant:
    """One patch: its name, what it breaks, and the test that must see it."""

    path: Path
    behaviour: str
    red: str

    @property
    def name(self) -> str:
        return self.path.stem


def mutants(names: list[str]) -> list[Mutant]:
    """Return the chosen mutants, or all."""
    found = []
    for path in sorted(HERE.glob("*.patch")):
        head = dict(line.split(": ", 1) for line in path.read_text(encoding="utf-8").splitlines()[:2])
        found.append(Mutant(path, head["behaviour"], head["red"]))
    unknown = set(names) - {mutant.name for mutant in found}
    if unknown:
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}")
    return [mutant for mutant in found if not names or mutant.name in names]


def copy(to: Path) -> None:
    """Copy the tracked files as they are in this checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, to / name)


def test(where: Path, red: str) -> int:
    """Run one test in the copy; return pytest's exit code (124: it hung, which is red too)."""
    roots = [str(where / root) for root in ("scheduler", "coordination", "plugins")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", red]
    try:
        done = subprocess.run(command, cwd=where, env=environment, capture_output=True, timeout=WITHIN, check=False)
    except subprocess.TimeoutExpired:
        return 124
    return done.returncode


def main(names: list[str]) -> int:
    """Show each mutant's fate; return 1 if one survives."""
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="wakeful-mutants-") as scratch:
        where = Path(scratch)
        copy(where)
        for mutant in mutants(names):
            apply = ["git", "apply", "--unidiff-zero", "--recount", str(mutant.path)]
            applied = subprocess.run(apply, cwd=where, capture_output=True, text=True, check=False)
            if applied.returncode:
                fate = f"does not apply: {applied.stderr.strip().splitlines()[0]}"
            else:
                code = test(where, mutant.red)
                # 1: a test failed. Anything else means that the test did not run at all.
                fate = {0: "SURVIVED", 1: "red", 124: "red (it hung)"}.get(code, f"the test could not run ({code})")
                subprocess.run([*apply, "--reverse"], cwd=where, check=True, capture_output=True)
            survivors += not fate.startswith("red")
            print(f"{mutant.name:28} {fate:14} {mutant.behaviour}", flush=True)
    print(f"{survivors} survived" if survivors else "every mutant was seen")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
