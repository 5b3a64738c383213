"""Plugins as they are really found: distributions with metadata on the path of a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest

import wakeful
from wakeful import config, plugins
from wakeful.errors import PluginError
from wakeful.hookspecs import Specs
from wakeful.owners import Observation, PluginMigration

ROOTS = [str(Path(wakeful.__file__).parents[2] / root) for root in ("scheduler", "coordination", "plugins")]

OWNER = """
import wakeful

class Owner:
    def __init__(self, name, *kinds):
        self.name = name
        self.kinds = frozenset(kinds or (name,))
    def judge(self, facts):
        return []
"""
GOOD = (
    OWNER
    + """
@wakeful.hookimpl
def register_owners():
    return [Owner("good")]
"""
)
REPORT = """
import json, logging, os, pathlib, sys
from wakeful import config, plugins
from wakeful.errors import PluginError
logging.disable()
try:
    hooks = plugins.load(config.load({}, os.environ, pathlib.Path("/")))
    owners = [owner.name for owner in hooks.owners()]
except PluginError as error:
    print(json.dumps({"error": error.message, "hint": error.hint}))
    sys.exit(error.code)
gates = [gate.kind for gate in hooks.gates()]
report = [[s.name, s.distribution, s.version, s.state, s.reason] for s in hooks.report]
print(json.dumps({"owners": owners, "gates": gates, "report": report, "modules": sorted(sys.modules)}))
"""


@dataclass(frozen=True)
class Site:
    """A directory of distributions for a child process to find."""

    path: Path

    def add(self, name: str, module: str, *, distribution: str | None = None, target: str | None = None) -> None:
        """Install a plugin ``name`` whose module ``<name>_module`` has the text ``module``."""
        distribution = distribution or f"wakeful-{name}"
        file = f"{name.replace('-', '_')}_module"
        self.write(f"{file}.py", textwrap.dedent(module))
        folder = f"{distribution.replace('-', '_')}-1.2.dist-info"
        self.write(f"{folder}/METADATA", f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        self.write(f"{folder}/entry_points.txt", f"[wakeful]\n{name} = {target or file}\n")

    def write(self, name: str, text: str) -> None:
        """Write a file below the site."""
        (self.path / name).parent.mkdir(exist_ok=True)
        (self.path / name).write_text(text, encoding="utf-8")

    def run(self, **environ: str) -> tuple[int, dict[str, Any]]:
        """Load all plugins in a new process; return its exit code and what it found."""
        path = os.pathsep.join([str(self.path), *ROOTS])
        done = subprocess.run(
            [sys.executable, "-c", REPORT],
            env={"PATH": os.environ["PATH"], "HOME": str(self.path), "PYTHONPATH": path, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout)

    def states(self, **environ: str) -> dict[str, tuple[str, str]]:
        """Return (state, reason) of each plugin of this site."""
        _, found = self.run(**environ)
        ours = {path.read_text().split()[1] for path in self.path.glob("*.dist-info/entry_points.txt")}
        return {name: (state, why) for name, _, _, state, why in found["report"] if name in ours}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path / "site")
    made.path.mkdir()
    made.add("good", GOOD)
    return made


def test_a_good_plugin_is_active_and_named_with_its_distribution(site: Site) -> None:
    code, found = site.run()
    assert code == 0
    assert ["good", "wakeful-good", "1.2", "active", ""] in found["report"]
    assert "good" in found["owners"]


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import no_such_thing", "cannot be imported: ModuleNotFoundError: No module named 'no_such_thing'"),
        ("raise SystemExit(7)", "cannot be imported: SystemExit: 7"),
        ("raise KeyboardInterrupt", "cannot be imported: KeyboardInterrupt"),
        ("import sys\nsys.exit('bye')", "cannot be imported: SystemExit: bye"),
        ("def broken(:", "cannot be imported: SyntaxError"),
        ("class Odd(BaseException): pass\nraise Odd('very')", "cannot be imported: Odd: very"),
        (
            "import wakeful\n@wakeful.hookimpl\ndef register_owners(colour): return []",
            "hook 'register_owners' does not fit: Argument(s) {'colour'}",
        ),
        ("import wakeful\n@wakeful.hookimpl\ndef register_owner(): return []", "unknown hook 'register_owner'"),
        ("import wakeful\n@wakeful.hookimpl(wrapper=True)\ndef register_owners(): return (yield)", "is a wrapper"),
        ("x = 1", "nothing in it carries @wakeful.hookimpl"),
    ],
)
def test_a_broken_plugin_is_named_and_stops_no_other(site: Site, module: str, reason: str) -> None:
    site.add("bad", module)
    code, found = site.run()
    assert code == 0
    bad = next(entry for entry in found["report"] if entry[0] == "bad")
    assert bad[1:4] == ["wakeful-bad", "1.2", "failed"]
    assert reason in bad[4]
    assert "\n" not in bad[4]
    assert "good" in found["owners"]
    code, refused = site.run(WAKEFUL_PLUGINS_STRICT="true")
    assert code == 1
    assert "plugin bad (wakeful-bad 1.2) failed" in refused["error"]
    assert reason in refused["error"]


def test_a_class_is_not_a_plugin(site: Site) -> None:
    site.add("bad", "class Plugin: pass", target="bad_module:Plugin")
    assert "has to be instantiated" in site.states()["bad"][1]


def test_a_partly_wrong_plugin_contributes_nothing(site: Site) -> None:
    site.add("bad", GOOD.replace('"good"', '"half"') + "\n@wakeful.hookimpl\ndef on_observation(weather): pass\n")
    _, found = site.run()
    assert "half" not in found["owners"]
    assert "good" in found["owners"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("raise ValueError('at run time')", "register_owners: ValueError: at run time"),
        ("raise SystemExit(3)", "register_owners: SystemExit: 3"),
        ("return 5", "register_owners: TypeError"),
        ("return [object()]", "is no owner: it has no usable 'name'"),
        ("return [Owner('mine'), Owner('good')]", "register_owners: the owner 'good' exists already"),
        ("return [Owner('mine', 'good')]", "register_owners: the kind 'good' exists already"),
        ("return [Owner('mine'), Owner('mine')]", "register_owners: the owner 'mine' exists already"),
        ("yield Owner('mine'); raise ValueError('late')", "register_owners: ValueError: late"),
    ],
)
def test_a_hook_that_fails_when_called_disables_its_plugin_only(site: Site, answer: str, reason: str) -> None:
    site.add("later", OWNER + f"\n@wakeful.hookimpl\ndef register_owners():\n    {answer}\n")
    _, found = site.run()
    state, why = next((entry[3], entry[4]) for entry in found["report"] if entry[0] == "later")
    assert state == "failed"
    assert reason in why
    assert "good" in found["owners"]
    assert "mine" not in found["owners"]


def test_owners_go_when_the_same_plugins_gates_fail(site: Site) -> None:
    site.add("later", GOOD.replace('"good"', '"mine"') + "\n@wakeful.hookimpl\ndef register_gates(): 1 / 0\n")
    _, found = site.run()
    assert "mine" not in found["owners"]


def test_of_two_with_one_name_the_first_is_kept(site: Site) -> None:
    site.add("good", GOOD.replace('"good"', '"usurper"'), distribution="zeta-plugins", target="other_module")
    site.write("other_module.py", GOOD.replace('"good"', '"usurper"'))
    site.write("good_module.py", GOOD)
    site.add("zulu", GOOD.replace('"good"', '"zulu"'))
    _, found = site.run()
    same = [entry for entry in found["report"] if entry[0] == "good"]
    assert [(entry[1], entry[3]) for entry in same] == [("wakeful-good", "active"), ("zeta-plugins", "failed")]
    assert same[1][4] == "the name is taken by the one of wakeful-good"
    assert "zulu" in found["owners"]
    assert "usurper" not in found["owners"]


def test_one_module_under_two_names_is_loaded_once(site: Site) -> None:
    site.add("twin", "", target="good_module")
    assert site.states() == {"good": ("active", ""), "twin": ("failed", "it is the same object as plugin good")}


def test_the_same_distribution_twice_on_the_path_is_one(site: Site, tmp_path: Path) -> None:
    again = Site(tmp_path / "again")
    again.path.mkdir()
    again.add("good", "raise SystemExit('the shadowed one')", distribution="Wakeful_Good")
    path = os.pathsep.join([str(site.path), str(again.path), *ROOTS])
    _, found = site.run(PYTHONPATH=path)
    assert [entry[3] for entry in found["report"] if entry[0] == "good"] == ["active"]


def test_a_persons_interrupt_while_a_plugin_is_imported_is_a_persons(site: Site) -> None:
    site.add("slow", "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nsignal.pause()")
    with pytest.raises(AssertionError, match="KeyboardInterrupt"):
        site.run()


def test_a_disabled_plugin_is_not_imported(site: Site) -> None:
    site.add("bad", "raise SystemExit(1)")
    _, found = site.run(WAKEFUL_PLUGINS_DISABLED="bad,nobody", WAKEFUL_PLUGINS_STRICT="true")
    report = {entry[0]: entry[3:] for entry in found["report"]}
    assert report["bad"] == ["disabled", "plugins_disabled (environment WAKEFUL_PLUGINS_DISABLED)"]
    assert report["nobody"][0] == "disabled"
    assert "not installed" in report["nobody"][1]
    assert "bad_module" not in found["modules"]


def test_unreadable_metadata_hides_no_other_plugin(site: Site) -> None:
    site.write("half-1.0.dist-info/entry_points.txt", "[wakeful]\nhalf = half_module\n")
    site.write("other-1.0.dist-info/entry_points.txt", "[another_host]\nother = other_module\n")
    _, found = site.run()
    assert "good" in found["owners"]
    half = next(entry for entry in found["report"] if entry[0].startswith("half"))
    assert half[3] == "failed"
    assert "metadata cannot be read" in half[4]
    assert not any(entry[0].startswith("other") for entry in found["report"])


def test_the_order_is_by_name(site: Site) -> None:
    for name in ("zulu", "alpha", "mike"):
        site.add(name, GOOD.replace('"good"', f'"{name}"'))
    _, found = site.run()
    names = [entry[0] for entry in found["report"]]
    assert names == sorted(names)
    assert [owner for owner in found["owners"] if owner in ("alpha", "good", "mike", "zulu")] == [
        "alpha",
        "good",
        "mike",
        "zulu",
    ]


# ── what a host passes in ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def settings(tmp_path: Path) -> config.Config:
    return config.load({}, {"HOME": str(tmp_path)}, tmp_path)


SEEN = Observation("wake.parked", "acme", datetime(2031, 1, 1, tzinfo=UTC))


class Watcher:
    def __init__(self, *, error: BaseException | None = None) -> None:
        self.error = error
        self.seen: list[Observation] = []

    @wakeful.hookimpl
    def on_observation(self, observation: Observation) -> None:
        self.seen.append(observation)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_a_raising_observer_changes_nothing(
    settings: config.Config, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(Watcher):
        pass

    faulty, watcher = Faulty(error=error), Watcher()
    hooks = plugins.load(settings, discover=False, plugins=[faulty, watcher])
    hooks.observe(SEEN)
    hooks.observe(SEEN)
    assert (len(faulty.seen), len(watcher.seen)) == (2, 2)
    assert [status.state for status in hooks.report] == ["active", "active"]
    assert "plugin Faulty: on_observation raised" in caplog.text


class Commands:
    def __init__(self, *names: str, error: Exception | None = None) -> None:
        self.names = names
        self.error = error

    @wakeful.hookimpl
    def register_commands(self, root: click.Group) -> None:
        for name in self.names:
            root.add_command(click.Command(name))
        if self.error is not None:
            raise self.error


class Other(Commands):
    pass


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        (Other("mine", "up"), "register_commands: the command 'up' exists already"),
        (Other("mine", "emit"), "register_commands: the command 'emit' exists already"),
        (Other("mine", error=RuntimeError("half way")), "register_commands: RuntimeError: half way"),
    ],
)
def test_commands_of_a_failing_plugin_are_rolled_back(settings: config.Config, late: Commands, reason: str) -> None:
    root = click.Group("wakeful", commands={"up": click.Command("up")})
    hooks = plugins.load(settings, discover=False, plugins=[Commands("emit"), late])
    hooks.commands(root)
    assert sorted(root.commands) == ["emit", "up"]
    assert [(status.state, status.reason) for status in hooks.report] == [("active", ""), ("failed", reason)]


class Migrating:
    def __init__(self, *steps: PluginMigration) -> None:
        self.steps = steps

    @wakeful.hookimpl
    def register_migrations(self) -> tuple[PluginMigration, ...]:
        return self.steps


def test_migrations_are_collected_and_checked(settings: config.Config) -> None:
    class Nameless(Migrating):
        pass

    step = PluginMigration("mine", 1, "first", "SELECT 1")
    hooks = plugins.load(settings, discover=False, plugins=[Migrating(step), Nameless(replace(step, plugin=""))])
    assert hooks.migrations() == [step]
    assert "without a plugin's name" in hooks.report[1].reason


def test_strict_refuses_what_fails_later(settings: config.Config) -> None:
    strict = replace(settings, plugins_strict=True)
    hooks = plugins.load(strict, discover=False, plugins=[Commands("up", error=ValueError("no"))])
    with pytest.raises(PluginError, match=r"plugin Commands \(passed in by the host\) failed: register_commands"):
        hooks.commands(click.Group("wakeful"))


def test_given_entry_points_replace_discovery(settings: config.Config) -> None:
    point = metadata.EntryPoint("mine", f"{__name__}:SEEN", "wakeful")
    hooks = plugins.load(settings, entry_points=[point])
    assert [(status.name, status.state) for status in hooks.report] == [("mine", "failed")]


def test_the_facade_has_a_method_for_every_hook() -> None:
    hooks = {name.partition("_")[2] for name in vars(Specs) if name.startswith("register_")}
    assert hooks == {"owners", "gates", "executors", "readers", "attendants", "migrations", "commands"}
    assert all(callable(getattr(plugins.Hooks, name)) for name in hooks)
