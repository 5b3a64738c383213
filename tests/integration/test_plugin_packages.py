"""Plugins as distributions of their own, in a fresh environment: the example, and what ``wakeful plugin new`` writes.

The environment has wakeful and the plugin from their wheels. Everything else it takes from the environment of these
tests, so that no package index is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from wakeful.testing import Server

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("WAKEFUL_", "PYTHON", "COVERAGE"))}


def run(*words: object, cwd: Path, within: float = 110, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=CLEAN | environ,
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )


def done(*words: object, cwd: Path, within: float = 110, **environ: str) -> str:
    """Run a command that must succeed, and return what it prints."""
    ended = run(*words, cwd=cwd, within=within, **environ)
    assert ended.returncode == 0, f"{words}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
    return ended.stdout


def built(source: Path, kind: str, made: Path) -> Path:
    """Build the sdist or the wheel of one distribution, with the build back end of this environment."""
    done(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", made, cwd=source)
    (path,) = made.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wakeful_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, "wheel", tmp_path_factory.mktemp("wakeful"))


@pytest.fixture
def fresh(wakeful_wheel: Path, tmp_path: Path) -> Callable[..., Path]:
    """Make an environment with wakeful and further wheels, and return its Python."""

    def make(*wheels: Path) -> Path:
        home = tmp_path / "environment"
        venv.create(home, symlinks=True)
        python = home / "bin" / "python"
        own = Path(done(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
        paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (own / "surroundings.pth").write_text("\n".join(paths), encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
        done(*pip, wakeful_wheel, *wheels, cwd=tmp_path)
        where = done(python, "-c", "import wakeful; print(wakeful.__file__)", cwd=tmp_path)
        assert Path(where.strip()).is_relative_to(home)
        return python

    return make


def own_tests(python: Path, source: Path, server: Server) -> str:
    """Run a plugin's own tests as its author does, and return what pytest says last."""
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"]
    said = done(*words, cwd=source, within=400, WAKEFUL_DSN=server.dsn)
    summary = said.splitlines()[-1]
    assert " passed" in summary
    assert "skipped" not in summary, said
    return summary


@pytest.mark.timeout(450)
def test_the_example_keeps_its_promises_as_installed(
    fresh: Callable[..., Path], server: Server, tmp_path: Path
) -> None:
    packed = built(EXAMPLE, "sdist", tmp_path / "sdist")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    python = fresh(built(source, "wheel", tmp_path / "wheel"))
    plugins = done(python.with_name("wakeful"), "plugins", cwd=tmp_path, HOME=str(tmp_path))
    (line,) = [line for line in plugins.splitlines() if line.startswith("cron ")]
    assert line.split() == ["cron", "wakeful-cron", "0.1.0", "active", "-"]
    own_tests(python, source, server)
