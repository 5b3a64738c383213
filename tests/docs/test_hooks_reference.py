"""The reference of hooks says what the specifications say, and every hook has a test that uses it."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path

import pytest

from wakeful.hookspecs import Specs

ROOT = Path(__file__).parents[2]
HOOKS = [name for name, _ in inspect.getmembers(Specs, inspect.isfunction) if not name.startswith("_")]


def test_it_is_what_the_generator_makes() -> None:
    spec = importlib.util.spec_from_file_location("hooks_reference", ROOT / "docs/hooks_reference.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.FILE.read_text(encoding="utf-8") == generator.text(), "run: python docs/hooks_reference.py"


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_implemented_in_some_test(hook: str) -> None:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.name != Path(__file__).name]
    assert any(f"def {hook}(" in path.read_text(encoding="utf-8") for path in tests)
