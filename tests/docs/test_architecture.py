"""The architecture page names every module of the core, and nothing else in its table."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
CORE = ROOT / "scheduler/wakeful"
MODULES = {path.stem for path in CORE.glob("*.py")} - {"__init__"}
PACKAGES = {path.parent.name for path in CORE.glob("*/__init__.py")}
PLUGINS = {path.stem for path in (ROOT / "plugins/wakeful_plugins").glob("*.py")}


def test_every_module_of_the_core_is_named() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    parts = {module for module in MODULES if module.startswith("postgres_")}  # "`postgres` and its parts"
    assert MODULES - parts <= named


def test_the_table_names_what_is_there() -> None:
    rows = re.findall(r"^\| [\w ]+ \| (.+?) \| (.+?) \| .+ \|$", PAGE, re.M)
    modules = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    files = {name for row in rows for name in re.findall(r"`([\w/*]+\.sql)`", row[1])}
    assert modules
    assert modules <= MODULES | PACKAGES | PLUGINS
    assert files
    assert all(list((CORE / "sql").glob(name)) for name in files)
