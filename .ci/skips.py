"""Fail when a test was skipped for a reason that nobody has agreed to.

Usage: skips.py REPORT ALLOWED - a JUnit file of pytest, and a file with one regular expression a line.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree


def allowed(text: str) -> list[re.Pattern[str]]:
    """Return the expressions in ``text``; blank lines and those that begin with # are comments."""
    lines = (line.strip() for line in text.splitlines())
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def skipped(report: Path) -> list[tuple[str, str]]:
    """Return (test, reason) for every skipped test of the JUnit file ``report``."""
    tree = ElementTree.parse(report)  # noqa: S314  # our own pytest wrote it a moment ago
    return [
        (f"{case.get('classname')}::{case.get('name')}", skip.get("message", ""))
        for case in tree.iter("testcase")
        for skip in case.iter("skipped")
    ]


def main(report: str, expressions: str) -> int:
    """Print each skip without an agreed reason, and return how many there are, at most 1."""
    agreed = allowed(Path(expressions).read_text(encoding="utf-8"))
    strange = [
        (test, reason) for test, reason in skipped(Path(report)) if not any(one.fullmatch(reason) for one in agreed)
    ]
    for test, reason in strange:
        print(f"skipped without an agreed reason: {test}: {reason}", file=sys.stderr)  # noqa: T201  # a program's answer
    return min(len(strange), 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
