"""Real commands under a real scheduler: what they are given, what they do to it, and how they are ended."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.conditions import wait_until
from tests.crash.site import COMPANY, Site

CHILDREN = Path(__file__).parents[1] / "children"


def child(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(CHILDREN / f"{name}.py"), *arguments]


def test_the_environment_is_the_allow_list_and_nothing_of_the_database(site: Site) -> None:
    secret = site.database.dsn
    surroundings = {"WAKEFUL_DSN": secret, "PGPASSWORD": "hush", "WAKEFUL_LISTEN_DSN": secret, "SECRET": "hush"}
    allow = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "WAKEFUL_DSN", "WAKEFUL_LISTEN_DSN"]
    site.agent(["env"], env_allow=allow, env_values=json.dumps({"GREETING": "hello"}))
    site.scheduler(environment=surroundings).wait_ready()
    site.wake("issue")
    run = site.wait_run()
    environment = dict(line.split("=", 1) for line in run["stdout_tail"].splitlines())
    given = {name for name in environment if not name.startswith("WAKEFUL_")}
    assert given - {"GREETING"} <= {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"}
    assert environment["GREETING"] == "hello"
    assert {name for name in environment if name.startswith("WAKEFUL_")} == {
        f"WAKEFUL_{name}"
        for name in ("RUN", "COMPANY", "AGENT", "ISSUE", "INPUT", "RESULT", "COORD", "INSTANCE", "TOKEN")
    }
    assert environment["WAKEFUL_RUN"] == f"{run['id']}-1"
    assert environment["WAKEFUL_TOKEN"] == f"1.{run['id']}.1"
    assert secret not in run["stdout_tail"]
    assert "hush" not in run["stdout_tail"]
    given_input = json.loads(Path(environment["WAKEFUL_INPUT"]).read_text())
    assert (given_input["v"], given_input["run"], given_input["attempt"]) == (1, str(run["id"]), 1)
    assert secret not in json.dumps(given_input)


def test_twenty_megabytes_on_each_output(site: Site) -> None:
    site.agent(child("flood"))
    site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run()
    assert (run["state"], run["stdout_bytes"], run["stderr_bytes"]) == ("succeeded", 20_000_000, 20_000_000)
    assert len(run["stdout_tail"].encode()) <= 8192
    assert run["stdout_tail"].endswith("x\n")


def test_output_that_is_no_utf8_and_exit_3(site: Site) -> None:
    site.agent(["sh", "-c", r"printf 'a\377\000b'; printf '\200' >&2; exit 3"])
    site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run()
    assert (run["state"], run["end_class"], run["exit_code"]) == ("failed", "failed", 3)
    assert (run["stdout_tail"], run["stdout_altered"], run["stdout_bytes"]) == ("a\ufffd\ufffdb", True, 4)
    assert (run["stderr_tail"], run["stderr_altered"]) == ("\ufffd", True)


@pytest.mark.parametrize(
    "result",
    [
        b'{"class": "ok", "artifacts": [1e999]}',
        b'{"v": 1, "artifacts": ' + b"[" * 600 + b"]" * 600 + b"}",
        b'{"message": "\\ud800\\u0000"}',
        b"\xff\xfe{",
    ],
    ids=["infinite", "deep", "unstorable text", "no text"],
)
def test_no_result_keeps_its_run_from_ending(site: Site, result: bytes) -> None:
    held = site.root / "result"
    held.write_bytes(result)
    site.agent(["sh", "-c", f'cp {held} "$WAKEFUL_RESULT"'])
    site.agent(["true"], "other")
    site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run()
    assert (run["state"], run["end_class"]) in {("failed", "bad_result"), ("succeeded", "ok")}
    site.wake(None, "other")
    wait_until(lambda: [one["state"] for one in site.runs()][1:] == ["succeeded"], what="the next run's end")


def test_a_command_that_does_not_exist(site: Site) -> None:
    site.agent(["/nowhere/at/all"])
    site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run()
    assert (run["state"], run["reason"], run["attempt"]) == ("failed", "run.not_started", 1)
    assert "/nowhere/at/all" in run["message"]


def test_a_contract_that_the_executor_refuses(site: Site) -> None:
    """It fails at once, with the executor's reason; the next run is none the worse for it."""
    site.agent(["true"], env_values=json.dumps({"WAKEFUL_DSN": "mine"}))
    site.agent(["true"], "other")
    site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run()
    assert (run["state"], run["reason"], run["evidence"]) == ("failed", "run.not_started", "contained")
    assert "WAKEFUL_DSN" in run["message"]
    site.wake(None, "other")
    wait_until(lambda: [one["state"] for one in site.runs()][1:] == ["succeeded"], what="the next run's end")


def test_a_child_that_daemonises_takes_nothing_with_it(site: Site) -> None:
    site.agent(child("daemonise"))
    site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run()
    assert (run["state"], run["evidence"]) == ("succeeded", "contained")
    assert not Path(f"/proc/{run['stdout_tail'].strip()}").exists()
    site.wait_alone()


def test_a_tree_that_ignores_term_is_gone_after_a_stop(site: Site) -> None:
    site.agent(child("stubborn_tree", "stay"), stop_grace="0.2 seconds")
    site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run("running")
    wait_until(lambda: any(path.read_bytes() for path in site.data.glob("runs/*/*/1/stdout")), what="a grandchild")
    assert site.stop(run["id"]) == "stopping"
    run = site.wait_run()
    assert (run["state"], run["end_class"], run["evidence"]) == ("cancelled", "stopped", "contained")
    assert run["stop_by"] is not None
    site.wait_alone()


def test_panic_stops_what_runs_and_claims_nothing(site: Site) -> None:
    gate = site.gate()
    site.writer(gate.wait)
    site.scheduler().wait_ready()
    site.wake("issue")
    site.wait_run("running")
    site.conn.execute("SELECT wakeful.panic_company(%s)", (COMPANY,))
    assert site.wait_run()["state"] == "cancelled"
    site.wait_alone()


@pytest.mark.parametrize(
    ("contract", "end_class"),
    [({"max_runtime": "0.3 seconds"}, "timed_out"), ({"silence_limit": "0.3 seconds"}, "silent")],
)
def test_limits_of_the_contract(site: Site, contract: dict[str, str], end_class: str) -> None:
    gate = site.gate()
    site.writer(gate.wait, stop_grace="0.2 seconds", **contract)
    site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run()
    assert (run["state"], run["end_class"], run["reason"]) == ("failed", end_class, f"run.{end_class}")
    site.wait_alone()


def test_the_runner_is_killed(site: Site) -> None:
    """Its orphans are ended, then the run is tried again."""
    gate = site.gate()
    site.writer(f'[ "${{WAKEFUL_RUN##*-}}" = 2 ] || {gate.wait}')
    site.scheduler().wait_ready()
    site.wake("issue")
    run = site.wait_run("running")
    site.wait_executions(1)
    (started,) = site.data.glob("runs/*/*/1/started")
    os.kill(json.loads(started.read_text())["runner"]["pid"], signal.SIGKILL)
    run = site.wait_run()
    assert (run["state"], run["generation"], run["attempt"]) == ("succeeded", 2, 2)
    assert site.executions() == [f"{run['id']}-1", f"{run['id']}-2"]
    site.wait_alone()


def test_work_that_kills_its_host_stops_at_its_attempt_limit(site: Site) -> None:
    gate = site.gate()
    site.writer(f"read host < {gate.path}; kill -9 $host $PPID", max_attempts=3)
    site.wake("issue")
    for attempt in (1, 2, 3):
        scheduler = site.scheduler()
        site.wait_executions(attempt)
        gate.open(str(scheduler.process.pid))
        scheduler.dies()
        assert (site.run()["attempt"], site.run()["generation"]) == (attempt, attempt)
    site.scheduler().wait_ready()
    run = site.wait_run()
    assert (run["state"], run["reason"], run["attempt"]) == ("failed", "run.attempts", 3)
    assert "3 attempts" in run["message"]
    assert run["error"] == "its runner was killed"
    assert len(site.executions()) == 3
    site.wait_alone()


def test_twenty_clicks_on_retry_are_one_run(site: Site) -> None:
    site.writer("exit 3")
    site.scheduler().wait_ready()
    site.wake("issue")
    failed = site.wait_run()
    conns = [site.connect() for _ in range(20)]
    together = threading.Barrier(20)
    answers: list[Any] = []

    def click(place: int) -> None:
        together.wait(10)
        text = "SELECT wake FROM wakeful.request_retry(%s, %s)"
        answers.append(conns[place].execute(text, (COMPANY, failed["id"])).fetchone()["wake"])

    threads = [threading.Thread(target=click, args=(place,)) for place in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 20
    assert len(set(answers)) == 1
    runs = wait_until(lambda: [run for run in site.runs() if run["ended_at"]][1:], what="the retry's end")
    assert [(run["retry_of"], run["state"]) for run in runs] == [(failed["id"], "failed")]
    assert len(site.executions()) == 2
    assert len(site.runs()) == 2


def cancel_against_finish(site: Site, number: int) -> None:
    site.writer()
    site.scheduler().wait_ready()
    for _ in range(number):
        site.wake()
    draw = random.Random(7)  # noqa: S311 - which run is cancelled when is no secret
    ended = "SELECT count(*) AS n FROM wakeful.run WHERE ended_at IS NOT NULL"
    live = "SELECT id FROM wakeful.run WHERE ended_at IS NULL ORDER BY id LIMIT 40"
    left = number // 2

    def cancel_one() -> bool:
        nonlocal left
        found = site.conn.execute(live).fetchall()
        if found and left:
            site.stop(draw.choice(found)["id"])
            left -= 1
        return bool(site.conn.execute(ended).fetchone()["n"] == number)

    wait_until(cancel_one, within=90, what=f"the end of {number} runs")
    runs = site.runs()
    succeeded = [run for run in runs if run["state"] == "succeeded"]
    cancelled = [run for run in runs if run["state"] == "cancelled"]
    assert len(succeeded) + len(cancelled) == len(runs) == number
    assert cancelled
    assert succeeded
    executed = site.executions()
    assert len(set(executed)) == len(executed)
    assert {f"{run['id']}-1" for run in succeeded} <= set(executed)
    assert not {f"{run['id']}-1" for run in cancelled if run["attempt"] == 0} & set(executed)
    assert site.count("refused_report") == 0
    site.wait_alone()


def test_cancel_against_finish(site: Site) -> None:
    cancel_against_finish(site, 40)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_cancel_against_finish_at_length(site: Site) -> None:
    cancel_against_finish(site, 300)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_five_hundred_wakes_two_schedulers_and_real_processes(site: Site) -> None:
    site.writer()
    for host in ("a", "b"):
        site.scheduler(host=host, data=site.root / host).wait_ready()
    for _ in range(500):
        site.wake()
    ended = "SELECT count(*) AS n FROM wakeful.run WHERE state = 'succeeded'"
    wait_until(lambda: site.conn.execute(ended).fetchone()["n"] == 500, within=240, what="500 ends")
    assert len(site.executions()) == len(set(site.executions())) == 500
    assert {run["attempt"] for run in site.runs()} == {1}
