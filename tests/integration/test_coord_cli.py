"""``wakeful coord``: what an operator is shown of real roots, and what the remedies do. The database is down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.coordination_site import command_line, made_root

from wakeful.testing import Database
from wakeful_coordination import Coordination, Generation, Mutation

INSTANCE = "acme.run-7"


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return command_line(tmp_path)


@pytest.fixture
def root(cli: CommandLine) -> Iterator[Coordination]:
    with Coordination.open(str(made_root(cli))) as opened:
        yield opened


@pytest.fixture
def captured(root: Coordination) -> Generation:
    return root.generations.open(INSTANCE)


def published(root: Coordination, captured: Generation, **more: Any) -> str:
    return root.publish(root.transaction(captured, "comment", {"text": "x"}, **more)).txid


def killed_session(root: Coordination, program: str) -> str:
    """Run a program on an open root ``root`` in a process that is then killed; return its session."""
    text = (
        "import os, signal, sys\n"
        "from wakeful_coordination import *\n"
        "root = Coordination.open(sys.argv[1])\n"
        "print(root.root.sid, flush=True)\n"
        f"{program}\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, root.root.path], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()


def findings(cli: CommandLine, *words: str, code: int = 0) -> dict[str, tuple[str, str, str | None]]:
    """Return (verdict, found, remedy) by subject, of the one root that doctor looks at."""
    done = cli("coord", "doctor", "--json", *words)
    assert done.code == code, done.err
    answer = json.loads(done.out)
    assert answer["ok"] is (code == 0)
    (only,) = answer["roots"]
    return {one["subject"]: (one["verdict"], one["found"], one["remedy"]) for one in only["findings"]}


# ── doctor ──────────────────────────────────────────────────────────────────────────────────────────────


def test_doctor_names_who_is_alive_and_what_is_pending(
    cli: CommandLine, root: Coordination, captured: Generation
) -> None:
    txid = published(root, captured)
    seen = findings(cli)
    assert seen.keys() == {"root", f"session {root.root.sid}", f"pending {txid}"}
    verdict, found, _ = seen[f"session {root.root.sid}"]
    assert (verdict, found.startswith("alive: ")) == ("ok", True)
    assert str(os.getpid()) in found
    assert seen[f"pending {txid}"] == (
        "ok",
        f"comment of {INSTANCE}",
        "the scheduler of this host delivers it, or wakeful coord relay",
    )
    lines = cli("coord", "doctor").out.splitlines()
    assert lines[0] == root.root.path
    assert (
        f"ok    pending {txid}: comment of {INSTANCE}; the scheduler of this host delivers it, or wakeful coord relay"
        in lines
    )


def test_doctor_names_who_holds_an_instance_and_waits_for_nobody(
    cli: CommandLine, root: Coordination, captured: Generation
) -> None:
    with root.lease(INSTANCE):
        held = findings(cli)[f"instance {INSTANCE}"]
    assert held[:2] == ("ok", f"held by pid {os.getpid()}")
    assert f"instance {INSTANCE}" not in findings(cli)


def test_the_dead_and_what_they_left_unfinished_are_shown_and_recovered(
    cli: CommandLine, root: Coordination, captured: Generation
) -> None:
    change = root.transaction(captured, "status", {}, mutations=[Mutation(INSTANCE, "state.json", "{}")])
    root.publish(change)
    dead = killed_session(
        root,
        "import wakeful_coordination.authority as authority\n"
        "authority.Authority._mutate = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"root.authority.settle({change.txid!r})",
    )
    seen = findings(cli)
    assert seen[f"session {dead}"][1].startswith("dead: ")
    assert seen[f"session {dead}"][2] == "wakeful coord recover removes its file"
    verdict, found, remedy = seen[f"instance {INSTANCE}"]
    assert (verdict, found) == ("warning", "a transaction at work was left unfinished")
    assert remedy is not None
    assert "wakeful coord recover" in remedy
    done = cli("coord", "recover", "--json").json
    assert done == {"committed": [change.txid], "quarantined": [], "sessions": [dead], "left": []}
    assert root.state(captured) == "{}"
    assert findings(cli).keys() == {"root", f"session {root.root.sid}", f"pending {change.txid}"}
    assert "applied: 1; set aside: 0; dead sessions removed: 0; left: 0" in cli("coord", "recover").out


def test_a_damaged_lease_fails_the_examination_until_it_is_repaired(
    cli: CommandLine, root: Coordination, captured: Generation
) -> None:
    (lease,) = Path(root.root.path).glob(f"instances/*/{INSTANCE}/lease")
    lease.unlink()
    assert findings(cli, code=1)[f"instance {INSTANCE}"][0] == "failed"
    lease.touch(mode=0o600)
    verdict, found, remedy = findings(cli, code=1)[f"instance {INSTANCE}"]
    assert (verdict, found) == ("failed", "its lease was deleted or replaced")
    assert remedy == f"stop its processes, then: wakeful coord repair {INSTANCE}"
    assert cli("coord", "doctor").code == 1
    assert (
        cli("coord", "repair", INSTANCE).out == f"instance {INSTANCE}: its lease was put right; cleanups finished: 0\n"
    )
    (only,) = findings(cli)[f"instance {INSTANCE}"][1:2]  # what stood in its place was kept
    assert only.startswith("evidence was kept: retained-lease-")


def test_strays_and_what_nobody_here_can_read_are_warnings(
    cli: CommandLine, root: Coordination, captured: Generation
) -> None:
    pending = Path(root.root.path) / "outbox/pending"
    (pending / "n\x1botes").touch()
    (pending / ".tmp-half").touch()
    txid = published(root, captured)
    text = (pending / f"{txid}.json").read_text()
    (pending / f"{txid}.json").write_text(text.replace('"v":1', '"v":9'))
    seen = findings(cli)
    assert seen["stray n\x1botes"][0] == "warning"
    assert seen["stray .tmp-half"][0] == "ok"
    assert seen[f"pending {txid}"][:2] == ("warning", "transaction: version 9 is not known here (this code knows 1)")
    assert "\x1b" not in cli("coord", "doctor").out
    done = cli("coord", "recover")
    assert done.code == 1
    assert f"left {txid}: transaction: version 9 is not known here" in done.out


def test_a_root_that_cannot_be_opened_is_a_finding(cli: CommandLine, root: Coordination) -> None:
    os.chmod(root.root.path, 0o755)  # noqa: S103 - what is to be refused
    verdict, found, remedy = findings(cli, code=1)["root"]
    assert verdict == "failed"
    assert "mode 0755" in found
    assert remedy is not None
    assert "mode 0700" in remedy
    done = cli("coord", "show")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert done.err.startswith("wakeful: ")
    assert json.loads(cli("coord", "show", "--json").err)["error"] == "unsafe_path"


# ── which root ──────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_root_there_is_nothing_to_see(cli: CommandLine) -> None:
    done = cli("coord", "doctor")
    assert (done.code, done.out) == (0, f"there is no coordination root below {cli.data}\n")
    assert cli("coord", "doctor", "--json").json == {"ok": True, "roots": []}
    done = cli("coord", "show")
    assert (done.code, "there is no coordination root" in done.err) == (1, True)


def test_a_root_is_named_by_option_environment_or_company(
    cli: CommandLine, root: Coordination, captured: Generation, tmp_path: Path
) -> None:
    with Coordination.open(str(made_root(cli, "other"))):
        pass
    done = cli("coord", "show")
    assert (done.code, "there are 2 coordination roots" in done.err, "--company ID" in done.err) == (2, True, True)
    assert len(cli("coord", "doctor", "--json").json["roots"]) == 2
    for words, environ in (
        (["--company", "acme"], {}),
        (["--root", root.root.path], {}),
        (["--root", root.root.path], {"WAKEFUL_COORD": "/nowhere"}),
        ([], {"WAKEFUL_COORD": root.root.path}),
    ):
        shown = cli("coord", "show", "--json", *words, **environ).json
        assert shown["instances"] == [[INSTANCE, 1, "open"]], words
    assert cli("coord", "show", "--json", "--company", "other").json["instances"] == []
    absent = cli("coord", "show", "--root", str(tmp_path / "absent"))
    assert (absent.code, (tmp_path / "absent").exists()) == (1, False)


# ── show, quarantine, retry ─────────────────────────────────────────────────────────────────────────────


def test_show_lists_everything_or_one_thing(cli: CommandLine, root: Coordination, captured: Generation) -> None:
    txid = published(root, captured)
    with root.lease(INSTANCE):
        shown = cli("coord", "show", INSTANCE, "--json").json
    assert (shown["generation"], shown["state"], shown["holders"]) == (captured.token, "open", [os.getpid()])
    assert {"lease", "lease.keep", "generation.json"} <= set(shown["files"])
    assert shown["ended"] is None
    transaction = cli("coord", "show", txid, "--json").json
    assert (transaction["state"], transaction["type"]) == ("pending", "comment")
    assert (transaction["instances"], transaction["body"]) == ([INSTANCE], {"text": "x"})
    everything = cli("coord", "show", "--json").json
    assert everything == {
        "instances": [[INSTANCE, 1, "open"]],
        "transactions": [[txid, "pending", "comment", INSTANCE]],
    }
    assert txid in cli("coord", "show").out
    root.authority.settle(txid)
    assert cli("coord", "show", txid, "--json").json["state"] == "committed, not yet delivered"
    end = root.conclude(captured, "succeeded")
    root.generations.retire(captured)
    root.ends.record(end)
    shown = cli("coord", "show", INSTANCE, "--json").json
    assert (shown["state"], shown["ended"]) == ("retired", "succeeded")
    root.relay(lambda outcome: None)
    assert cli("coord", "show", txid, "--json").json["state"] == "committed"
    root.generations.retire(captured)
    assert cli("coord", "show", "--json").json["instances"] == [[INSTANCE, 1, "retired"]]
    for unknown in ("nothing", "../../etc", "0" * 32):
        done = cli("coord", "show", unknown)
        assert (done.code, len(done.err.splitlines())) == (1, 1)
        assert "there is no instance or transaction" in done.err
    assert (
        "there is no instance nothing; list them: wakeful coord show (exit 1)" in cli("coord", "repair", "nothing").err
    )


def test_a_transaction_is_set_aside_and_taken_up_again(
    cli: CommandLine, root: Coordination, captured: Generation
) -> None:
    txid = published(root, captured)
    assert "is set aside: operator: looks odd" in cli("coord", "quarantine", txid, "--reason", "looks odd").out
    assert root.outbox.pending() == []
    verdict, found, remedy = findings(cli)[f"quarantined {txid}"]
    assert (verdict, found) == ("warning", "operator: looks odd")
    assert remedy is not None
    assert f"wakeful coord retry {txid}" in remedy
    assert cli("coord", "show", txid, "--json").json["state"] == "quarantined"
    assert cli("coord", "retry", txid, "--json").json == {"txid": txid, "state": "pending"}
    assert root.outbox.pending() == [txid]
    root.authority.settle(txid)
    done = cli("coord", "quarantine", txid, "--reason", "too late")
    assert (done.code, "is committed: nothing can take it back" in done.err) == (2, True)


def test_what_belongs_to_a_replaced_generation_stays_aside(
    cli: CommandLine, root: Coordination, captured: Generation
) -> None:
    txid = published(root, captured)
    cli("coord", "quarantine", txid, "--reason", "x")
    root.generations.replace(captured)
    done = cli("coord", "retry", txid)
    assert (done.code, len(done.err.splitlines())) == (4, 1)
    assert "never binds to a newer generation" in done.err
    assert root.outbox.pending() == []
    for words in (["retry", "0" * 32], ["quarantine", "0" * 32, "--reason", "x"], ["repair", "nobody"]):
        assert cli("coord", *words).code == 1


def test_a_session_declared_dead_frees_what_it_holds_in_doubt(
    cli: CommandLine, root: Coordination, captured: Generation
) -> None:
    change = root.transaction(captured, "status", {})
    root.publish(change)
    dead = killed_session(
        root,
        "import wakeful_coordination.authority as authority\n"
        "authority.Authority._check = lambda *_: os.kill(os.getpid(), signal.SIGKILL) if _[0]._marked("
        f"{INSTANCE!r}) else None\n"
        f"root.authority.settle({change.txid!r})",
    )
    (Path(root.root.path) / "sessions" / dead).unlink()  # nobody's death can be proven any more
    done = cli("coord", "recover")
    assert (done.code, f"left {change.txid}: " in done.out) == (1, True)
    assert cli("coord", "recover", "--dead", dead, "--json").json["committed"] == [change.txid]


# ── help ────────────────────────────────────────────────────────────────────────────────────────────────


def test_help_opens_no_file_and_loads_neither_driver_nor_coordination(cli: CommandLine) -> None:
    program = (
        "import sys; from wakeful.cli.main import main; code = main(sys.argv[1:]);"
        "sys.exit(code or ','.join({'psycopg', 'rich', 'wakeful_coordination'} & sys.modules.keys()) or None)"
    )
    quiet = CommandLine(cli.data, None, cli.environ)
    for words in (["coord", "--help"], ["coord", "relay", "--help"], ["emit", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            env=quiet.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), words
    assert not cli.data.exists()


def test_every_command_takes_the_common_options_and_explains_itself() -> None:
    import click

    from wakeful_plugins import coordination

    top = click.Group("wakeful")
    coordination.register_commands(root=top)
    coord = top.commands["coord"]
    assert isinstance(coord, click.Group)
    assert list(coord.commands) == ["doctor", "show", "recover", "quarantine", "retry", "drop", "repair", "relay"]
    for one in [*top.commands.values(), *coord.commands.values()]:
        assert one.help
        assert {"--json", "--company", "--debug"} <= {word for param in one.params for word in param.opts}
        assert all(param.help for param in one.params if isinstance(param, click.Option))


# ── what the database does not take ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def online(database: Database, tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, database.dsn)


def refused(online: CommandLine) -> str:
    """Publish an event that the database does not take, and have it refused; return its id."""
    with Coordination.open(str(made_root(online))) as root:
        return published(root, root.generations.open(INSTANCE), kind="event")


def test_an_event_that_was_refused_is_named_with_its_reason(online: CommandLine, company: str) -> None:
    txid = refused(online)
    assert online("coord", "relay", "--company", company).code == 0
    verdict, found, remedy = findings(online)[f"pending {txid}"]
    assert verdict == "warning"
    assert found.startswith(f"comment of {INSTANCE} is refused since ")
    assert found.endswith(": a comment needs an issue")
    assert remedy == f"wakeful coord relay tries again; wakeful coord drop {txid} --reason TEXT lets it go"


def test_an_event_is_dropped_on_an_operators_word_which_the_audit_keeps(
    online: CommandLine, conn: psycopg.Connection[Any], company: str
) -> None:
    txid = refused(online)
    online("coord", "relay")
    done = online("coord", "drop", txid, "--reason", "no issue will ever take it", "--as", "user:ann")
    assert (done.code, done.out) == (0, f"event {txid} is dropped\n")
    audit = "SELECT actor, verb, after FROM wakeful.audit WHERE target = %s"
    (row,) = conn.execute(audit, (f"event:{txid}",)).fetchall()
    said = {"reason": "no issue will ever take it", "type": "comment", "instance": INSTANCE}
    assert row == ("user:ann", "drop", said)
    assert findings(online).keys() == {"root"}
    assert online("coord", "show", txid, "--json").json["state"] == "committed"
    again = online("coord", "drop", txid, "--reason", "twice")
    assert (again.code, "is not pending" in again.err) == (1, True)
    assert len(conn.execute(audit, (f"event:{txid}",)).fetchall()) == 1


@pytest.mark.parametrize("reason", ["", " "])
def test_nothing_is_dropped_without_a_reason(online: CommandLine, company: str, reason: str) -> None:
    txid = refused(online)
    done = online("coord", "drop", txid, "--reason", reason)
    assert (done.code, "says why" in done.err) == (2, True)
    assert f"pending {txid}" in findings(online)


def test_an_event_whose_generation_was_replaced_is_set_aside_not_dropped(
    online: CommandLine, conn: psycopg.Connection[Any], company: str
) -> None:
    txid = refused(online)
    with Coordination.open(str(made_root(online))) as root:
        root.generations.replace(root.generations.capture(INSTANCE))
    done = online("coord", "drop", txid, "--reason", "anything")
    assert (done.code, "was set aside instead: superseded" in done.out) == (0, True)
    assert conn.execute("SELECT count(*) FROM wakeful.audit WHERE verb = 'drop'").fetchone() == (0,)
