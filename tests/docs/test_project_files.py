"""The files that tell contributors and the build machine what to do agree with each other and with the tests."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from wakeful import config

ROOT = Path(__file__).parents[2]
SKIPS = ROOT / ".ci/skips.py"
ALLOWED = ROOT / ".ci/allowed-skips"


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def agreed() -> list[str]:
    return [line for line in ALLOWED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def test_every_target_is_explained_and_phony() -> None:
    makefile = text("Makefile")
    targets = re.findall(r"^([a-z]+):.*## ", makefile, re.M)
    assert set(targets) > {"demo", "test", "check", "bench", "nightly", "docs", "mutants", "clean"}
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.M)
    assert phony.split() == targets
    explained = re.findall(r"^\| `make ([a-z]+)` \|", text("CONTRIBUTING.md"), re.M)
    assert explained == [target for target in targets if target != "help"]


def test_changelog_begins_with_this_version() -> None:
    version = tomllib.loads(text("pyproject.toml"))["project"]["version"]
    headings = re.findall(r"^## \[(.+?)\]", text("CHANGELOG.md"), re.M)
    assert headings[:2] == ["Unreleased", version]


def test_every_setting_is_explained_with_its_default(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", text("docs/reference/settings.md"), re.M)
    found = config.load({}, {"HOME": str(tmp_path)}, tmp_path)
    assert [name for name, _ in rows] == list(found.origins)
    defaults = {name: value for name, value, _ in config.shown(found)}
    for name, default in rows:
        if default.startswith("`") and name not in ("listen_dsn", "actor"):  # these two are said in words
            assert default == f"`{defaults[name]}`", name


def reasons_given() -> set[str]:
    given = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), path)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in ("skip", "skipif"):
                values = [*node.args[:1]] * (node.func.attr == "skip")
                values += [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
                given |= {value.value for value in values if isinstance(value, ast.Constant)}
    return given


def test_agreed_skips_are_reasons_that_tests_give() -> None:
    given = reasons_given()
    assert given
    strange = {reason for reason in given if not any(re.fullmatch(one, reason) for one in agreed())}
    assert not strange, "add to .ci/allowed-skips with the reason why, or do not skip"
    unused = {one for one in agreed() if not any(re.fullmatch(one, reason) for reason in given)}
    assert not unused, "no test gives this reason any more"


@pytest.mark.parametrize(
    ("skip", "code", "said"),
    [
        ("", 0, ""),
        (f'<skipped type="pytest.skip" message="{agreed()[0]}">where</skipped>', 0, ""),
        ('<skipped type="pytest.skip" message="did not feel like it"/>', 1, "tests.a::b: did not feel like it"),
        ('<skipped type="pytest.xfail" message=""/>', 1, "tests.a::b: "),
    ],
)
def test_skip_without_an_agreed_reason_fails_the_build(tmp_path: Path, skip: str, code: int, said: str) -> None:
    report = tmp_path / "junit.xml"
    case = f'<testcase classname="tests.a" name="b">{skip}</testcase>'
    report.write_text(f"<testsuites><testsuite>{case}</testsuite></testsuites>", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, SKIPS, report, ALLOWED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)


@pytest.mark.parametrize("script", [".ci/run", ".ci/environment"])
def test_script_can_be_run(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111 == 0o111
    interpreter = text(script).partition("\n")[0].removeprefix("#!").split()
    subprocess.run([*interpreter, "-n", path], check=True, timeout=60)
