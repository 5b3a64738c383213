"""The commands, as processes, against a real database."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.command_line import CommandLine, open_directory
from tests.conditions import wait_until
from tests.unit.test_plugins import Site

from wakeful.cli.settings import KNOWN
from wakeful.testing import Database

Conn = psycopg.Connection[Any]


def one(conn: Conn, query: str, *values: Any) -> Any:
    row = conn.execute(query, values).fetchone()  # type: ignore[arg-type]  # a test's own words
    assert row is not None
    return row[0] if len(row) == 1 else row


# ── help ────────────────────────────────────────────────────────────────────────────────────────────────


def test_help_opens_with_the_daily_verbs(cli: CommandLine) -> None:
    done = cli("--help")
    assert done.code == 0
    listed = re.findall(r"^  ([a-z]+)  +[A-Z]", done.out, re.M)
    verbs = ["up", "demo", "wake", "why", "runs", "logs", "panic"]
    assert listed[: len(verbs)] == verbs
    assert done.out.index("Commands:") < done.out.index("  panic") < done.out.index("More:") < done.out.index("  wakes")
    assert cli().out == done.out


def test_help_imports_no_plugin_and_no_driver(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.path.mkdir()
    site.add("marker", f"import pathlib; pathlib.Path({str(tmp_path / 'imported')!r}).touch()")
    program = (
        "import sys; from wakeful.cli.main import main; code = main(sys.argv[1:]);"
        "sys.exit(code or ','.join({'psycopg', 'rich', 'structlog'} & sys.modules.keys()) or None)"
    )
    cli = CommandLine(tmp_path / "data")
    path = os.pathsep.join([str(site.path), cli.environment()["PYTHONPATH"]])
    for words in (["--help"], ["wake", "--help"], ["company", "add", "--help"], ["config"], ["--version"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            env=cli.environment(PYTHONPATH=path),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=tmp_path,
        )
        assert (done.returncode, done.stderr) == (0, ""), words
    assert not (tmp_path / "imported").exists()


def test_a_plugins_command_is_found_when_it_is_asked_for(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.path.mkdir()
    site.add(
        "extra",
        """
        import click, wakeful

        @wakeful.hookimpl
        def register_commands(root):
            @root.command("greet")
            @click.argument("name")
            def greet(name):
                click.echo(f"hello {name}")
        """,
    )
    site.add("bad", "raise SystemExit(5)")
    cli = CommandLine(tmp_path / "data")
    path = os.pathsep.join([str(site.path), cli.environment()["PYTHONPATH"]])
    done = cli("greet", "ann", PYTHONPATH=path)
    assert (done.code, done.out) == (0, "hello ann\n")
    assert done.err.splitlines() == ["wakeful: plugin bad (wakeful-bad 1.2) failed: cannot be imported: SystemExit: 5"]
    assert cli("greet", "ann", PYTHONPATH=path, WAKEFUL_PLUGINS_STRICT="true").code == 1
    listed = cli("plugins", "--json", PYTHONPATH=path)
    assert listed.code == 1
    states = {row["name"]: (row["distribution"], row["state"]) for row in json.loads(listed.out)["rows"]}
    assert states["extra"] == ("wakeful-extra", "active")
    assert states["bad"] == ("wakeful-bad", "failed")


# ── records ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_company_with_everything_in_it(cli: CommandLine, conn: Conn) -> None:
    who = ("--as", "user:ann")
    assert cli("company", "add", "acme", "--name", "Acme", "--json", *who).json["outcome"] == "inserted"
    assert cli("company", "add", "acme", "--json").json["outcome"] == "existing"
    assert cli("project", "add", "alpha").out == "project alpha: inserted\n"
    contract = (
        "--env",
        "MODE=test=1",
        "--max-runtime",
        "2h",
        "--max-attempts",
        "2",
        "--estimate",
        "1.50",
        "--label",
        "gpu",
    )
    assert cli("agent", "add", "coder", "--run", "sh -c 'echo hi'", *contract).out == "agent coder: inserted, active\n"
    agent = cli("agent", "show", "coder", "--json").json
    assert (agent["command"], agent["max_runtime"], agent["max_attempts"]) == (["sh", "-c", "echo hi"], 7200.0, 2)
    assert (agent["estimate"], agent["labels"], agent["env_values"]) == ("1.500000", ["gpu"], ["MODE"])
    assert one(conn, "SELECT env_values FROM wakeful.agent") == {"MODE": "test=1"}
    assert "test=1" not in cli("agent", "show", "coder").out
    read = ("--session-policy", '{"rotate_runs": 9}', "--reader", '{"kind": "json_lines"}')
    assert cli("agent", "add", "reader", "--run", "true", *read).out == "agent reader: inserted, active\n"
    agent = cli("agent", "show", "reader", "--json").json
    assert (agent["session_policy"], agent["reader"]) == ({"rotate_runs": 9}, {"kind": "json_lines"})
    assert cli("agent", "add", "reader", "--run", "true", "--session-policy", '{"rotate": 9}').code == 2
    assert cli("issue", "create", "I-1", "--title", "One", "--project", "alpha").out == "issue I-1: inserted\n"
    made = cli("issue", "create", "I-2", "--parent", "I-1", "--assign", "agent:coder", "--json").json
    assert made["wake"]
    assert cli("issue", "assign", "I-2", "--nobody", "--json").json["outcome"] == "merged"
    assert cli("issue", "status", "I-2", "done").out == "issue I-2: done\n"
    shown = cli("issue", "show", "I-2", "--json").json
    assert (shown["state"], shown["parent"], shown["assignee"]) == ("done", "I-1", None)
    assert [wake["id"] for wake in shown["pending_wakes"]] == [made["wake"]]
    assert [row["id"] for row in cli("issue", "list", "--state", "done", "--json").json["rows"]] == ["I-2"]
    assert cli("budget", "set", "project:alpha", "10", "--period", "lifetime").code == 0
    assert cli("spend", "add", "12.5", "--project", "alpha", "--key", "k").out == "spend of 12.5: inserted\n"
    assert cli("spend", "add", "12.5", "--project", "alpha", "--key", "k").out == "spend of 12.5: existing\n"
    budget = cli("budget", "list", "--json").json["rows"][0]
    assert (budget["amount"], budget["spent"]) == ("10.000000", "12.500000")
    assert cli("project", "show", "alpha", "--json").json["pause_reason"] == "budget"
    assert cli("budget", "raise", "project:alpha", "--by", "5").code == 0
    assert cli("project", "show", "alpha", "--json").json["state"] == "active"
    assert len(cli("spend", "list", "--json").json["rows"]) == 1
    assert one(conn, "SELECT actor FROM wakeful.audit ORDER BY id LIMIT 1") == "user:ann"
    for noun in ("company", "project", "agent", "issue", "budget", "spend", "host"):
        assert cli(noun, "list").code == 0


def test_which_company_is_meant(cli: CommandLine, conn: Conn) -> None:
    assert "there is no company yet" in cli("wakes").err
    cli("company", "add", "acme")
    assert cli("wakes").code == 0
    cli("company", "add", "bolt")
    done = cli("wakes")
    assert (done.code, done.err) == (
        2,
        "wakeful: there are several companies; name one: --company ID, or set WAKEFUL_COMPANY (exit 2)\n",
    )
    assert cli("wakes", "--company", "bolt").code == 0
    assert cli("--company", "bolt", "wakes").code == 0
    assert cli("project", "add", "p", WAKEFUL_COMPANY="bolt", WAKEFUL_NOUNS="").code == 0
    assert one(conn, "SELECT company FROM wakeful.project") == "bolt"
    assert len(cli("company", "list", "--json").json["rows"]) == 2
    cli("settings", "set", "create_companies", "true")
    assert cli("project", "add", "p", "--company", "new").code == 0
    assert one(conn, "SELECT count(*) FROM wakeful.company") == 3


def test_what_people_read_can_be_renamed(cli: CommandLine, company: str, tmp_path: Path) -> None:
    (tmp_path / "wakeful.toml").write_text('[nouns]\nissue = "ticket"\nwake = "call"\n')
    assert cli("issue", "create", "I-1").out == "ticket I-1: inserted\n"
    assert cli("wakes").out.split() == ["call", "kind", "is", "agent", "ticket", "because", "created"]
    row = cli("wake", "coder", "I-1", "--json").json
    assert "issue" in row
    assert cli("why", row["wake"]).out.startswith("call ")


# ── wakes ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_wake_is_saved_explained_taken_back_and_saved_again(cli: CommandLine, company: str, conn: Conn) -> None:
    made = cli("wake", "coder", "I-1", "--text", "go", "--payload", '{"n": 1}', "--key", "k", "--json").json
    assert (made["outcome"], made["company"]) == ("inserted", company)
    assert one(conn, "SELECT payload FROM wakeful.wake") == {"n": 1, "text": "go"}
    again = cli("wake", "coder", "I-1", "--key", "k", "--json").json
    assert (again["outcome"], again["wake"]) == ("existing", made["wake"])
    why = cli("why", made["wake"][:13], "--json").json
    assert (why["id"], why["standing"], why["state"]) == (made["wake"], "due", "deferred")
    told = cli("why", made["wake"]).out
    assert told.startswith(f"wake {made['wake']} is due: ")
    assert "! no scheduler is at work on this database" in told
    assert cli("retire", made["wake"], "--reason", "not now").out == f"wake {made['wake']} taken back\n"
    assert "had ended already, cancelled" in cli("retire", made["wake"]).out
    assert "will not run: not now" in cli("why", made["wake"]).out
    assert "will not run" in cli("wakes", "--state", "will-not-run").out
    rearmed = cli("rearm", made["wake"], "--json").json
    assert cli("why", made["wake"], "--json").json["successor"] == rearmed["wake"]
    assert cli("rearm", made["wake"], "--json").json["outcome"] == "existing"


def test_times_are_absolute_relative_or_local(cli: CommandLine, company: str, conn: Conn) -> None:
    due = "SELECT due_at FROM wakeful.wake WHERE id = %s"
    exact = cli("wake", "coder", "--at", "2031-05-06T07:08:09.123456+02:00", "--json").json
    assert one(conn, due, exact["wake"]) == datetime(2031, 5, 6, 5, 8, 9, 123456, UTC)
    before = one(conn, "SELECT wakeful.now()")
    later = cli("wake", "coder", "--at", "+5m", "--json").json
    assert timedelta() <= one(conn, due, later["wake"]) - before - timedelta(minutes=5) < timedelta(minutes=1)
    naive = cli("wake", "coder", "--at", "2031-05-06 07:08", "--json", TZ="Asia/Kolkata")
    assert one(conn, due, naive.json["wake"]) == datetime(2031, 5, 6, 1, 38, tzinfo=UTC)
    assert naive.err == "wakeful: 2031-05-06 07:08 is taken as local time: 2031-05-06 07:08:00+05:30\n"
    listed = cli("wakes", "--json").json["rows"]
    assert listed[-1]["due_at"] == "2031-05-06T05:08:09.123456+00:00"
    assert "2031-05-06 10:38:09+05:30" in cli("wakes", TZ="Asia/Kolkata").out


def test_a_payload_may_come_from_a_file(cli: CommandLine, company: str, conn: Conn, tmp_path: Path) -> None:
    (tmp_path / "input.json").write_text('["from a file"]')
    cli("wake", "coder", "--payload", "@input.json")
    cli("wake", "coder", "--payload", "@-", stdin='["from stdin"]')
    found = conn.execute("SELECT payload FROM wakeful.wake ORDER BY id").fetchall()
    assert found == [(["from a file"],), (["from stdin"],)]


def test_pages_go_on_where_the_last_one_ended(cli: CommandLine, company: str, conn: Conn) -> None:
    conn.execute("SELECT wakeful.request_wake(%s, 'coder') FROM generate_series(1, 15)", (company,))
    seen: list[str] = []
    more: tuple[str, ...] = ()
    while True:
        page = cli("wakes", "--limit", "6", "--json", *more).json
        seen += [row["id"] for row in page["rows"]]
        if page["after"] is None:
            break
        more = ("--after", page["after"])
    assert len(seen) == len(set(seen)) == 15
    done = cli("wakes", "--limit", "6")
    assert len(done.out.splitlines()) == 7
    assert done.err.startswith("more: --after ")


# ── runs, pauses, panic ─────────────────────────────────────────────────────────────────────────────────


def add_run(conn: Conn, company: str, state: str, **columns: Any) -> str:
    columns = {"company": company, "agent": "coder", "state": state, **columns}
    names, values = ", ".join(columns), ", ".join(f"%({name})s" for name in columns)
    row = conn.execute(f"INSERT INTO wakeful.run ({names}) VALUES ({values}) RETURNING id", columns).fetchone()  # noqa: S608 - a test's own words
    assert row is not None
    return str(row[0])


def test_runs_are_listed_shown_stopped_and_retried(cli: CommandLine, company: str, conn: Conn) -> None:
    failed = add_run(
        conn, company, "failed", attempt=1, ended_at=datetime.now(UTC), exit_code=3, end_class="failed", result="{}"
    )
    queued = add_run(conn, company, "queued")
    assert [row["id"] for row in cli("runs", "--json").json["rows"]] == [queued, failed]
    assert [row["id"] for row in cli("run", "list", "--state", "ended", "--json").json["rows"]] == [failed]
    assert "exit code 3" in cli("runs").out
    assert cli("run", "show", failed, "--json").json["result"] == {}
    assert cli("run", "stop", queued, "--reason", "wrong").out == f"run {queued} is cancelled\n"
    retried = cli("retry", failed, "--payload", '{"answer": 42}', "--key", "click", "--json").json
    assert (retried["outcome"], retried["retry_of"]) == ("inserted", failed)
    second = cli("retry", failed, "--key", "another", "--json").json
    assert (second["outcome"], second["wake"]) == ("existing", retried["wake"])


def test_a_run_shows_what_it_used_and_what_is_unknown(cli: CommandLine, company: str, conn: Conn) -> None:
    end = {"ended_at": datetime.now(UTC), "end_class": "ok"}
    queued = add_run(conn, company, "queued")
    assert cli("run", "show", queued, "--json").json["usage"] is None
    assert "used" not in cli("run", "show", queued).out
    unknown = add_run(conn, company, "succeeded", attempt=1, **end)
    conn.execute("SELECT wakeful.add_spend('acme', 5, run => %s, provenance => 'unknown')", (unknown,))
    shown = cli("run", "show", unknown, "--json").json["usage"]
    assert shown == {"money": None, "provenance": "unknown", "counted": "5.000000", "lines": []}
    assert re.search(r"used +unknown; 5.* counted", cli("run", "show", unknown).out)
    known = add_run(conn, company, "succeeded", attempt=1, metered=1, **end)
    conn.execute(
        "INSERT INTO wakeful.usage (company, run, attempt, line, model, tokens_in, money, provenance)"
        " VALUES ('acme', %s, 1, 0, 'm', 7, 1.5, 'estimated')",
        (known,),
    )
    shown = cli("run", "show", known, "--json").json["usage"]
    assert (shown["money"], shown["provenance"]) == ("1.500000", "estimated")
    assert [(line["attempt"], line["model"], line["tokens_in"]) for line in shown["lines"]] == [(1, "m", 7)]
    assert re.search(r"used +1\.50* \(estimated\)", cli("run", "show", known).out)


def test_pause_and_resume(cli: CommandLine, company: str) -> None:
    cli("project", "add", "alpha")
    for thing, id in (("company", company), ("project", "alpha"), ("agent", "coder")):
        assert cli("pause", thing, id).out == f"{thing} {id}: paused\n"
        assert cli("resume", thing, id).out == f"{thing} {id}: active\n"
    assert cli("resume", "agent", "coder").out == "agent coder: active, as before\n"
    cli("pause", "company", company, "--reason", "audit")
    assert cli("company", "show", "--json").json["pause_reason"] == "audit"
    assert cli("resume", company, "--json").json["outcome"] == "merged"


def test_panic_of_one_company_reports_what_still_lives(cli: CommandLine, company: str, conn: Conn) -> None:
    conn.execute("SELECT wakeful.add_company(company => 'bolt')")
    run = add_run(conn, company, "running", host="far-away", attempt=1)
    done = cli("panic", company, "--wait", "300ms", "--reason", "fire")
    assert done.code == 1
    assert "1 still live after" in done.out
    assert "no scheduler answers on host far-away" in done.out
    assert "no scheduler is at work on this database: start `wakeful up`\n" in done.out
    assert one(conn, "SELECT state, stop_reason FROM wakeful.run") == ("stopping", "fire")
    assert one(conn, "SELECT count(*) FROM wakeful.setting") == 0
    assert one(conn, "SELECT count(*) FROM wakeful.company WHERE panic_at IS NOT NULL") == 1
    process = cli.start("panic", company, "--json", "--wait", "60s")
    wait_until(
        lambda: one(conn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'wakeful cli'"),
        what="the panic to wait",
    )
    conn.execute(
        "UPDATE wakeful.run SET state = 'cancelled', ended_at = wakeful.now(), evidence = 'contained' WHERE id = %s",
        (run,),
    )
    out, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")
    told = json.loads(out)
    assert (told["ended"], told["live"], told["uncertain"]) == ({"contained": 1}, 0, 0)
    assert cli("resume", company).out == f"company {company}: active\n"
    assert cli("company", "show", company, "--json").json["panic_at"] is None


def test_panic_of_the_instance_and_its_end(cli: CommandLine, company: str, conn: Conn) -> None:
    for name in ("bolt", "corp"):
        conn.execute("SELECT wakeful.add_company(company => %s)", (name,))
    cli("pause", "company", "corp")
    done = cli("panic", "--wait", "0s", WAKEFUL_COMPANY=company)
    assert (done.code, done.out.partition(":")[0]) == (0, "panic")
    assert "the whole instance (3)" in done.out
    assert one(conn, "SELECT count(*) FROM wakeful.company WHERE panic_at IS NOT NULL") == 3
    assert one(conn, "SELECT value FROM wakeful.setting WHERE name = 'panic'") is True
    lifted = cli("resume", "--json").json
    assert (lifted["lifted"], lifted["resumed"], lifted["left"]) == (True, [company, "bolt"], ["corp"])
    assert one(conn, "SELECT value FROM wakeful.setting WHERE name = 'panic'") is False
    assert one(conn, "SELECT count(*) FROM wakeful.company WHERE panic_at IS NOT NULL") == 0
    assert one(conn, "SELECT state FROM wakeful.company WHERE company = 'corp'") == "paused"
    cli("panic", "corp", "--wait", "0s")
    assert "corp is paused or archived as well, and stays so: wakeful resume corp" in cli("resume").out
    assert cli("resume", "corp").code == 0
    assert cli("resume").out == "nothing is in panic\n"


def test_settings_show_all_and_change_one(cli: CommandLine, company: str) -> None:
    before = {row["name"]: row["value"] for row in cli("settings", "--json").json["rows"]}
    assert (before["draining"], before["retention_days"]) == (False, 30)
    assert cli("settings", "set", "retention_days", "90").out == "retention_days = 90: inserted\n"
    assert cli("settings", "set", "draining", "true", "--json").json["outcome"] == "inserted"
    after = {row["name"]: row for row in cli("settings", "list", "--json").json["rows"]}
    assert (after["draining"]["value"], after["retention_days"]["value"]) == (True, 90)
    assert after["draining"]["changed_by"].startswith("user:")


def test_the_settings_shown_are_those_that_the_database_takes(conn: Conn) -> None:
    with pytest.raises(psycopg.Error) as refused:
        conn.execute("SELECT wakeful.set_setting('no_such_setting', 'true')")
    hint = refused.value.diag.message_hint or ""
    known = {name for name, _, _ in KNOWN}
    assert set(re.findall(r"[a-z_]{4,}", hint)) - {"true", "false", "days"} == known
    for name, default, _ in KNOWN:
        conn.execute("SELECT wakeful.set_setting(%s, %s)", (name, json.dumps(default)))


# ── the schema, and the embedded server ─────────────────────────────────────────────────────────────────


def test_migrate_applies_once_and_prints(tmp_path: Path, empty_database: Database) -> None:
    cli = CommandLine(tmp_path / "data", empty_database.dsn)
    printed = cli("migrate", "--print")
    assert printed.code == 0
    assert printed.out.startswith("BEGIN;")
    assert printed.out.rstrip().endswith("COMMIT;")
    applied = cli("migrate", "--json").json["applied"]
    versions = [step["version"] for step in applied if not step["plugin"]]
    assert versions == sorted(versions)
    assert versions[0] == 1
    assert cli("migrate").out == "nothing to do: the schema is up to date\n"


def test_without_a_dsn_commands_share_an_embedded_server() -> None:
    with open_directory() as place:
        cli = CommandLine(place / "data")
        racing = [cli.start("company", "add", name, "--json") for name in ("acme", "bolt")]
        for process in racing:
            out, said = process.communicate(timeout=90)
            assert (process.returncode, said) == (0, b"")
            assert json.loads(out)["outcome"] == "inserted"
        assert [row["company"] for row in cli("company", "list", "--json").json["rows"]] == ["acme", "bolt"]
        assert cli("migrate").out == "nothing to do: the schema is up to date\n"
        assert cli("doctor", "--json").json["ok"] is True
        assert not (place / "data/postgres/postmaster.pid").exists()
