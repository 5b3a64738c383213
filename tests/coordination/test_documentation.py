"""The protocol for agents in other languages does what docs/coordination.md says, by its own script."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import wakeful_coordination
from wakeful_coordination import Committed, Coordination, Generation, ending
from wakeful_coordination.event import parse_event
from wakeful_coordination.testing.children import Child
from wakeful_coordination.transaction import parse_transaction

PAGE = Path(__file__).parents[2] / "docs" / "coordination.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_examples_of_both_schemas_are_valid() -> None:
    event, transaction = blocks("json")
    assert parse_event(json.loads(event)).type == "comment"
    assert parse_transaction(transaction.encode()).mutations[0].name == "state.json"


def test_the_python_example_runs(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("python")
    exec(compile(example.replace("/var/lib/wakeful/coordination", path), "example", "exec"), {})  # noqa: S102 - ours
    assert "Committed" in capsys.readouterr().out


needs_tools = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("sh", "flock", "b2sum", "sync")), reason="needs coreutils and util-linux"
)


def publish(path: str, generation: Generation, kind: str, body: str) -> subprocess.CompletedProcess[str]:
    (script,) = blocks("sh")
    environment = os.environ | {"WAKEFUL_COORD": path, "WAKEFUL_INSTANCE": generation.token}
    return subprocess.run(
        ["sh", "-c", script, "publish", kind, body], env=environment, capture_output=True, text=True, check=False
    )


@needs_tools
def test_an_agent_in_shell_publishes_and_is_heard(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("acme.run-7")
    body = {"text": "zwei von drei — fertig"}
    done = publish(path, generation, "comment", json.dumps(body, ensure_ascii=False))
    assert (done.returncode, done.stderr) == (0, "")
    heard: list[Committed] = []
    coord.relay(lambda outcome: heard.append(outcome))  # type: ignore[arg-type]
    assert [one.transaction.txid for one in heard] == [done.stdout.strip()]
    assert heard[0].transaction.event.body == body
    assert heard[0].transaction.sid is None
    assert coord.survey.overview().strays == ()


@needs_tools
def test_an_agent_in_shell_whose_generation_is_over_stands_down(coord: Coordination, path: str) -> None:
    old = coord.generations.open("acme.run-7")
    new = coord.generations.replace(old)
    assert publish(path, old, "comment", "{}").returncode == 4
    coord.generations.retire(new)
    assert publish(path, new, "comment", "{}").returncode == 4
    assert coord.outbox.pending() == []


@needs_tools
def test_an_agent_in_shell_waits_for_the_lease(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    (script,) = blocks("sh")
    run = """
import subprocess
say("go")
done = subprocess.run(["sh", "-c", sys.argv[1], "publish", "comment", "{}"],
                      env=os.environ | {"WAKEFUL_COORD": sys.argv[2], "WAKEFUL_INSTANCE": sys.argv[3]})
say(done.returncode)
"""
    with coord.lease("a"), Child(run, script, path, generation.token) as child:
        child.hear()
        assert child.silent(0.3)
        assert coord.outbox.pending() == []
        coord.leases.release(("a",))
        assert child.hear().isalnum()
        assert child.hear() == "0"
        coord.leases.acquire(("a",), None, False)
    assert len(coord.outbox.pending()) == 1


def public(path: str) -> dict[str, object]:
    """Return everything callers may name: the package's names, and what hangs on an open root, with their members."""
    owners = {name: getattr(wakeful_coordination, name) for name in wakeful_coordination.__all__}
    with Coordination.open(path) as coord:
        parts = {f"coord.{name}": type(part) for name, part in vars(coord).items() if not name.startswith("_")}
    del parts["coord.root"]  # what the parts stand on, not for callers
    found: dict[str, object] = dict(owners)
    for name, owner in (owners | parts).items():
        for member, value in vars(owner).items():
            plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if not member.startswith("_") and (callable(plain) or isinstance(plain, property)):
                found[f"{name}.{member}"] = plain
    return found | parts


def said(names: dict[str, object], name: str) -> str:
    """Return what a name's docstring says, with those that it sends readers to."""
    text = getattr(names[name], "__doc__", None) or ""
    for other in re.findall(r":(?:meth|func):`(?:\w+\.)*?(\w+\.\w+)`", text):
        owner, _, member = other.rpartition(".")
        for known in names:
            if known.endswith(f".{member}") and getattr(names[known], "__qualname__", "") == f"{owner}.{member}":
                text += f"\n{getattr(names[known], '__doc__', '')}"
        if owner == "ending":
            text += f"\n{getattr(ending, member).__doc__}"
    return text


def methods(names: dict[str, object]) -> list[str]:
    return [name for name, value in names.items() if inspect.isfunction(value)]


def test_every_public_name_says_what_it_does(path: str) -> None:
    for name, value in public(path).items():
        first = (value.__doc__ or "").strip().splitlines()
        assert first, name
        assert first[0][0].isupper(), name
        assert first[0].rstrip()[-1] in ".;:,", f"{name}: {first[0]}"


def test_every_duration_of_a_public_name_has_its_unit(path: str) -> None:
    names = public(path)
    for name in methods(names):
        for parameter, kind in inspect.get_annotations(names[name]).items():  # type: ignore[arg-type]
            if parameter != "return" and "float" in str(kind):
                assert "second" in said(names, name), f"{name}: {parameter} has no unit"


#: These raise nothing of the tree.
CALM = {
    *("Coordination.close", "Coordination.new_txid", "Coordination.watcher", "CoordinationError.as_json"),
    *("coord.outbox.ring", "coord.survey.overview"),
}


def test_every_public_name_that_may_be_refused_names_its_errors(path: str) -> None:
    names = public(path)
    for name in methods(names):
        if name not in CALM:
            assert re.search(r"\b[Rr]aises?\b", said(names, name)), f"{name} names no error"


def test_whatever_the_page_promises_to_survive_is_promised_in_its_docstring(path: str) -> None:
    names = public(path)
    table = PAGE.read_text().partition("## What it promises")[2].partition("## ")[0]
    promises = 0
    for calls, promise in re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE):
        owner = ""
        for call in re.findall(r"`([\w.]+)`", calls):
            owner = call.rpartition(".")[0] or owner
            name = f"coord.{owner}.{call.rpartition('.')[2]}" if owner else f"Coordination.{call}"
            assert name in names, f"the page promises something of {name}, which does not exist"
            if "power loss" in promise or "above" in promise:
                promises += 1
                assert "surviv" in said(names, name), f"{name} does not say what survives"
    assert promises >= 9
