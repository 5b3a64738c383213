"""How runs and the generations of their files end together: real children of the real executor, whole schedulers.

A child's words and its end count for the generation it was given at dispatch, and for no other.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from tests.conditions import wait_until
from tests.disks import Failing
from tests.integration.runs import queued
from tests.schedulers import running
from tests.speaking import AGENT, Host

from wakeful.crash_points import CrashPoint
from wakeful.executions import RunSpec
from wakeful.testing import HoldAt
from wakeful_coordination import Generation
from wakeful_coordination.errors import LeaseBusy, NotFound
from wakeful_plugins.local_executor import LocalExecutor

UNRECORDED = "its end could not be recorded"
USED = {"usage": [{"provider": "anthropic", "money": "0.5", "provenance": "reported"}]}
SUCCESS = json.dumps({"v": 1, "class": "ok", "message": "all done", **USED})


def replaced(host: Host, run: UUID) -> Generation:
    """Put a newer generation in the place of the one a run was given."""
    with host.root() as root:
        return root.generations.replace(host.carried(run))


def force_replaced(host: Host, generation: Generation) -> str:
    """Replace a generation without its lease, as no honest process does; return the newer one's id."""
    (home,) = host.path.glob(f"instances/*/{generation.instance}")
    record = json.loads((home / "generation.json").read_text())
    newer = {**record, "seq": record["seq"] + 1, "id": "f" * 32, "prev": record["id"]}
    (home / "spare").write_text(json.dumps(newer, sort_keys=True, separators=(",", ":")) + "\n")
    os.replace(home / "spare", home / "generation.json")
    return "f" * 32


def spent(host: Host) -> list[Decimal]:
    return [row["amount"] for row in host.rows("SELECT amount FROM wakeful.spend ORDER BY id")]


def terminals(host: Host, run: UUID, generation: int = 1) -> list[str]:
    return [name for name in host.files(run, generation) if name.startswith("terminal-")]


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


# ── the order of an end ─────────────────────────────────────────────────────────────────────────────────


def test_terminal_and_cleanup_come_before_the_row_and_agent_end_comes_after_it(host: Host) -> None:
    held = HoldAt(CrashPoint.TERMINAL_BEFORE_COMMIT)
    host.agent("cache")
    with running(host.scheduler(crash=held)):
        host.wake()
        held.wait_reached()
        (run,) = host.rows("SELECT id FROM wakeful.run")
        own = host.carried(run["id"])
        with host.root() as root:
            terminal, current = root.terminals.read(own), root.generations.current(own.instance)
        assert terminal is not None
        assert current is not None
        assert (terminal.outcome, terminal.reason, current.open) == ("succeeded", "run.ok", False)
        assert not {"cache", f"end-{own.id}.json"} & set(host.files(run["id"]))
        assert host.rows("SELECT FROM wakeful.run WHERE ended_at IS NOT NULL") == []
        held.release()
        assert host.run()["state"] == "succeeded"
        wait_until(lambda: host.end_of(run["id"]), what="agent.end")
    assert host.end_of(run["id"]) == "succeeded"


def test_an_unfinished_cleanup_delays_agent_end_and_nothing_else(host: Host) -> None:
    # The flush after the cache was set aside fails: the terminal stands, the cleanup does not.
    disk = Failing("rename held-")
    host.agent("cache")
    with running(host.scheduler(files=lambda: disk)):
        host.wake()
        run = host.run()
        assert (run["state"], run["error"]) == ("succeeded", None)
    assert host.end_of(run["id"]) is None
    assert [name for name in host.files(run["id"]) if name.startswith("held-")]
    with running(host.scheduler()):
        wait_until(lambda: host.end_of(run["id"]), what="agent.end")
    assert host.end_of(run["id"]) == "succeeded"
    assert not [name for name in host.files(run["id"]) if name.startswith(("held-", "cache"))]
    assert len(terminals(host, run["id"])) == 1


# ── a terminal that fails ───────────────────────────────────────────────────────────────────────────────


def test_caught_error_does_not_hide_a_terminal_failure(host: Host) -> None:
    """Mutant C12: the script catches its child's error, the command exits 0, and the run has failed all the same."""
    host.agent("spend=0.25", "fail=3", after="|| echo caught")
    with running(host.scheduler(files=lambda: Failing("rename_new terminal-"))):
        host.wake()
        run = host.run()
    assert (run["exit_code"], run["stdout_tail"].splitlines()[-1]) == (0, "caught")
    assert (run["state"], run["end_class"], run["reason"]) == ("failed", "failed", "run.unrecorded")
    assert run["message"].startswith(f"{UNRECORDED}: fsync of instances/")
    assert Decimal("0.25") in spent(host)
    assert host.end_of(run["id"]) is None


def test_a_terminal_failure_makes_a_claimed_success_a_failure_and_keeps_its_costs(host: Host) -> None:
    host.agent(f"result={SUCCESS}")
    with running(host.scheduler(files=lambda: Failing("rename_new terminal-"))):
        host.wake()
        run = host.run()
    assert (run["state"], run["reason"], run["exit_code"]) == ("failed", "run.unrecorded", 0)
    assert run["result"]["message"] == "all done"
    assert sum(spent(host)) == Decimal("0.5")


def test_a_contradictory_terminal_makes_the_run_fail(host: Host) -> None:
    gate = host.gate()
    host.agent(f"wait={gate}")
    with running(host.scheduler()):
        host.wake()
        run = host.run("running")
        with host.root() as root:  # somebody else has said already how it ended
            root.terminals.record(host.carried(run["id"]), "failed", "says somebody")
        host.open(gate)
        run = host.run()
    assert (run["state"], run["reason"]) == ("failed", "run.unrecorded")
    assert "ended failed, not succeeded" in run["error"]
    assert len(terminals(host, run["id"])) == 1
    assert host.end_of(run["id"]) is None


def test_a_failure_keeps_its_own_reason_when_its_terminal_fails_too(host: Host) -> None:
    host.agent("fail=7")
    with running(host.scheduler(files=lambda: Failing("rename_new terminal-"))):
        host.wake()
        run = host.run()
    assert (run["state"], run["end_class"], run["reason"], run["exit_code"]) == ("failed", "failed", "run.failed", 7)
    assert UNRECORDED in run["error"]


# ── cancellation ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("terminal_fails", [False, True], ids=["terminal", "failing terminal"])
def test_cancellation_keeps_its_error_and_its_costs(host: Host, *, terminal_fails: bool) -> None:
    """Mutant C13: the child outlives TERM, reports success and exits 0; it was cancelled all the same."""
    said = host.home / "said"
    host.agent(f"line={said}", "obey", f"result={SUCCESS}", stop_grace="20 seconds")
    files = (lambda: Failing("rename_new terminal-")) if terminal_fails else None
    with running(host.scheduler(files=files)):
        host.wake()
        wait_until(said.exists, what="the agent at work")
        run = host.run("running")
        host.conn.execute("SELECT wakeful.stop_run('acme', %s)", (run["id"],))
        run = host.run()
        assert (run["state"], run["end_class"], run["reason"]) == ("cancelled", "stopped", "run.stopped")
        assert run["exit_code"] == 0
        assert sum(spent(host)) == Decimal("0.5")
        if terminal_fails:
            assert UNRECORDED in run["error"]
        else:
            wait_until(lambda: host.end_of(run["id"]), what="agent.end")
    assert host.end_of(run["id"]) == (None if terminal_fails else "cancelled")


# ── resume ──────────────────────────────────────────────────────────────────────────────────────────────


def test_resume_runs_again_what_has_no_agent_end_and_nothing_else(host: Host, tmp_path: Path) -> None:
    """A killed attempt has none and is run again; the attempt that has one is not, whoever asks."""
    lines, gate = tmp_path / "lines", host.gate()
    host.agent(f"line={lines}", f"wait={gate}", max_attempts=3)
    with running(host.scheduler()):
        host.wake()
        run = host.run("running")
        wait_until(lambda: lines.exists() and len(lines.read_text().split()) == 1, what="the first attempt")
        (started,) = host.data.glob(f"runs/*/{run['id']}/1/started")
        os.kill(json.loads(started.read_text())["runner"]["pid"], 9)
        wait_until(lambda: len(lines.read_text().split()) == 2, what="the second attempt")
        host.open(gate)
        run = host.run()
        assert (run["state"], run["generation"]) == ("succeeded", 2)
        wait_until(lambda: host.end_of(run["id"], 2), what="agent.end")
        wait_until(lambda: terminals(host, run["id"], 1), what="the first attempt's terminal")
    assert (host.end_of(run["id"], 1), host.end_of(run["id"], 2)) == (None, "succeeded")
    with running(host.scheduler()):  # another life, and another executor that is asked for the same
        executor = LocalExecutor(host.data)
        spec = RunSpec((sys.executable, str(AGENT), f"line={lines}"), {"v": 1}, agent="coder", token=f"1.{run['id']}.2")
        executor.submit(spec, host.key(run["id"], 2))
        executor.close()
    assert lines.read_text().split() == [f"{run['id']}-1", f"{run['id']}-2"]
    assert (host.end_of(run["id"], 1), host.end_of(run["id"], 2)) == (None, "succeeded")


def test_what_an_earlier_release_left_open_is_ended_at_the_next_start(host: Host) -> None:
    """Its run is over, and nobody had recorded that in its files."""
    host.agent("cache")
    with running(host.scheduler()):
        host.wake()
        run = host.run()
        wait_until(lambda: host.end_of(run["id"]), what="agent.end")
    key = host.key(run["id"], 1)
    plain = host.database.connect()
    left, living = host.key(queued(plain)), host.key(queued(plain, host="elsewhere"))
    host.conn.execute("UPDATE wakeful.run SET state = 'failed', ended_at = wakeful.now() WHERE id = %s", (left.run,))
    with host.root() as root:
        own, session = root.generations.open(left.cookie), root.generations.open("acme.session-7")
        alive = root.generations.open(living.cookie)
        root.caches.write(own, b"of an ended run")
        known = root.ends.read(host.carried(key.run))
    with running(host.scheduler()), host.root() as root:
        wait_until(lambda: root.ends.read(own), what="the end that was left")
        assert root.ends.read(own).outcome == "failed"
        assert root.caches.read(own) is None
        assert root.generations.capture(session.instance) == session
        assert root.generations.capture(alive.instance) == alive
        assert root.ends.read(host.carried(key.run)) == known
        with pytest.raises(NotFound):
            root.generations.capture(own.instance)


# ── replacement ─────────────────────────────────────────────────────────────────────────────────────────


def test_replacement_during_preparation_refuses_the_old_child_and_spares_the_new_generation(host: Host) -> None:
    gate = host.gate()
    host.agent("cache", f"wait={gate}", "spend=9", after="2>&1")
    with running(host.scheduler()):
        host.wake()
        run = host.run("running")
        wait_until(lambda: "cache" in host.files(run["id"]), what="the old child's cache")
        newer = replaced(host, run["id"])
        with host.root() as root:
            root.caches.write(newer, b"the newer one's")
        host.open(gate)
        run = host.run()
    assert "has been replaced by 2" in run["stdout_tail"]
    assert (run["state"], spent(host), host.pending()) == ("failed", [], [])
    assert UNRECORDED in run["error"]
    with host.root() as root:
        assert root.caches.read(newer) == b"the newer one's"
        assert root.terminals.read(newer) is None
        assert root.generations.capture(newer.instance) == newer


def test_replacement_during_mutation_sets_the_old_transaction_aside(host: Host) -> None:
    gate = host.gate()
    host.agent(f"mutate={gate}")
    with running(host.scheduler()):
        host.wake()
        run = host.run("running")
        wait_until(lambda: ".tmp-state.json" in host.files(run["id"]), what="the transaction at its mutation")
        own = host.carried(run["id"])
        newer = Generation(own.instance, 2, force_replaced(host, own))
        host.open(gate)
        run = host.run()
    assert "superseded: generation 1" in run["stdout_tail"], run["stderr_tail"]
    assert (run["state"], run["reason"], spent(host)) == ("failed", "run.unrecorded", [])
    assert host.pending() == []
    with host.root() as root:
        assert root.state(newer) is None
        assert len(root.survey.overview().quarantined) == 1


def test_pending_replay_after_replacement_never_binds_to_the_newer_generation(host: Host) -> None:
    first, second = host.gate("first"), host.gate("second")
    said = host.home / "said"
    host.agent(f"wait={first}", "spend=9", f"line={said}", f"wait={second}")
    with running(host.scheduler()):
        host.wake()
        run = host.run("running")
    host.open(first)  # nobody hears what it says now
    wait_until(said.exists, what="the agent's word")
    (pending,) = host.pending()
    newer = replaced(host, run["id"])
    with running(host.scheduler()):
        wait_until(lambda: not host.pending(), what="the replay")
        host.open(second)
        run = host.run()
    assert spent(host) == []
    with host.root() as root:
        (aside,) = root.survey.overview().quarantined
        assert f"{aside.txid}.json" == pending
        assert "has been replaced by 2" in aside.reason
        assert root.authority.receipt(aside.txid) is None
        assert root.generations.capture(newer.instance) == newer


def test_explicit_quarantine_keeps_and_applies_nothing(host: Host) -> None:
    first, second = host.gate("first"), host.gate("second")
    said = host.home / "said"
    host.agent(f"wait={first}", "spend=9", "spend=0.5", f"line={said}", f"wait={second}")
    with running(host.scheduler()):
        host.wake()
        run = host.run("running")
    host.open(first)
    wait_until(said.exists, what="the agent's words")
    distrusted = host.pending()[0].removesuffix(".json")
    with host.root() as root:
        root.quarantine.order(distrusted, "nine is too much")
    with running(host.scheduler()):
        wait_until(lambda: spent(host), what="the other spend")
        host.open(second)
        run = host.run()
        wait_until(lambda: host.end_of(run["id"]), what="agent.end")
    assert (run["state"], spent(host)) == ("succeeded", [Decimal("0.5")])
    with host.root() as root:
        (aside,) = root.survey.overview().quarantined
        assert (aside.txid, aside.reason) == (distrusted, "operator: nine is too much")
        assert root.authority.receipt(distrusted) is None


# ── exclusion and progress ──────────────────────────────────────────────────────────────────────────────


def test_invariant_01_and_23_one_holder_per_instance_and_no_wait_between_instances(host: Host) -> None:
    """One agent keeps its own lease; another one's run ends meanwhile, and nobody gets the kept lease."""
    gate = host.gate()
    host.agent(f"hold={gate}", agent="holder")
    host.agent("cache", "spend=0.5")
    with running(host.scheduler()):
        host.wake(agent="holder")
        held = host.run("running", agent="holder")["id"]
        own = host.carried(held)
        with host.root() as root:
            wait_until(lambda: root.survey.instance(own.instance).holders, what="the kept lease")
            host.wake()
            run = host.run()
            assert (run["state"], spent(host)) == ("succeeded", [Decimal("0.5")])
            wait_until(lambda: host.end_of(run["id"]), what="the other run's agent.end")
            with pytest.raises(LeaseBusy), root.lease(own.instance, timeout=0.05):
                pass
        assert host.run("running", agent="holder")["state"] == "running"
        host.open(gate)
        assert host.run(agent="holder")["state"] == "succeeded"


def test_an_end_waits_for_who_is_at_work_on_its_instance_and_overtakes_nobody(host: Host) -> None:
    gate = host.gate()
    host.agent("cache", f"wait={gate}")
    with running(host.scheduler()):
        host.wake()
        run = host.run("running")
        wait_until(lambda: "cache" in host.files(run["id"]), what="the agent's own work")
        with host.root() as root, root.lease(host.carried(run["id"]).instance):
            host.open(gate)
            wait_until(lambda: list(host.data.glob(f"runs/*/{run['id']}/1/exit.json")), what="the child's end")
            (process,) = host.data.glob(f"runs/*/{run['id']}/1")
            wait_until(lambda: not is_locked(process / "lock"), what="the runner's end")
            assert not terminals(host, run["id"])
            assert host.run("running")["ended_at"] is None
        run = host.run()
        assert (run["state"], run["error"]) == ("succeeded", None)
        wait_until(lambda: host.end_of(run["id"]), what="agent.end")


def test_an_end_that_somebody_never_lets_be_recorded_is_unrecorded(host: Host) -> None:
    gate = host.gate()
    host.agent(f"wait={gate}")
    with running(host.scheduler(patience=timedelta(seconds=0.2))):
        host.wake()
        run = host.run("running")
        with host.root() as root, root.lease(host.carried(run["id"]).instance):
            host.open(gate)
            run = host.run()
    assert (run["state"], run["reason"]) == ("failed", "run.unrecorded")
    assert "for 0.2 s" in run["error"]
    assert host.end_of(run["id"]) is None


def test_the_generation_captured_at_dispatch_is_carried_to_the_end_by_another_process(host: Host) -> None:
    gate = host.gate()
    host.agent("cache", f"wait={gate}")
    with running(host.scheduler()):
        host.wake()
        run = host.run("running")
    own = host.carried(run["id"])
    host.open(gate)
    with running(host.scheduler()):
        run = host.run()
        wait_until(lambda: host.end_of(run["id"]), what="agent.end")
    with host.root() as root:
        terminal = root.terminals.read(own)
    assert terminal is not None
    assert terminal.outcome == "succeeded"
    assert terminals(host, run["id"]) == [f"terminal-{own.id}.json"]
