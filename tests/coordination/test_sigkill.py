"""Invariants 12 and 19: a real process is killed before each of its system calls, and recovered by another.

strace delivers the SIGKILL on entry of the n-th call that changes something; recovery appends no event, loses
none, and deletes no foreign byte.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakeful_coordination import Coordination, Generation
from wakeful_coordination.held_cache import cache_header
from wakeful_coordination.layout import instance_path

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

#: Calls that change a file, a name, a lock or a descriptor; the others leave nothing to recover.
CHANGING = "openat,openat2,pwrite64,write,fsync,renameat2,renameat,rename,linkat,unlinkat,mkdirat,ftruncate,flock,close"
NAMES = frozenset(CHANGING.split(","))

TERMINAL = """
import os, sys
from wakeful_coordination import Coordination
with Coordination.open(sys.argv[1]) as c:
    g = c.generations.capture("a")
    os.access("/begin", 0)
    c.conclude(g, "succeeded")
    os.access("/end", 0)
"""
TRANSACTION = """
import os, sys
from wakeful_coordination import Coordination, Mutation
with Coordination.open(sys.argv[1]) as c:
    a, b = (c.generations.capture(name) for name in ("a", "b"))
    t = c.transaction(a, "comment", {"text": "x"}, txid="t" * 32, others=[b],
                      mutations=[Mutation("a", "state.json", "A"), Mutation("b", "state.json", "B")])
    os.access("/begin", 0)
    c.transact(t)
    os.access("/end", 0)
"""


def run(script: str, path: str, *options: str) -> int:
    command = ["strace", *options, sys.executable, "-S", "-c", script, path]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


def window(script: str, path: str, trace: Path) -> list[tuple[str, int]]:
    """Return the changing calls that the work itself makes, each with its number among those of its name."""
    assert run(script, path, "-o", str(trace), "-e", f"trace={CHANGING},access") == 0
    made: Counter[str] = Counter()
    inside: list[tuple[str, int]] | None = None
    for line in trace.read_text().splitlines():
        name = line.partition("(")[0]
        if name == "access":
            if '"/begin"' in line:
                inside = []
            if '"/end"' in line:
                return inside or []
        elif name in NAMES:
            made[name] += 1
            if inside is not None:
                inside.append((name, made[name]))
    raise AssertionError("the work did not end")


def killed(script: str, path: str, name: str, when: int) -> None:
    code = run(script, path, "-o", "/dev/null", "-e", f"trace={name}", "-e", f"inject={name}:signal=KILL:when={when}")
    assert code in (-9, 137), code


def prepared(place: str) -> tuple[Generation, Generation]:
    with Coordination.open(place) as coord:
        a, b = coord.generations.open("a"), coord.generations.open("b")
        coord.caches.write(a, b"payload")
    return a, b


def moments(script: str, path: str, tmp_path: Path, step: int) -> Iterator[tuple[str, Generation, Generation]]:
    prepared(path)
    calls = window(script, path, tmp_path / "trace")
    assert len(calls) > 20
    for name, when in calls[::step]:
        place = f"{path}-{name}-{when}"
        a, b = prepared(place)
        killed(script, place, name, when)
        yield place, a, b


def check_terminal(place: str, a: Generation) -> None:
    home = Path(place, instance_path("a"))
    newer = cache_header(Generation("a", 2, "n" * 32)) + b"newer"
    held = any(one.name.startswith("held-") for one in home.iterdir())
    if held:
        (home / "cache").write_bytes(newer)
    with Coordination.open(place) as coord:
        coord.recover()
        ended = coord.conclude(a, "succeeded")
        assert ended.cleaned.how in ("deleted", "absent")
        assert coord.outbox.pending() == []
    names = [one.name for one in home.iterdir() if not one.name.startswith(".tmp-")]
    assert len([name for name in names if name.startswith("terminal-")]) == 1
    assert not [name for name in names if name.startswith(("held-", "retained-"))]
    assert not held or (home / "cache").read_bytes() == newer
    assert held or "cache" not in names


def check_transaction(place: str, a: Generation, b: Generation) -> None:
    with Coordination.open(place) as coord:
        coord.recover()
        acknowledged = coord.authority.receipt("t" * 32) is not None
        assert (coord.state(a), coord.state(b)) == (("A", "B") if acknowledged else (None, None))
        assert len(coord.relay(lambda outcome: None).committed) == int(acknowledged)
        assert coord.survey.overview().quarantined == ()
        for name in "ab":
            assert "pending" not in coord.survey.instance(name).files
            with coord.lease(name):
                assert Path(place, instance_path(name), "lease").read_bytes() == b""
    assert len(os.listdir(Path(place, "sessions"))) == 0


def test_invariant_19_terminal_and_cleanup_survive_a_kill_at_every_fifth_call(path: str, tmp_path: Path) -> None:
    for place, a, _ in moments(TERMINAL, path, tmp_path, 5):
        check_terminal(place, a)


def test_invariant_12_a_two_instance_transaction_survives_a_kill_at_every_eleventh_call(
    path: str, tmp_path: Path
) -> None:
    for place, a, b in moments(TRANSACTION, path, tmp_path, 11):
        check_transaction(place, a, b)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_invariant_19_terminal_and_cleanup_survive_a_kill_at_every_call(path: str, tmp_path: Path) -> None:
    for place, a, _ in moments(TERMINAL, path, tmp_path, 1):
        check_terminal(place, a)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_invariant_12_a_two_instance_transaction_survives_a_kill_at_every_call(path: str, tmp_path: Path) -> None:
    for place, a, b in moments(TRANSACTION, path, tmp_path, 1):
        check_transaction(place, a, b)
