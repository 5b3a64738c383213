"""``wakeful up`` as a process: the whole way from a wake to its output, and its end by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest
from tests.command_line import CommandLine, open_directory
from tests.conditions import wait_until
from tests.unit.test_plugins import Site

from wakeful import postgres_socket
from wakeful.postgres_home import settle
from wakeful.postgres_locks import is_held
from wakeful.testing import Database

Conn = psycopg.Connection[Any]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def until(stream: IO[bytes] | None, words: str) -> str:
    """Read lines until one has the words in it."""
    assert stream is not None
    for line in stream:
        if words in line.decode():
            return line.decode()
    raise AssertionError(f"no line with {words!r}")


def test_a_wake_becomes_a_run_whose_end_is_printed(
    database: Database, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    cli = CommandLine(tmp_path / "data", database.dsn)
    cli("company", "add", "acme")
    cli("agent", "add", "coder", "--run", "sh -c 'echo worked; exit 3'")
    scheduler = cli.start("up", "--slots", "2", "--shutdown-grace", "20s")
    started.append(scheduler)
    made = cli("wake", "coder", "I-1", "--json").json
    line = until(scheduler.stdout, "run.ended")
    assert "state=failed" in line
    wake = cli("why", made["wake"], "--json").json
    assert (wake["standing"], wake["run_state"]) == ("ran", "failed")
    run = cli("why", wake["run"], "--json").json
    assert (run["standing"], run["exit_code"], run["evidence"]) == ("ran", 3, "contained")
    assert cli("logs", wake["run"]).out == "worked\n"
    assert "! no scheduler" not in cli("why", made["wake"]).out
    scheduler.send_signal(signal.SIGTERM)
    assert scheduler.wait(60) == 0


def test_events_as_json(database: Database, tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    cli = CommandLine(tmp_path / "data", database.dsn)
    cli("company", "add", "acme")
    cli("agent", "add", "coder", "--run", "true")
    cli("pause", "agent", "coder")
    scheduler = cli.start("up", "--json")
    started.append(scheduler)
    made = cli("wake", "coder", "--json").json
    event = json.loads(until(scheduler.stdout, "wake.parked"))
    assert (event["company"], event["wake"]) == ("acme", made["wake"])
    told = cli("why", made["wake"], "--json").json
    assert (told["standing"], told["gate"], told["key"]) == ("waiting", "agent", "coder")
    assert told["opens_on"] == "wakeful resume agent coder"
    scheduler.send_signal(signal.SIGINT)
    assert scheduler.wait(60) == 0


def test_without_a_dsn_it_brings_its_own_server(started: list[subprocess.Popen[bytes]]) -> None:
    with open_directory() as place:
        cli = CommandLine(place / "data")
        scheduler = cli.start("up")
        started.append(scheduler)
        until(scheduler.stderr, "listening and owning")
        assert (place / "data/postgres/postmaster.pid").exists()
        assert cli("company", "add", "acme").code == 0
        scheduler.send_signal(signal.SIGTERM)
        until(scheduler.stderr, "stopped")
        assert scheduler.wait(60) == 0
        assert not (place / "data/postgres/postmaster.pid").exists()


def test_a_setting_it_cannot_use_is_one_line(database: Database, tmp_path: Path) -> None:
    done = CommandLine(tmp_path / "data", database.dsn)("up", "--stop-children", "eat")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "stop_children (from flag --stop-children)" in done.err


def test_a_strict_start_refuses_a_broken_plugin(database: Database, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.path.mkdir()
    site.add("bad", "import nothing_of_this_name")
    cli = CommandLine(tmp_path / "data", database.dsn)
    path = os.pathsep.join([str(site.path), cli.environment()["PYTHONPATH"]])
    done = cli("up", "--plugins-strict", "true", PYTHONPATH=path)
    assert done.code == 1
    assert "plugin bad (wakeful-bad 1.2) failed: cannot be imported" in done.err.splitlines()[-1]


def test_a_missing_schema_is_one_line(empty_database: Database, tmp_path: Path) -> None:
    done = CommandLine(tmp_path / "data", empty_database.dsn)("up")
    assert done.code == 3
    assert done.err.splitlines()[-1].endswith("run `wakeful migrate` (exit 3)")
    assert "Traceback" not in done.err


def test_an_embedded_server_that_dies_is_started_again(started: list[subprocess.Popen[bytes]]) -> None:
    """A wake saved before its end runs after it, and nobody had to come and help."""
    with open_directory() as home:
        cli = CommandLine(home / "data")
        cli("company", "add", "acme")
        cli("agent", "add", "coder", "--run", "true")
        scheduler = cli.start("up", "--json")
        started.append(scheduler)
        until(scheduler.stderr, "listening and owning")
        made = cli("wake", "coder", "--at", "+3s", "--json").json
        path = settle(home / "data").cluster / "postmaster.pid"
        os.kill(int(path.read_text(encoding="ascii").split()[0]), signal.SIGKILL)
        event = json.loads(until(scheduler.stdout, "run.ended"))
        assert event["details"]["state"] == "succeeded"
        assert cli("why", made["wake"], "--json").json["run"] == event["run"]
        scheduler.send_signal(signal.SIGTERM)
        assert scheduler.wait(60) == 0
        assert not is_held(home / "data/postgres.running")


def test_a_frozen_embedded_server_delays_the_end_little(started: list[subprocess.Popen[bytes]]) -> None:
    with open_directory() as home:
        scheduler = CommandLine(home / "data").start("up", "--shutdown-grace", "2s")
        started.append(scheduler)
        until(scheduler.stderr, "listening and owning")
        process = postgres_socket.postmaster(settle(home / "data"))
        assert process is not None
        signal.pidfd_send_signal(process, signal.SIGSTOP)
        try:
            scheduler.send_signal(signal.SIGTERM)
            assert scheduler.wait(15) == 3
        finally:
            signal.pidfd_send_signal(process, signal.SIGCONT)
            os.close(process)
        # What it was asked to do it does when it can.
        wait_until(lambda: not is_held(home / "data/postgres.running"), within=30, what="the server's end")


def test_a_terminal_that_closes_ends_it_in_order(
    database: Database, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    scheduler = CommandLine(tmp_path / "data", database.dsn).start("up")
    started.append(scheduler)
    until(scheduler.stderr, "listening and owning")
    scheduler.send_signal(signal.SIGHUP)
    assert scheduler.wait(60) == 0
