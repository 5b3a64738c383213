"""What agents publish by files alone, and how it reaches the database: real processes, real files."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.command_line import CommandLine
from tests.conditions import wait_until
from tests.coordination_site import NOWHERE, command_line, made_root
from tests.integration.runs import queued

from wakeful import producers
from wakeful.crash_points import CrashPoint
from wakeful.errors import ExecutorError
from wakeful.executions import Ended, RunKey, RunSpec
from wakeful.testing import Database
from wakeful_coordination import Coordination, Generation
from wakeful_plugins import event_relay
from wakeful_plugins.local_executor import LocalExecutor
from wakeful_plugins.run_directory import coordination_root

Conn = psycopg.Connection[Any]
QUICK = timedelta(seconds=0.3)


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The program while the database is down."""
    return command_line(tmp_path)


@pytest.fixture
def online(database: Database, tmp_path: Path) -> CommandLine:
    return command_line(tmp_path, database.dsn)


@pytest.fixture
def root(cli: CommandLine) -> Iterator[Coordination]:
    with Coordination.open(str(made_root(cli))) as opened:
        yield opened


def key_of(run: uuid.UUID, generation: int = 1) -> RunKey:
    return RunKey("acme", run, generation)


def agent(root: Coordination, key: RunKey) -> tuple[Generation, dict[str, str]]:
    """Open the generation of an execution, as the executor does; return it with what its processes are given."""
    captured = root.generations.open(key.cookie)
    return captured, {"WAKEFUL_COORD": root.root.path, "WAKEFUL_INSTANCE": captured.token}


def spend(conn: Conn) -> list[tuple[Decimal, str | None, uuid.UUID | None, str | None]]:
    return conn.execute("SELECT amount, agent, run, key FROM wakeful.spend ORDER BY id").fetchall()


# ── publishing ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_event_is_durable_and_printed_by_its_id(cli: CommandLine, root: Coordination) -> None:
    captured, given = agent(root, key_of(uuid.uuid4()))
    done = cli("emit", "comment", '{"text": "half done"}', **given)
    assert (done.code, done.err) == (0, "")
    published = root.outbox.read(done.out.strip())
    assert (published.event.type, published.event.body) == ("comment", {"text": "half done"})
    assert published.generations == (captured,)
    from_a_file = cli("emit", "acme.own", "@-", "--json", stdin='{"n": [1]}', **given).json
    assert from_a_file["repeated"] is False
    assert root.outbox.read(from_a_file["txid"]).event.body == {"n": [1]}
    assert root.outbox.read(cli("emit", "note", **given).out.strip()).event.body == {}


def test_the_options_name_root_and_generation(cli: CommandLine, root: Coordination) -> None:
    captured, _ = agent(root, key_of(uuid.uuid4()))
    done = cli("emit", "note", "--root", root.root.path, "--generation", captured.token)
    assert root.outbox.pending() == [done.out.strip()]


def test_a_key_is_published_once(cli: CommandLine, root: Coordination) -> None:
    _, given = agent(root, key_of(uuid.uuid4()))
    words = ("emit", "spend", '{"amount": "0.25"}', "--key", "call-1", "--json")
    first = cli(*words, **given).json
    assert first["repeated"] is False
    assert cli(*words, **given).json == {**first, "repeated": True}
    root.relay(lambda outcome: None)
    assert root.outbox.pending() == []
    assert cli(*words, **given).json == {**first, "repeated": True}
    assert root.outbox.pending() == []
    other = cli("emit", "spend", '{"amount": "0.26"}', "--key", "call-1", **given)
    assert other.code == 4
    assert "'call-1' was used for another event" in other.err
    _, someone = agent(root, key_of(uuid.uuid4()))
    assert cli(*words, **someone).json["txid"] != first["txid"]


def test_a_key_used_by_several_at_once_is_published_once(cli: CommandLine, root: Coordination) -> None:
    captured, given = agent(root, key_of(uuid.uuid4()))
    cli = CommandLine(cli.data, cli.dsn, cli.environ | given)
    with root.lease(captured.instance):
        several = [cli.start("emit", "status", '{"status": "in_review"}', "--key", "k") for _ in range(4)]
        wait_until(lambda: len(os.listdir(Path(root.root.path) / "sessions")) == 5, within=30)
    ends = [(process.communicate(timeout=60)[0].strip(), process.returncode) for process in several]
    assert set(ends) == {(root.outbox.pending()[0].encode(), 0)}
    assert len(root.outbox.pending()) == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["comment", "{}"], 2, "a comment needs a text"),
        (["comment", '{"text": " "}'], 2, "a comment needs a text"),
        (["status", "[1]"], 2, "is a JSON object"),
        (["status", "{"], 2, "not JSON"),
        (["comment", "plain words"], 2, """example: '{"text": "half done"}' (exit"""),
        (["spend", "{}"], 2, "an exact amount"),
        (["spend", '{"amount": 0.1}'], 2, "an exact amount"),
        (["spend", '{"amount": true}'], 2, "an exact amount"),
        (["spend", '{"amount": "-1"}'], 2, "an exact amount"),
        (["spend", '{"amount": 1, "provenance": "guessed"}'], 2, "provenance is one of"),
        (["Not A Type"], 2, "is no event type"),
        (["status", '{"status": "review"}'], 2, "status is one of backlog, "),
        (["status", '{"status": "done", "issue": 7}'], 2, "issue is an id"),
        (["note", "--key", ""], 2, "1 to 200 characters"),
        (["note", json.dumps({"long": "x" * 70_000})], 2, "more than 65536 bytes"),
        (["note", "--generation", "some-run"], 2, "not a generation token"),
        (["note", "--generation", f"other:1:{'0' * 32}"], 1, "there is no instance other"),
        (["note", "--root", "/nonexistent/root"], 1, "there is no directory"),
    ],
)
def test_what_cannot_be_published(
    cli: CommandLine, root: Coordination, words: list[str], code: int, message: str
) -> None:
    _, given = agent(root, key_of(uuid.uuid4()))
    done = cli("emit", *words, **given)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert root.outbox.pending() == []


def test_without_a_captured_generation_nothing_is_written(cli: CommandLine, root: Coordination) -> None:
    captured, given = agent(root, key_of(uuid.uuid4()))
    for name in given:
        left = {other: value for other, value in given.items() if other != name}
        done = cli("emit", "note", **left)
        assert (done.code, f"{name} is not set" in done.err) == (2, True)
    root.generations.replace(captured)
    done = cli("emit", "note", **given)
    assert done.code == 4
    assert "has been replaced by 2" in done.err
    assert root.outbox.pending() == []


def test_emit_loads_no_database_driver(cli: CommandLine, root: Coordination) -> None:
    _, given = agent(root, key_of(uuid.uuid4()))
    program = (
        "import sys; from wakeful.cli.main import main; code = main(sys.argv[1:]);"
        "sys.exit(code or ','.join({'psycopg', 'rich', 'watchdog.observers'} & sys.modules.keys()) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "emit", "note"],
        env=CommandLine(cli.data, None, cli.environ | given).environment(),  # a run's processes are told no DSN
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_documented_commands_publish(cli: CommandLine, root: Coordination, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/coordination.md").read_text()
    (script,) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    (tmp_path / "status.json").write_text('{"status": "in_review"}')
    _, given = agent(root, key_of(uuid.uuid4()))
    function = f'wakeful() {{ {shlex.join(cli.words())} "$@"; }}\n'
    subprocess.run(["sh", "-ec", function + script], env=cli.environment(**given), cwd=tmp_path, timeout=60, check=True)
    types = sorted(root.outbox.read(txid).event.type for txid in root.outbox.pending())
    assert types == ["acme.own", "comment", "spend", "status"]


# ── the generation of a run ─────────────────────────────────────────────────────────────────────────────


class Executors:
    """Executors of one data root; each run's command ends by itself."""

    def __init__(self, cli: CommandLine) -> None:
        self.cli = cli
        self.made: list[LocalExecutor] = []

    def new(self, **options: Any) -> LocalExecutor:
        options = {"poll": QUICK, "drain": QUICK, "patience": QUICK, "environ": self.cli.environment(), **options}
        self.made.append(LocalExecutor(self.cli.data, **options))
        return self.made[-1]

    def ended(self, executor: LocalExecutor, key: RunKey) -> Ended:
        status = wait_until(lambda: isinstance(found := executor.poll([key])[0], Ended) and found, within=30)
        assert isinstance(status, Ended)
        return status


@pytest.fixture
def executors(cli: CommandLine) -> Iterator[Executors]:
    made = Executors(cli)
    yield made
    for executor in made.made:
        executor.close()


def spec(cli: CommandLine, *words: str, **changes: Any) -> RunSpec:
    own = {"PYTHONPATH": cli.environment()["PYTHONPATH"]}
    return RunSpec(words, {"v": 1}, agent="coder", environment=own, stop_grace=QUICK, **changes)


def test_a_runs_process_emits_for_its_own_generation(cli: CommandLine, executors: Executors) -> None:
    executor, key = executors.new(), key_of(uuid.uuid4(), 3)
    executor.submit(spec(cli, *cli.words("emit", "comment", '{"text": "hello"}')), key)
    report = executors.ended(executor, key).report
    assert (report.exit_code, report.stderr.tail) == (0, "")
    with Coordination.open(str(coordination_root(cli.data, "acme")), create=False) as root:
        event = root.outbox.read(report.stdout.tail.strip()).event
        assert (event.instance, event.body) == (f"{key.run}-3", {"text": "hello"})
        assert root.generations.capture(key.cookie).id == event.generation_id


def test_a_repeated_submit_finds_the_same_generation(cli: CommandLine, executors: Executors) -> None:
    class Killed(BaseException):
        pass

    def crash(place: str) -> None:
        if place == CrashPoint.RUN_INPUT:
            raise Killed

    key, printing = key_of(uuid.uuid4()), spec(cli, "printenv", "WAKEFUL_INSTANCE")
    with pytest.raises(Killed):
        executors.new(crash=crash).submit(printing, key)
    with Coordination.open(str(coordination_root(cli.data, "acme")), create=False) as root:
        opened = root.generations.capture(key.cookie)
    executor = executors.new()
    executor.submit(printing, key)
    assert executors.ended(executor, key).report.stdout.tail.strip() == opened.token
    executor.submit(printing, key)
    with Coordination.open(str(coordination_root(cli.data, "acme")), create=False) as root:
        assert root.generations.capture(key.cookie) == opened


def test_each_company_has_a_root_and_each_generation_an_instance(cli: CommandLine, executors: Executors) -> None:
    executor, run = executors.new(), uuid.uuid4()
    seen = []
    for key in (RunKey("acme", run, 1), RunKey("acme", run, 2), RunKey("other", run, 1)):
        executor.submit(spec(cli, "printenv", "WAKEFUL_COORD", "WAKEFUL_INSTANCE"), key)
        root, token = executors.ended(executor, key).report.stdout.tail.split()
        assert root == str(coordination_root(cli.data, key.company))
        assert token.startswith(f"{key.cookie}:1:")
        seen.append(token)
    assert len(set(seen)) == 3


def test_a_root_that_cannot_be_used_keeps_the_run_from_starting(cli: CommandLine, executors: Executors) -> None:
    path = made_root(cli)
    path.mkdir(mode=0o700)
    (path / "root.json").mkdir()
    with pytest.raises(ExecutorError, match=r"gets no generation of its files: .*root.json is a directory"):
        executors.new().submit(spec(cli, "true"), key_of(uuid.uuid4()))


def test_files_of_an_earlier_layout_hinder_no_run(cli: CommandLine, executors: Executors) -> None:
    old = made_root(cli) / str(uuid.uuid4())
    old.mkdir(mode=0o700, parents=True)
    old.parent.chmod(0o700)
    (old / "notes").write_text("an agent's own")
    seen = cli("coord", "doctor")
    assert (seen.code, "no root yet: files of an earlier layout stand there" in seen.out) == (0, True)
    executor, key = executors.new(), key_of(uuid.uuid4())
    executor.submit(spec(cli, *cli.words("emit", "note")), key)
    assert executors.ended(executor, key).report.exit_code == 0
    assert (old / "notes").read_text() == "an agent's own"
    seen = cli("coord", "doctor")
    assert (seen.code, f"foreign {old.name}" in seen.out) == (0, True)


def test_a_data_root_on_a_network_disk_runs_without_file_coordination(
    cli: CommandLine, executors: Executors, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    network = "".join(
        f"{before} - nfs4 {after.partition(' ')[2]}"
        for line in table.splitlines(True)
        for before, _, after in [line.partition(" - ")]
    )
    monkeypatch.setattr("wakeful_coordination.coordination.mount_table", lambda: network)
    executor, key = executors.new(), key_of(uuid.uuid4())
    executor.submit(spec(cli, *cli.words("emit", "note")), key)
    report = executors.ended(executor, key).report
    assert report.exit_code == 2
    assert "not a generation token" in report.stderr.tail


# ── into the database ───────────────────────────────────────────────────────────────────────────────────


def test_spend_reaches_the_database_once(online: CommandLine, root: Coordination, conn: Conn, company: str) -> None:
    run = queued(conn)
    _, given = agent(root, key_of(run))
    txid = online("emit", "spend", '{"amount": "0.25", "provenance": "estimated"}', **given).out.strip()
    at = root.outbox.read(txid).event.at
    assert online("coord", "relay", "--json").json == {"delivered": [txid], "quarantined": [], "left": []}
    assert spend(conn) == [(Decimal("0.25"), "coder", run, txid)]
    assert conn.execute("SELECT provenance, at = %s FROM wakeful.spend", (at,)).fetchone() == ("estimated", True)
    assert online("coord", "relay", "--json").json == {"delivered": [], "quarantined": [], "left": []}
    assert len(spend(conn)) == 1
    assert conn.execute("SELECT actor FROM wakeful.audit WHERE verb = 'spend'").fetchall() == [("system:coordination",)]


def test_a_scheduler_with_no_other_rights_records_every_kind(
    database: Database, root: Coordination, conn: Conn, company: str
) -> None:
    run = queued(conn, "I-1")
    captured, _ = agent(root, key_of(run))
    for kind, body in (("spend", {"amount": "1"}), ("comment", {"text": "x"}), ("status", {"status": "in_review"})):
        root.publish(root.transaction(captured, kind, body))
    done = event_relay.relay_once(root, database.connect_as("wakeful_scheduler"), company)
    assert (len(done.committed), done.left) == (3, ())
    rows = (
        "SELECT (SELECT run FROM wakeful.spend), (SELECT run FROM wakeful.comment), (SELECT status FROM wakeful.issue)"
    )
    assert conn.execute(rows).fetchone() == (run, run, "in_review")


def test_what_was_recorded_before_the_end_is_no_late_word(root: Coordination, conn: Conn, company: str) -> None:
    """A pass was killed before it could forget a comment and a status, and the run ended."""
    run = queued(conn, "I-1")
    captured, _ = agent(root, key_of(run))
    told = [
        root.publish(root.transaction(captured, kind, body)).txid
        for kind, body in (("comment", {"text": "x"}), ("status", {"status": "in_review"}))
    ]
    producers.run(conn, producers.save_comment(company, "I-1", "x", "agent:coder", run=run, key=told[0]))
    producers.run(conn, producers.commit_status(company, "I-1", "in_review", key=told[1], actor="agent:coder"))
    conn.execute("UPDATE wakeful.run SET state = 'cancelled', ended_at = wakeful.now() WHERE id = %s", (run,))
    assert event_relay.relay_once(root, conn, company).committed == tuple(told)


def test_a_pass_killed_before_it_could_forget_records_nothing_twice(
    online: CommandLine, root: Coordination, conn: Conn, company: str
) -> None:
    run = queued(conn)
    _, given = agent(root, key_of(run))
    first, second = (online("emit", "spend", '{"amount": 1}', **given).out.strip() for _ in range(2))
    for txid in (first, second):  # what the killed pass had done
        producers.run(conn, producers.add_spend(company, 1, run=run, key=txid))
    assert event_relay.relay_once(root, conn, company).committed == (first, second)
    assert len(spend(conn)) == 2
    third = root.publish(root.transaction(root.generations.capture(key_of(run).cookie), "spend", {"amount": 1})).txid
    producers.run(conn, producers.add_spend(company, 1, run=run, key=third))
    conn.execute("UPDATE wakeful.run SET state = 'cancelled', ended_at = wakeful.now() WHERE id = %s", (run,))
    assert event_relay.relay_once(root, conn, company).committed == (third,)
    assert len(spend(conn)) == 3


def test_spend_of_an_ended_run_waits_for_a_persons_decision(
    online: CommandLine, root: Coordination, conn: Conn, company: str
) -> None:
    run = queued(conn)
    _, given = agent(root, key_of(run))
    txid = online("emit", "spend", '{"amount": "0.5"}', **given).out.strip()
    conn.execute("UPDATE wakeful.run SET state = 'cancelled', ended_at = wakeful.now() WHERE id = %s", (run,))
    done = online("coord", "relay")
    assert (done.code, spend(conn)) == (0, [])
    assert f"left {txid}: run {run} has ended (cancelled)" in done.out
    assert online("coord", "relay", "--late", "--json").json["delivered"] == [txid]
    assert spend(conn) == [(Decimal("0.5"), "coder", run, txid)]


def test_spend_of_an_older_generation_never_counts_for_the_newer(
    online: CommandLine, root: Coordination, conn: Conn, company: str
) -> None:
    run = queued(conn)
    _, given = agent(root, key_of(run))
    txid = online("emit", "spend", '{"amount": "0.5"}', **given).out.strip()
    conn.execute("UPDATE wakeful.run SET generation = 2 WHERE id = %s", (run,))
    (left,) = online("coord", "relay", "--json").json["left"]
    assert left["txid"] == txid
    assert f"run {run} is at generation 2" in left["reason"]
    assert spend(conn) == []
    assert online("coord", "relay", "--late", "--json").json["delivered"] == [txid]
    assert spend(conn) == [(Decimal("0.5"), "coder", None, txid)]


def test_what_the_database_cannot_take_stays_with_its_reason(
    online: CommandLine, root: Coordination, conn: Conn, company: str
) -> None:
    captured, given = agent(root, key_of(queued(conn)))
    stranger, _ = agent(root, key_of(uuid.uuid4()))
    comment = online("emit", "comment", '{"text": "x"}', **given).out.strip()
    unreadable = root.publish(root.transaction(captured, "spend", {"amount": 0.1})).txid
    unknown = root.publish(root.transaction(stranger, "spend", {"amount": 1})).txid
    good = root.publish(root.transaction(captured, "spend", {"amount": 1})).txid
    answer = online("coord", "relay", "--json").json
    reasons = {one["txid"]: one["reason"] for one in answer["left"]}
    assert answer["delivered"] == [good]
    assert "a comment needs an issue" in reasons[comment]
    assert "an exact amount" in reasons[unreadable]
    assert "does not exist" in reasons[unknown]
    assert root.outbox.pending() == sorted(reasons)


def test_an_instance_of_no_run_spends_for_the_company(root: Coordination, conn: Conn, company: str) -> None:
    captured = root.generations.open("acme.session-7")
    txid = root.publish(root.transaction(captured, "spend", {"amount": 2})).txid
    assert event_relay.relay_once(root, conn, company).committed == (txid,)
    assert spend(conn) == [(Decimal(2), None, None, txid)]


def test_a_replaced_generation_is_set_aside_and_not_delivered(
    online: CommandLine, root: Coordination, conn: Conn, company: str
) -> None:
    captured, given = agent(root, key_of(queued(conn)))
    txid = online("emit", "spend", '{"amount": 1}', **given).out.strip()
    root.generations.replace(captured)
    assert online("coord", "relay", "--json").json == {"delivered": [], "quarantined": [txid], "left": []}
    assert spend(conn) == []


def test_while_the_database_is_down_everything_is_kept(cli: CommandLine, root: Coordination) -> None:
    _, given = agent(root, key_of(uuid.uuid4()))
    txid = cli("emit", "spend", '{"amount": 1}', **given).out.strip()
    done = cli("coord", "relay")
    assert (done.code, len(done.err.splitlines())) == (3, 1)
    assert root.outbox.pending() == [txid]
    assert NOWHERE not in done.err


def test_nothing_to_relay_is_no_error(online: CommandLine, company: str) -> None:
    assert online("coord", "relay").out == "delivered: 0\n"
    assert online("coord", "relay", "--root", "/nonexistent/root").code == 1
    assert online("coord", "relay", WAKEFUL_COORD="/nonexistent/root").code == 1
