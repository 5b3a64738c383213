"""Panic: nothing is admitted, every tree is ended however it resists, and the report agrees with the kernel."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.conditions import wait_until
from tests.conftest import Listener
from tests.integration import local
from tests.integration.runs import queued, row
from tests.passes import admit, parked, start
from tests.schedulers import running

from wakeful import panics
from wakeful.explain import why
from wakeful.testing import Database

Conn = psycopg.Connection[Any]
TREE = Path(__file__).parents[1] / "children" / "stubborn_tree.py"
TREES = 20
# What the twenty do beside ignoring TERM: the grandchild of each has left its session and lost its parent.
KINDS = ("stay", "stay cookieless", "stay quiet", "stay cookieless quiet")

pytestmark = pytest.mark.usefixtures("company")


def processes(cookies: set[str]) -> set[tuple[int, str]]:
    """Return (pid, start) of living processes that carry one of the cookies, by the kernel's own word."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        carried = {word.partition(b"=")[2].decode() for word in environment if word.startswith(b"WAKEFUL_RUN=")}
        if carried & cookies and (one := identity(int(entry.name))):
            found.add(one)
    return found


def identity(pid: int) -> tuple[int, str] | None:
    """Return what tells a living process from a later one with its pid; None if it is dead."""
    try:
        state, *rest = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else (pid, rest[18])


def grandchildren(data: Path) -> set[tuple[int, str]]:
    """Return the processes that the trees' outputs name."""
    lines = [path.read_text().partition("\n")[0] for path in data.glob("runs/*/*/*/stdout")]
    return {one for line in lines if line and (one := identity(int(line)))}


def cookies(conn: Conn) -> set[str]:
    return {f"{run}-{generation}" for run, generation in conn.execute("SELECT id, generation FROM wakeful.run")}


@contextmanager
def nothing_left(conn: Conn, data: Path) -> Iterator[None]:
    """A test that fails leaves no tree behind either."""
    try:
        yield
    finally:
        for pid, _ in processes(cookies(conn)) | grandchildren(data):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def states(conn: Conn) -> dict[str, int]:
    return dict(conn.execute("SELECT state, count(*)::integer FROM wakeful.run GROUP BY state").fetchall())


def test_of_twenty_trees_that_resist_none_is_left_and_the_report_agrees_with_the_kernel(
    cli: CommandLine, conn: Conn, database: Database, tmp_path: Path
) -> None:
    for number, kind in enumerate(KINDS):
        command = [sys.executable, "-I", "-S", str(TREE), *kind.split()]
        text = "SELECT wakeful.add_agent('acme', %s, %s, stop_grace => '100 milliseconds')"
        conn.execute(text, (f"tree-{number}", command))
    data = tmp_path / "data"
    with nothing_left(conn, data), running(local.scheduler(database, data)):
        for number in range(TREES):
            conn.execute("SELECT wakeful.request_wake('acme', %s)", (f"tree-{number % len(KINDS)}",))
        wait_until(lambda: len(grandchildren(data)) == TREES, within=40, what="twenty whole trees")
        wait_until(lambda: states(conn) == {"running": TREES}, within=20, what="twenty running runs")
        before = processes(cookies(conn)) | grandchildren(data)
        assert len(before) >= 2 * TREES
        told = cli("panic", "--json", "--wait", "60s", "--reason", "fire").json
        assert processes(cookies(conn)) == set()
        assert {one for one in before if identity(one[0]) == one} == set()
        assert (told["trees"], told["survivors"], told["uncertain"], told["live"]) == (TREES, 0, 0, 0)
        assert told["ended"] == {"contained": TREES}
        assert told["processes"] >= 2 * TREES
        assert told["unanswered"] == []
        assert states(conn) == {"cancelled": TREES}
        # Nothing starts until somebody resumes; then what was saved meanwhile runs.
        conn.execute("SELECT wakeful.request_wake('acme', 'coder')")
        waits = "SELECT wait_reason FROM wakeful.wake WHERE state = 'deferred'"
        wait_until(lambda: conn.execute(waits).fetchone() == ("company.panic",), what="the park")
        assert cli("resume").code == 0
        wait_until(lambda: states(conn).get("succeeded") == 1, within=20, what="the run after the resume")


def test_the_report_says_what_it_cannot_prove(cli: CommandLine, conn: Conn) -> None:
    gone = {"host": "far", "attempt": 1, "claimed_by": "data/gone"}
    for state in ("running", "stopping"):
        queued(conn, state=state, **gone)
    doubted = queued(conn, state="running", **gone)
    conn.execute("UPDATE wakeful.run SET uncertain_at = wakeful.wall() WHERE id = %s", (doubted,))
    done = cli("panic", "acme", "--wait", "0s")
    assert done.code == 1
    assert "trees: 3, gone: none; processes ended: 0; survivors: 2; uncertain: 1" in done.out
    assert "no scheduler answers on host far" in done.out
    assert panics.prove(conn, "acme") == panics.Proof(3, 0, 2, 1, {}, ("far",))
    assert panics.prove(conn, None) == panics.Proof(3, 0, 2, 1, {}, ("far",))


def test_an_admission_beside_an_uncommitted_panic_is_stopped_by_the_next_one(database: Database, conn: Conn) -> None:
    wake = conn.execute("SELECT wake FROM wakeful.request_wake('acme', 'coder')").fetchone()[0]
    panicking = database.connect()
    with panicking.transaction():
        panicking.execute("SELECT wakeful.panic_company('acme')")
        assert admit(conn, wake).runs
        (key,) = start(conn)
    assert panics.live_runs(conn, "acme").running == 1
    assert conn.execute("SELECT outcome FROM wakeful.panic_company('acme')").fetchone() == ("existing",)
    assert row(conn, key.run)["state"] == "stopping"


def test_the_command_goes_on_until_nothing_lives_that_nobody_asked_to_stop(cli: CommandLine, conn: Conn) -> None:
    process = cli.start("panic", "acme", "--json", "--wait", "30s")
    held = queued(conn, state="running", host="far", attempt=1)
    wait_until(
        lambda: conn.execute("SELECT panic_at FROM wakeful.company").fetchone() != (None,), within=20, what="the panic"
    )
    late = queued(conn, state="running", host="far", attempt=1)
    wait_until(
        lambda: row(conn, late)["state"] == "stopping" == row(conn, held)["state"], within=20, what="the stop of both"
    )
    conn.execute("UPDATE wakeful.run SET state = 'cancelled', ended_at = wakeful.now(), evidence = 'contained'")
    out, _ = process.communicate(timeout=40)
    assert process.returncode == 0, out


def test_lifting_a_panic_leaves_a_person_s_pause(conn: Conn, listener: Listener) -> None:
    conn.execute("SELECT wakeful.pause_company('acme', 'audit')")
    conn.execute("SELECT wakeful.panic_company('acme')")
    wake = conn.execute("SELECT wake FROM wakeful.request_wake('acme', 'coder')").fetchone()[0]
    assert parked(admit(conn, wake), wake) == "company.panic"
    listener.heard()
    lifted = conn.execute("SELECT outcome, state FROM wakeful.lift_panic('acme')").fetchone()
    assert lifted == ("merged", "paused")
    assert listener.gates() == [("eligibility", "company", "acme"), ("dispatch", "company", "acme")]
    assert conn.execute("SELECT outcome FROM wakeful.lift_panic('acme')").fetchone() == ("existing",)
    assert listener.gates() == []
    assert parked(admit(conn, wake, signalled=True), wake) == "company.paused"
    assert why(conn, "acme", wake).opens_on == "wakeful resume company acme"
    reason = conn.execute("SELECT state, pause_reason FROM wakeful.company").fetchone()
    assert reason == ("paused", "audit")
