"""``wakeful logs`` on what real children printed, and where only the database knows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.conditions import wait_until

from wakeful.executions import Ended, RunKey, RunSpec
from wakeful.testing import Database
from wakeful_plugins.local_executor import LocalExecutor

Conn = psycopg.Connection[Any]
Starter = Callable[..., RunKey]

# Prints a line, then one more for each line read from the FIFO; ends when nobody writes to it any more.
ECHO = """
import sys
print("first", flush=True)
for line in open(sys.argv[1]):
    print(line.strip(), flush=True)
"""


@pytest.fixture
def cli(database: Database, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "data", database.dsn, {"WAKEFUL_HOST": "here"})


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def begin(executor: LocalExecutor, conn: Conn, company: str) -> Starter:
    """Start a real child under a run of the database."""

    def start(*command: str, **columns: Any) -> RunKey:
        row = conn.execute(
            "INSERT INTO wakeful.run (company, agent, state, host, attempt) VALUES (%s, 'coder', 'running', 'here', 1)"
            " RETURNING id",
            (company,),
        ).fetchone()
        assert row is not None
        key = RunKey(company, row[0], 1)
        executor.submit(RunSpec(command=command, input={}, agent="coder"), key)
        return key

    return start


def ended(executor: LocalExecutor, key: RunKey) -> bool:
    return isinstance(executor.poll([key])[0], Ended)


def test_bytes_come_as_they_were_printed(cli: CommandLine, executor: LocalExecutor, begin: Starter) -> None:
    key = begin(sys.executable, "-c", "import os; os.write(1, b'a\\xff\\n\\x1b[1m'); os.write(2, b'oh\\n')")
    wait_until(lambda: ended(executor, key), what="the child's end")
    run = str(key.run)
    assert cli("logs", run).out.encode(errors="surrogateescape") == b"a\xff\n\x1b[1m"
    assert cli("logs", run, "--stream", "stderr").out == "oh\n"
    assert cli("logs", run[:13], "--from", "3").out == "\x1b[1m"
    assert cli("logs", run, "--from", "99").out == ""
    assert cli("logs", run, "--follow").out.endswith("\x1b[1m")
    piece = cli("logs", run, "--json").json
    assert (piece["offset"], piece["next"], piece["text"]) == (0, 7, "a\ufffd\n\x1b[1m")


def test_follow_sees_each_line_and_ends_with_the_run(
    cli: CommandLine, executor: LocalExecutor, begin: Starter, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    key = begin(sys.executable, "-c", ECHO, str(tmp_path / "fifo"))
    process = cli.start("logs", str(key.run), "--follow", "--from", "6")
    assert process.stdout is not None
    with open(tmp_path / "fifo", "w") as words:
        for word in ("second", "third"):
            words.write(f"{word}\n")
            words.flush()
            assert process.stdout.readline() == f"{word}\n".encode()
        assert process.poll() is None
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out, said) == (0, b"", b"")


def test_follow_goes_on_with_the_next_generation(
    cli: CommandLine, executor: LocalExecutor, begin: Starter, conn: Conn, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    key = begin(sys.executable, "-c", ECHO, str(tmp_path / "fifo"))
    process = cli.start("logs", str(key.run), "--follow", "--from", "1")
    assert process.stdout is not None
    assert process.stdout.readline() == b"irst\n"
    conn.execute("UPDATE wakeful.run SET state = 'queued', generation = 2, host = NULL")
    conn.execute("UPDATE wakeful.run SET state = 'starting', host = 'here'")
    again = RunKey(key.company, key.run, 2)
    executor.submit(RunSpec(command=("echo", "anew"), input={}, agent="coder"), again)
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"anew\n")  # from its beginning: the offset was the first one's
    assert b"goes on as generation 2" in said
    open(tmp_path / "fifo", "w").close()
    wait_until(lambda: ended(executor, key), what="the first child's end")


def test_follow_waits_for_a_run_that_has_not_started(
    cli: CommandLine, executor: LocalExecutor, conn: Conn, company: str
) -> None:
    row = conn.execute(
        "INSERT INTO wakeful.run (company, agent) VALUES (%s, 'coder') RETURNING id", (company,)
    ).fetchone()
    assert row is not None
    told = cli("logs", str(row[0]))
    assert (told.code, told.out) == (0, "")
    assert "is queued and has printed nothing" in told.err
    process = cli.start("logs", str(row[0]), "--follow")
    wait_until(
        lambda: (
            conn.execute("SELECT FROM pg_stat_activity WHERE application_name = 'wakeful cli'").fetchone() is not None
        ),
        what="the follower",
    )
    conn.execute("UPDATE wakeful.run SET state = 'starting', host = 'here', attempt = 1")
    executor.submit(RunSpec(command=("echo", "hello"), input={}, agent="coder"), RunKey(company, row[0], 1))
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out, said) == (0, b"hello\n", b"")


def test_elsewhere_the_saved_tail_is_shown(cli: CommandLine, conn: Conn, company: str) -> None:
    row = conn.execute(
        "INSERT INTO wakeful.run (company, agent, state, host, attempt, ended_at, stdout_bytes, stdout_tail,"
        " stdout_altered) VALUES (%s, 'coder', 'succeeded', 'far-away', 1, %s, 9000, 'the end', true) RETURNING id",
        (company, datetime.now(UTC)),
    ).fetchone()
    assert row is not None
    done = cli("logs", str(row[0]), "--follow")
    assert (done.code, done.out) == (0, "the end")
    assert done.err == "wakeful: these are the last 7 of 9000 bytes; the files are on host far-away\n"
    told = cli("logs", str(row[0]), "--json").json
    assert (told["source"], told["host"], told["altered"], told["text"]) == ("tail", "far-away", True, "the end")
    conn.execute(
        "INSERT INTO wakeful.run (company, agent, state, host, attempt) VALUES (%s, 'coder', 'running', 'far-away', 1)",
        (company,),
    )
    live = conn.execute("SELECT id FROM wakeful.run WHERE state = 'running'").fetchone()
    assert live is not None
    done = cli("logs", str(live[0]), "--follow")
    assert (done.code, done.out) == (0, "")
    assert "is running; its output is on host far-away" in done.err
