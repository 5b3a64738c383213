"""The protocol for agents in other languages does what docs/coordination.md says, by its own script."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from wakeful_coordination import Committed, Coordination, Generation
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


def test_every_public_name_says_what_it_does() -> None:
    import wakeful_coordination

    for name in wakeful_coordination.__all__:
        public = getattr(wakeful_coordination, name)
        assert public.__doc__, name
        for member, value in vars(public).items():
            if callable(value) and not member.startswith("_"):
                assert value.__doc__, f"{name}.{member}"
