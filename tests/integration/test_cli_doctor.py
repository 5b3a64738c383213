"""``wakeful doctor``: real servers in good and bad shape."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.command_line import CommandLine
from tests.unit.test_plugins import Site

from wakeful import diagnosis, store
from wakeful.testing import Database

Conn = psycopg.Connection[Any]


def checks(cli: CommandLine, *words: str, code: int = 0, **environ: str) -> dict[str, dict[str, Any]]:
    done = cli("doctor", "--json", *words, **environ)
    assert done.code == code, done.out
    told = json.loads(done.out)
    assert told["ok"] is (code == 0)
    return {check["name"]: check for check in told["checks"]}


def test_everything_is_tried(cli: CommandLine) -> None:
    done = cli("doctor")
    assert done.code == 0, done.out
    marks = [line.split("  ")[0].strip() for line in done.out.splitlines()]
    assert set(marks) <= {"ok", "warn"}
    found = checks(cli)
    assert set(found) >= {
        "data directory",
        "plugin",
        "server",
        "login",
        "schema",
        "row security",
        "skip locked",
        "notifications",
        "session locks",
        "notification queue",
        "clock",
        "schedulers",
    }
    assert found["schedulers"]["verdict"] == "warning"


def test_the_owners_lock_counts_as_a_scheduler(cli: CommandLine, conn: Conn) -> None:
    assert store.run(conn, "control.try_owners_lock").fetchone().held
    assert checks(cli)["schedulers"]["verdict"] == "ok"


def test_runs_that_nobody_renews_are_named(cli: CommandLine, conn: Conn, company: str) -> None:
    conn.execute(
        "INSERT INTO wakeful.run (company, agent, state, host, renew_by) VALUES (%s, 'coder', 'running', 'far', now())",
        (company,),
    )
    assert "far (1 runs)" in checks(cli)["schedulers"]["found"]


def test_wakes_of_a_plugin_that_is_not_installed_are_named(cli: CommandLine, conn: Conn, company: str) -> None:
    conn.execute("SELECT wakeful.request_wake(%s, 'coder', key => 'a')", (company,))
    assert "wakes" not in checks(cli)
    conn.execute("SELECT wakeful.request_wake(%s, 'coder', key => 'b', kind => 'sundial')", (company,))
    found = checks(cli)["wakes"]
    assert found["found"] == "no plugin here looks after the wakes of sundial"
    assert "install that plugin" in found["remedy"]


def test_settings_that_hold_everything_are_a_warning(cli: CommandLine, conn: Conn) -> None:
    conn.execute("SELECT wakeful.set_setting('draining', 'true')")
    assert "drains" in checks(cli)["settings"]["found"]


def test_a_broken_plugin_fails(cli: CommandLine, tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    site.path.mkdir()
    site.add("bad", "raise SystemExit(5)")
    path = os.pathsep.join([str(site.path), cli.environment()["PYTHONPATH"]])
    done = cli("doctor", PYTHONPATH=path)
    assert done.code == 1
    (line,) = [line for line in done.out.splitlines() if line.startswith("FAIL")]
    assert "bad (wakeful-bad 1.2) failed: cannot be imported: SystemExit: 5" in line
    assert "schema" in done.out  # the rest is looked at all the same
    strict = checks(cli, code=1, PYTHONPATH=path, WAKEFUL_PLUGINS_STRICT="true")
    assert "wakeful-bad" in strict["plugins"]["found"]


def test_a_missing_schema_fails(cli: CommandLine, empty_database: Database) -> None:
    found = checks(cli, code=1, WAKEFUL_DSN=empty_database.dsn)
    failed = [check for check in found.values() if check["verdict"] == "failed"]
    assert [check["remedy"] for check in failed] == ["run: wakeful migrate"]


def test_a_login_without_the_role_fails(cli: CommandLine, database: Database) -> None:
    dsn = make_conninfo(database.dsn, options="-c role=wakeful_viewer")
    found = checks(cli, code=1, WAKEFUL_DSN=dsn)
    assert found["login"]["verdict"] == "failed"
    assert "GRANT wakeful_scheduler" in found["login"]["remedy"]


def test_a_login_that_row_security_does_not_bind_is_a_warning(cli: CommandLine, database: Database) -> None:
    with psycopg.connect(database.admin_dsn) as admin:
        row = admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    assert row is not None
    expected = "warning" if row[0] else "ok"  # a server named by a DSN may lend no superuser
    assert checks(cli, WAKEFUL_DSN=database.admin_dsn)["login"]["verdict"] == expected


def test_unforced_row_security_fails(cli: CommandLine, conn: Conn) -> None:
    conn.execute("SET ROLE wakeful_owner")
    conn.execute("ALTER TABLE wakeful.spend NO FORCE ROW LEVEL SECURITY")
    assert checks(cli, code=1)["row security"]["verdict"] == "failed"


def test_a_data_directory_that_others_may_write_to_fails(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    assert diagnosis.data_directory(shared).verdict == "ok"
    shared.chmod(0o777)
    assert diagnosis.data_directory(shared).verdict == "failed"
    (tmp_path / "file").touch()
    assert diagnosis.data_directory(tmp_path / "file").verdict == "failed"
    assert diagnosis.data_directory(tmp_path / "new" / "deep").found.endswith("to be made")


def test_sessions_that_do_not_hear_or_block_each_other_fail(database: Database, empty_database: Database) -> None:
    # Two databases of one server share neither: what a session sees that a pooler serves from another one.
    one, other = database.connect(), empty_database.connect()
    unheard = diagnosis.notifications(one, other, timedelta(milliseconds=50))
    unblocked = diagnosis.session_locks(one, other)
    assert (unheard.verdict, unblocked.verdict) == ("failed", "failed")
    assert "WAKEFUL_LISTEN_DSN" in (unheard.remedy or "")


def test_a_server_that_is_not_there_fails(cli: CommandLine, database: Database) -> None:
    parts = conninfo_to_dict(database.dsn)
    found = checks(cli, code=1, WAKEFUL_DSN=make_conninfo("", **{**parts, "port": "1"}))
    assert "no connection to the database" in found["database"]["found"]
