"""Whatever goes wrong: one line with cause and remedy, the right exit code, no secret, no trace unless asked for."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.command_line import CommandLine, Done, open_directory
from tests.unit.test_plugins import Site

from wakeful.cli.failures import described
from wakeful.postgres import EmbeddedServer
from wakeful.testing import Database

SECRET = "s3kr1t-never-shown"


@pytest.fixture
def cli(database: Database, company: str, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "data", database.dsn)


def is_one_line(done: Done, code: int, *words: str) -> None:
    assert done.code == code, done.err
    lines = done.err.splitlines()
    assert len(lines) == 1, done.err
    assert lines[0].startswith("wakeful: ")
    assert lines[0].endswith(f"(exit {code})")
    for word in words:
        assert word in lines[0]
    assert "Traceback" not in done.out + done.err
    assert SECRET not in done.out + done.err


@pytest.mark.parametrize(
    ("words", "code", "cause"),
    [
        (("why", "0199aaaa-0000-7000-8000-000000000001"), 1, "there is no wake or run"),
        (("why", "nonsense"), 2, "'nonsense' is not the id of a wake or a run"),
        (("retry", "0199aaaa"), 1, "there is no run '0199aaaa'"),
        (("logs", "0199aaaa"), 1, "there is no run"),
        (("wake", "nobody"), 1, "agent 'nobody' does not exist"),
        (("wake", "coder", "--payload", "{"), 2, "this is not JSON"),
        (("wake", "coder", "--payload", "NaN"), 2, "NaN is no JSON number"),
        (("wake", "coder", "--payload", '"\\u0000"'), 2, "NUL"),
        (("wake", "coder", "--payload", "@/no/such/file"), 2, "cannot be read: No such file"),
        (("wake", "coder", "--payload", "@/dev/zero"), 2, "more than 1048576 bytes"),
        (("wake", "coder", "--payload", f'"{"ä" * 33000}"'), 2, "66002 bytes; the limit is 65536 bytes"),
        (("wake", "coder", "--at", "tomorrow"), 2, "'tomorrow' is no time"),
        (("wake", "coder", "--at", "1900-01-01T00:00:00+00:00"), 2, "years 2000 to 2100"),
        (("wake", "coder", "--at", "+400d"), 2, "'400d' is not between"),
        (("wake", "coder", "--text", "x", "--payload", "[]"), 2, "--text goes into a payload that is an object"),
        (("wakes", "--state", "sleeping"), 2, "'sleeping' is no state of wakes"),
        (("wakes", "--after", "nonsense"), 2, "cursor"),
        (("runs", "--limit", "0"), 2, "1 to 1000"),
        (("agent", "add", "a", "--run", "sh -c 'unclosed"), 2, "cannot be split"),
        (("agent", "add", "a", "--run", "x", "--env", f"1={SECRET}"), 2, "NAME=VALUE"),
        (("agent", "show", "nobody"), 1, "agent 'nobody' does not exist"),
        (("company", "show", "nobody"), 1, "company 'nobody' does not exist"),
        (("wakes", "--company", "nobody"), 1, "company 'nobody' does not exist"),
        (("budget", "set", "planet:earth", "5"), 2, "no budget scope"),
        (("budget", "set", "company", "1e3"), 2, "'1e3' is no amount"),
        (("budget", "raise", "company"), 2, "to how much"),
        (("settings", "set", "gravity", "false"), 2, "no setting 'gravity'"),
        (("settings", "set", "draining", "1"), 2, "true or false"),
        (("resume", "agent"), 2, "with its id"),
        (("resume", "nobody"), 1, "does not exist"),
        (("pause", "planet", "x"), 2, "planet"),
        (("wakes", "--as", "me", "--json", "--what"), 2, "--what"),
        (("wake", "coder", "--as", "me"), 2, "'me' is not user:ID"),
        (("rnus",), 2, "did you mean `wakeful runs`?"),
        (("issue", "status", "I-1"), 2, "Missing argument 'STATUS'; see: wakeful issue status --help"),
        (("--dsn", f"host=h password={SECRET} nonsense=1", "wakes"), 2, "connection string"),
        (("--config", "/no/such.toml", "wakes"), 2, "/no/such.toml"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    cli: CommandLine, words: tuple[str, ...], code: int, cause: str
) -> None:
    done = cli(*words)
    if "--json" in words:
        told = json.loads(done.err)
        assert set(told) == {"error", "code", "message", "hint"}
        assert (done.code, told["code"]) == (code, code)
        assert cause in told["message"]
        return
    is_one_line(done, code, cause)


def test_a_noun_alone_shows_its_commands_line_by_line(cli: CommandLine) -> None:
    done = cli("comment")
    assert (done.code, done.out) == (2, "")
    assert "\n  edit     Edit a comment.\n" in done.err
    told = json.loads(cli("--json", "comment").err)
    assert (told["code"], told["hint"]) == (2, "see: wakeful comment --help")


def test_help_shows_which_arguments_may_be_left_out(cli: CommandLine) -> None:
    assert cli("wake", "--help").out.startswith("Usage: wakeful wake [OPTIONS] AGENT [ISSUE]\n")
    assert "resume [OPTIONS] [COMPANY | company|project|agent ID]\n" in cli("resume", "--help").out


def test_what_another_user_owns_has_its_remedy() -> None:
    told = described(PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/srv/wakeful/coord"))
    assert (told.message, told.hint) == ("Permission denied: /srv/wakeful/coord", "run it as the user whose it is")


def test_a_conflict_has_its_own_code(cli: CommandLine, conn: psycopg.Connection[Any], company: str) -> None:
    row = conn.execute("SELECT wake FROM wakeful.request_wake(%s, 'coder')", (company,)).fetchone()
    assert row is not None
    is_one_line(cli("rearm", str(row[0])), 4, "is still pending")


def test_a_wrong_port(cli: CommandLine) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, so nobody else's, and not listening
        dsn = f"postgresql://ann:{SECRET}@127.0.0.1:{taken.getsockname()[1]}/wakeful"
        done = cli("wakes", WAKEFUL_DSN=dsn)
        is_one_line(done, 3, "nobody listens there")
        assert "ann" not in done.err
        traced = cli("--debug", "wakes", WAKEFUL_DSN=dsn)
        assert "Traceback" in traced.err
        assert SECRET not in traced.err
        told = cli("wakes", "--json", WAKEFUL_DSN=dsn)
        assert json.loads(told.err)["error"] == "no_database"


def test_a_database_that_is_not_there(cli: CommandLine, database: Database) -> None:
    is_one_line(cli("wakes", WAKEFUL_DSN=make_conninfo(database.dsn, dbname="nowhere")), 3, "no such database")


def test_a_missing_schema(cli: CommandLine, empty_database: Database) -> None:
    done = cli("wakes", WAKEFUL_DSN=empty_database.dsn)
    is_one_line(done, 3, "no wakeful schema; run: wakeful migrate")
    assert json.loads(cli("wakes", "--json", WAKEFUL_DSN=empty_database.dsn).err)["error"] == "schema"


def test_a_login_without_rights(cli: CommandLine, database: Database) -> None:
    parts = conninfo_to_dict(database.dsn)
    options = f"{parts.get('options') or ''} -c role=wakeful_host".strip()
    done = cli("wakes", WAKEFUL_DSN=make_conninfo(database.dsn, options=options))
    is_one_line(done, 3, "may not do that")
    assert "migration" not in done.err  # no table's name


@pytest.fixture
def locked() -> Iterator[str]:
    """The DSN of a server that wants a password of ``ann``, whose is another one."""
    with open_directory() as place, EmbeddedServer(place / "data") as server:
        with psycopg.connect(server.admin_dsn, autocommit=True) as admin:
            admin.execute("CREATE ROLE ann LOGIN PASSWORD 'right'")
            row = admin.execute("SHOW hba_file").fetchone()
            assert row is not None
            rules = Path(row[0])
            rules.write_text("local all ann scram-sha-256\n" + rules.read_text())
            admin.execute("SELECT pg_reload_conf()")
        parts = conninfo_to_dict(server.dsn)
        yield make_conninfo("", host=parts["host"], port=parts["port"], dbname="wakeful", user="ann", password=SECRET)


def test_a_wrong_password(tmp_path: Path, locked: str) -> None:
    cli = CommandLine(tmp_path / "data", locked)
    for words in (("wakes",), ("migrate",), ("company", "add", "acme"), ("up",)):
        done = cli(*words)
        assert done.code == 3
        assert "refuses this login or its password" in done.err
        assert SECRET not in done.out + done.err
        assert '"ann"' not in done.err
    is_one_line(cli("wakes"), 3)
    done = cli("doctor")
    assert done.code == 1
    assert "refuses this login or its password" in done.out
    assert SECRET not in done.out + done.err


def test_secrets_are_hidden_in_the_configuration(cli: CommandLine) -> None:
    dsn = f"postgresql://ann:{SECRET}@db.example.com/wakeful?sslpassword={SECRET}"
    for words in (("config",), ("config", "--json")):
        done = cli(*words, WAKEFUL_DSN=dsn, WAKEFUL_LISTEN_DSN=dsn)
        assert done.code == 0
        assert "db.example.com" in done.out
        assert SECRET not in done.out + done.err


# ── output that cannot be written ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", [("wakes",), ("config",), ("wakes", "--json"), ("--help",), ("migrate", "--print")])
def test_a_reader_that_has_gone_is_no_failure(cli: CommandLine, words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = cli.start(*words, stdout=writing)
    finally:
        os.close(writing)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said == b""


def test_a_plugin_that_prints_to_nobody_is_no_failure(cli: CommandLine, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.path.mkdir()
    site.add(
        "talk",
        """
        import click, wakeful

        @wakeful.hookimpl
        def register_commands(root):
            root.add_command(click.Command("talk", callback=lambda: print("kept in a buffer until the end")))
        """,
    )
    path = os.pathsep.join([str(site.path), cli.environment()["PYTHONPATH"]])
    reading, writing = os.pipe()
    os.close(reading)
    try:
        process = CommandLine(cli.data, cli.dsn, {"PYTHONPATH": path}).start("talk", stdout=writing)
    finally:
        os.close(writing)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")


def test_a_reader_that_leaves_in_the_middle(cli: CommandLine, conn: psycopg.Connection[Any], company: str) -> None:
    conn.execute("SELECT wakeful.request_wake(%s, 'coder') FROM generate_series(1, 1000)", (company,))
    process = cli.start("wakes", "--limit", "1000")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"wake ")
    process.stdout.close()  # a pipe holds 64 KiB, and there is more
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 0
    assert said == b""


def test_a_full_disk_is_said(cli: CommandLine) -> None:
    with open("/dev/full", "wb") as full:
        process = cli.start("config", stdout=full)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.decode().splitlines() == ["wakeful: the output cannot be written: No space left on device (exit 1)"]


def test_words_that_are_not_utf8(cli: CommandLine) -> None:
    done = subprocess.run(
        [*map(os.fsencode, cli.words("issue", "create")), b"\xff"],
        env=cli.environment(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert b"is not UTF-8" in done.stderr


def test_a_narrow_terminal_gets_escapes(cli: CommandLine) -> None:
    cli("issue", "create", "I-1", "--title", "Größe € \x1b[2J")
    done = cli("issue", "show", "I-1", PYTHONIOENCODING="latin-1")
    assert done.code == 0
    assert "\\u20ac \\x1b[2J" in done.out
    assert "\x1b" not in cli("issue", "list").out


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "12000-01-01", "0044-03-15 BC"])
def test_a_time_that_python_cannot_hold_spoils_no_list(database: Database, tmp_path: Path, moment: str) -> None:
    cli = CommandLine(tmp_path / "data", database.dsn)
    cli("company", "add", "acme")
    cli("agent", "add", "coder", "--run", "true")
    made = cli("wake", "coder", "--json").json
    database.connect().execute("UPDATE wakeful.wake SET created_at = %s", (moment,))
    for words in (["wakes"], ["wakes", "--json"], ["why", made["wake"]], ["company", "list"]):
        done = cli(*words)
        assert done.code == 0, done.err
    assert cli("wakes", "--json").json["rows"][0]["id"] == made["wake"]
