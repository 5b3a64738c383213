"""``wakeful cron`` as a person types it."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import CommandLine, until

from wakeful import retire_wake, run
from wakeful.testing import Database


@pytest.fixture
def wakeful(database: Database, tmp_path: Path) -> CommandLine:
    made = CommandLine(database.dsn, tmp_path)
    made("company", "add", "acme")
    made("agent", "add", "writer", "--run", "true")
    return made


def test_a_schedule_is_added_listed_and_stopped(wakeful: CommandLine) -> None:
    words = ["--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--payload", '{"a": 1}', "--key", "nightly"]
    made = wakeful.json(
        "cron", "add", "writer", "I-1", *words, "--catch-up", "all-capped", "--cap", "3", "--priority", "7"
    )
    assert (made["outcome"], made["state"], len(made["ticks"])) == ("inserted", "deferred", 3)
    first = datetime.fromisoformat(made["ticks"][0])
    assert timedelta() < first - datetime.now(UTC) <= timedelta(days=1, hours=2)

    again = wakeful.json("cron", "add", "writer", "I-1", *words)
    assert (again["outcome"], again["wake"]) == ("existing", made["wake"])
    assert f"has a wake already: {made['wake']}, deferred" in wakeful("cron", "add", "writer", "I-1", *words)

    (row,) = wakeful.json("cron", "list")["rows"]
    assert row == {
        "wake": made["wake"],
        "agent": "writer",
        "issue": "I-1",
        "key": "nightly",
        "cron": "30 2 * * *",
        "zone": "Europe/Berlin",
        "tick": made["ticks"][0],
        "catch_up": "all-capped",
        "waits_for": None,
    }
    assert "30 2 * * *  Europe/Berlin" in wakeful("cron", "list")
    (saved,) = wakeful.json("wakes")["rows"]
    assert (saved["kind"], saved["source"], saved["priority"]) == ("cron", "timer", 7)

    stopped = wakeful.json("cron", "stop", made["wake"][-6:], "--reason", "moved house")
    assert stopped == {"company": "acme", "outcome": "merged", "wake": made["wake"], "state": "cancelled"}
    assert wakeful.json("cron", "list")["rows"] == []
    told = wakeful.json("why", made["wake"])
    assert told["reason"] == "wake.taken_back"
    assert "moved house" in json.dumps(told)


def test_a_person_is_shown_the_next_ticks(wakeful: CommandLine) -> None:
    said = wakeful("cron", "add", "writer", "--cron", "0 0 1 1 *")
    saved, ticks = said.splitlines()
    year = datetime.now(UTC).year + 1
    assert saved.startswith("saved, wake ")
    assert ticks == "next: " + ", ".join(f"{year + n}-01-01T00:00:00+00:00" for n in range(3)) + ", …"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cron", "* * * *"], "has 4 fields, not 5; minute, hour, day of month"),
        (["--cron", "0 25 * * *"], "'0 25 * * *' is no cron expression: bad hour"),
        (["--cron", "0 0 */31 * MON#2"], "never fires"),
        (["--cron", "* * * * *", "--zone", "Europe/Atlantis"], "there is no time zone 'Europe/Atlantis'"),
        (["--cron", "* * * * *", "--catch-up", "all"], "'all' is not one of 'skip', 'once', 'all-capped'"),
        (["--cron", "* * * * *", "--cap", "0"], "0 is not in the range 1<=x<=1000"),
        ([], "Missing option '--cron'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(wakeful: CommandLine, words: list[str], said: str) -> None:
    done = wakeful.run("cron", "add", "writer", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert wakeful.json("wakes")["rows"] == []


@pytest.mark.parametrize(
    ("wake", "code", "said"),
    [
        ("12345", 2, "too short"),
        ("123456", 1, "no schedule waits as wake '123456'"),
    ],
)
def test_only_a_schedule_is_stopped(wakeful: CommandLine, wake: str, code: int, said: str) -> None:
    other = wakeful.json("wake", "writer", "--at", "+1h")["wake"]
    for words in (wake, other) if code == 1 else (wake,):
        done = wakeful.run("cron", "stop", words)
        assert done.returncode == code
        assert said.replace(wake, words) in done.stderr
    assert wakeful.json("why", other)["standing"] == "sleeping"


def test_a_tick_that_comes_first_goes_on(wakeful: CommandLine, database: Database) -> None:
    made = wakeful.json("cron", "add", "writer", "--cron", "0 0 1 1 *")
    other, watch = database.connect(), database.connect()
    process = None
    try:
        with other.transaction():
            run(other, retire_wake("acme", made["wake"]))
            process = subprocess.Popen(
                wakeful.words("cron", "stop", made["wake"]),
                env=wakeful.environment(),
                stderr=subprocess.PIPE,
                text=True,
            )
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            until(lambda: watch.execute(waiting).fetchone() != (0,), "the command behind the other's lock")
        _, said = process.communicate(timeout=60)
    finally:
        if process is not None:
            process.kill()
            process.wait()
    assert process.returncode == 4
    assert "its tick has come meanwhile" in said


def test_an_unknown_agent_is_said(wakeful: CommandLine) -> None:
    done = wakeful.run("cron", "add", "nobody", "--cron", "* * * * *")
    assert done.returncode == 1
    assert "nobody" in done.stderr
