"""What the page for authors of plugins calls public is there, and the example and the template use nothing else."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")
PUBLIC = {name for row in re.findall(r"^\| (`wakeful.+?) \|", PAGE, re.M) for name in re.findall(r"`([\w.]+)`", row)}
TEMPLATES = ROOT / "scheduler/wakeful/cli/plugin_template"
FILES = [*(ROOT / "examples/plugin").rglob("*.py"), *TEMPLATES.glob("*.py.in")]


OURS = ("wakeful", "wakeful_plugins", "wakeful_coordination")


def used(path: Path) -> set[str]:
    """Return the modules of ours that a file imports, or imports names from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] in OURS}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            module = import_module(str(node.module))
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                # `from wakeful import listings` names a module.
                found.add(name if hasattr(module, "__path__") and find_spec(name) else module.__name__)
    return found


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_a_public_module_is_there(module: str) -> None:
    import_module(module)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_plugins_use_public_names_only(path: Path) -> None:
    beyond = {name for name in used(path) if name not in PUBLIC and not name.startswith("wakeful.testing.")}
    assert not beyond
    kit = {name for name in used(path) if name.startswith("wakeful.testing")}
    assert not kit or path.name.startswith("conftest") or "tests" in path.parts or "test_" in path.name


def test_a_private_name_is_seen(tmp_path: Path) -> None:
    lines = [
        "import wakeful.store",
        "from wakeful import hookimpl, listings, driver",
        "from wakeful_plugins.run import run",
        "import os",
    ]
    (tmp_path / "plugin.py").write_text("\n".join(lines), encoding="utf-8")
    assert used(tmp_path / "plugin.py") == {
        "wakeful",
        "wakeful.driver",
        "wakeful.listings",
        "wakeful.store",
        "wakeful_plugins.run",
    }
