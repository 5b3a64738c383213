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
from typing import Any

import psycopg
import pytest
from tests.command_line import CommandLine, open_directory

from wakeful import producers
from wakeful.cli import plugin_new
from wakeful.errors import InvalidInput
from wakeful.testing import Server
from wakeful.testing.conformance import RULES

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


# ── wakeful plugin new ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.timeout(300)
def test_a_new_plugin_keeps_the_rules_as_installed(fresh: Callable[..., Path], server: Server, tmp_path: Path) -> None:
    cli = CommandLine(tmp_path / "data")
    made = cli("plugin", "new", "night-shift", "--into", str(tmp_path), "--json").json
    source = tmp_path / "wakeful-night-shift"
    assert made == {
        "name": "night_shift",
        "distribution": "wakeful-night-shift",
        "directory": str(source),
        "files": [
            "README.md",
            "pyproject.toml",
            "tests/conftest.py",
            "tests/test_conformance.py",
            "wakeful_night_shift.py",
        ],
    }
    python = fresh(built(source, "wheel", tmp_path / "wheel"))
    plugins = done(python.with_name("wakeful"), "plugins", cwd=tmp_path, HOME=str(tmp_path))
    assert ["night_shift", "wakeful-night-shift", "0.1.0", "active", "-"] in [x.split() for x in plugins.splitlines()]
    assert own_tests(python, source, server).startswith(f"{len(RULES)} passed")
    ruff, style = Path(sys.executable).with_name("ruff"), ["--isolated", "--line-length", "120"]
    done(ruff, "check", *style, "--select", "B,C4,E,F,I,N,PT,RUF,SIM,UP,W", source, cwd=tmp_path)
    done(ruff, "format", "--check", *style, source, cwd=tmp_path)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("Night", 2, "cannot name a plugin"),
        ("night_shift", 2, "cannot name a plugin"),
        ("-x", 2, "No such option"),
        ("../x", 2, "cannot name a plugin"),
        ("x" * 41, 2, "cannot name a plugin"),
        ("wakeful-cron", 2, "names wakeful twice; try: cron"),
        ("task-retry", 2, "a name of wakeful's own"),
        ("lambda", 2, "a name of wakeful's own, or of Python's"),
        ("coordination", 2, "a plugin 'coordination' is installed here already"),
        ("present", 4, "wakeful-present exists already"),
        ("dangling", 4, "wakeful-dangling exists already"),
    ],
)
def test_what_cannot_be_a_new_plugin(tmp_path: Path, name: str, code: int, said: str) -> None:
    (tmp_path / "wakeful-present").mkdir()
    (tmp_path / "wakeful-dangling").symlink_to("nowhere")
    ended = CommandLine(tmp_path / "data")("plugin", "new", name, "--into", str(tmp_path))
    assert ended.code == code
    assert said in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wakeful-dangling", "wakeful-present"]


def test_a_new_plugin_needs_a_directory(tmp_path: Path) -> None:
    ended = CommandLine(tmp_path / "data")("plugin", "new", "a", "--into", str(tmp_path / "none"))
    assert (ended.code, ended.err.strip()) == (2, f"wakeful: {tmp_path / 'none'} is no directory (exit 2)")


def test_names_that_the_database_refuses_are_taken(conn: psycopg.Connection[Any], company: str) -> None:
    for kind in sorted(plugin_new.TAKEN - {"request"}):
        with pytest.raises(InvalidInput):
            producers.run(conn, producers.request_wake(company, "coder", kind=kind))


def test_a_package_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        plugin_new.write({"good": "text", "bad": "\ud800"}, tmp_path / "package")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_the_example_brings_what_it_needs_from_a_package_index(wakeful_wheel: Path, tmp_path: Path) -> None:
    wheel = built(EXAMPLE, "wheel", tmp_path / "wheel")
    with open_directory() as home:
        venv.create(home / "environment", with_pip=True)
        python = home / "environment" / "bin" / "python"
        wanted = [f"wakeful[embedded] @ {wakeful_wheel.as_uri()}", wheel]
        done(python, "-m", "pip", "install", "--quiet", *wanted, cwd=home, within=250)
        environ = {"HOME": str(home), "WAKEFUL_DATA": str(home / "data")}
        for words in (
            ["company", "add", "acme"],
            ["agent", "add", "writer", "--run", "true"],
            ["cron", "add", "writer", "--cron", "0 0 1 1 *", "--zone", "Europe/Berlin"],
        ):
            said = done(python.with_name("wakeful"), *words, cwd=home, **environ)
        assert "-01-01T00:00:00+01:00" in said
