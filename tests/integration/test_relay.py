"""What agents say by files reaches rows while a scheduler lives, before their run's end, once: real children."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from decimal import Decimal

from tests.conditions import wait_until
from tests.disks import Counting
from tests.schedulers import running
from tests.speaking import Host

from wakeful.crash_points import CrashPoint
from wakeful.testing import HoldAt, Statements

OURS = "application_name = 'wakeful attendants' AND datname = current_database()"


def reasons(host: Host) -> list[str]:
    """Return why each refused event is still pending."""
    with host.root() as root:
        notes = [root.undelivered.read(name.removesuffix(".json")) for name in host.pending()]
    return [note.reason for note in notes if note is not None and note.refused]


def spent(host: Host) -> list[tuple[Decimal, bool]]:
    return [(row["amount"], row["run"] is not None) for row in host.rows("SELECT * FROM wakeful.spend ORDER BY id")]


def test_events_reach_rows_while_their_run_lives_and_nobody_asks(host: Host) -> None:
    gate = host.gate()
    host.agent("spend=0.25", "comment=half done", "status=in_review", f"wait={gate}")
    with running(host.scheduler()):
        host.wake("I-1")
        wait_until(lambda: host.rows("SELECT FROM wakeful.status_decision"), what="the decision")
        wait_until(lambda: not host.pending(), what="an empty outbox")
        run = host.run("running")
        (spend,) = host.rows("SELECT * FROM wakeful.spend")
        assert (spend["amount"], spend["run"], spend["agent"]) == (Decimal("0.25"), run["id"], "coder")
        (comment,) = host.rows("SELECT * FROM wakeful.comment")
        assert (comment["issue"], comment["author_kind"], comment["author"]) == ("I-1", "agent", "coder")
        assert (comment["body"], comment["run"]) == ("half done", run["id"])
        (decision,) = host.rows("SELECT * FROM wakeful.status_decision")
        assert (decision["status"], decision["actor"]) == ("in_review", "agent:coder")
        host.open(gate)
        assert host.run()["state"] == "succeeded"


def test_what_was_said_is_recorded_before_the_end_is(host: Host) -> None:
    """Even if no doorbell rang, so that nobody else looks."""
    held, gate, disk = HoldAt(CrashPoint.TERMINAL_BEFORE_COMMIT), host.gate(), Counting()
    host.agent(f"wait={gate}", "silent=0.5", "comment=done")
    with running(host.scheduler(crash=held, files=lambda: disk)):
        host.wake("I-1")
        wait_until(lambda: disk.listed, what="the watcher's first look")
        host.open(gate)
        held.wait_reached()
        assert spent(host) == [(Decimal("0.5"), True)]
        assert len(host.rows("SELECT FROM wakeful.comment")) == 1
        assert (host.pending(), host.rows("SELECT ended_at FROM wakeful.run")) == ([], [{"ended_at": None}])
        held.release()
        assert host.run()["state"] == "succeeded"


def test_what_a_killed_attempt_said_is_its_own(host: Host) -> None:
    """Its runner is killed, and no doorbell rang; its authority passes on only after it was heard."""
    gate, disk = host.gate(), Counting()
    host.agent(f"wait={gate}", "silent=0.5", after="; kill -9 $PPID", max_attempts=1)
    with running(host.scheduler(files=lambda: disk)):
        host.wake("I-1")
        wait_until(lambda: disk.listed, what="the watcher's first look")
        host.open(gate)
        run = host.run()
    assert run["reason"] == "run.attempts"
    assert spent(host)[0] == (Decimal("0.5"), True)
    assert host.rows("SELECT attempt FROM wakeful.spend WHERE amount = 0.5") == [{"attempt": 1}]
    assert host.pending() == []


def test_without_events_there_are_no_statements(host: Host, statements: Statements) -> None:
    gate, disk = host.gate(), Counting()
    host.agent(f"wait={gate}")
    with running(host.scheduler(rescan=timedelta(seconds=0.05), files=lambda: disk)):
        host.wake("I-1")
        host.run("running")
        wait_until(lambda: disk.listed, what="a first look")
        with statements.none(), host.root() as root:
            before = disk.listed
            for _ in range(5):
                root.outbox.ring()
            wait_until(lambda: disk.listed > before + 10, what="ten looks at an empty outbox")
        host.open(gate)
        host.run()


def test_what_was_said_while_no_scheduler_lived_is_heard_by_the_next(host: Host) -> None:
    first, second = host.gate("first"), host.gate("second")
    host.agent(f"wait={first}", "spend=0.75", f"line={host.home / 'said'}", f"wait={second}")
    with running(host.scheduler()):
        host.wake()
        host.run("running")
    host.open(first)
    wait_until(lambda: (host.home / "said").exists(), what="the agent's word")
    assert (len(host.pending()), spent(host)) == (1, [])
    with running(host.scheduler()):
        wait_until(lambda: spent(host), what="the spend")
        assert host.run("running")["state"] == "running"
        host.open(second)
        host.run()
    assert spent(host) == [(Decimal("0.75"), True)]


def test_what_the_database_refuses_is_kept_with_its_reason_and_hinders_nothing(host: Host) -> None:
    host.agent("raw=0.1", "other=acme.own", "spend=0.5")
    with running(host.scheduler()):
        host.wake()
        run = host.run()
        assert (run["state"], spent(host)) == ("succeeded", [(Decimal("0.5"), True)])
    assert len(host.pending()) == 2
    refused, unknown = reasons(host)
    assert "an exact amount" in refused
    assert "takes events of type acme.own" in unknown


def test_a_doorbell_that_nobody_hears_costs_latency_only(host: Host) -> None:
    gate = host.gate()
    host.agent("spend=0.25", f"wait={gate}")
    with running(host.scheduler(rescan=timedelta(seconds=0.2))):
        host.wake()
        host.run("running")
        wait_until(lambda: spent(host), what="the spend")
        os.rename(host.path / "doorbell", host.path / "deaf")
        (host.path / "doorbell").mkdir(mode=0o700)
        with host.root() as root:
            own = root.generations.capture(host.carried(host.run("running")["id"]).instance)
            root.publish(root.transaction(own, "spend", {"amount": 1}))
        wait_until(lambda: len(spent(host)) == 2, what="the second spend")
        host.open(gate)
        host.run()


def test_a_root_whose_doorbell_is_not_watched_is_looked_at(host: Host) -> None:
    gate = host.gate()
    host.agent("spend=0.25", f"wait={gate}")
    with running(host.scheduler(rescan=timedelta(seconds=0.2), watched=0)):
        host.wake()
        wait_until(lambda: spent(host), what="the spend")
        host.open(gate)
        host.run()


def test_a_lost_connection_loses_no_event(host: Host) -> None:
    gate = host.gate()
    host.agent("spend=0.25", f"wait={gate}", "spend=0.5")
    with running(host.scheduler()):
        host.wake()
        wait_until(lambda: spent(host), what="the first spend")
        killed = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OURS}"  # noqa: S608 - our own words
        wait_until(lambda: not host.rows(killed), what="the death of the relay's session")
        host.open(gate)
        assert host.run()["state"] == "succeeded"
    assert spent(host) == [(Decimal("0.25"), True), (Decimal("0.5"), True)]
    assert host.pending() == []


def test_an_end_waits_for_nothing_but_the_fence_of_its_run(host: Host) -> None:
    """An event that cannot be recorded for now delays the end; nothing is lost and nothing doubled."""
    gate = host.gate()
    host.agent(f"wait={gate}", "spend=0.5")
    with running(host.scheduler()):
        host.wake()
        run = host.run("running")
        blocker = host.database.connect()
        with blocker.transaction():
            blocker.execute("SELECT FROM wakeful.run WHERE id = %s FOR UPDATE", (run["id"],))
            host.open(gate)
            wait_until(host.pending, what="the event")
            waits = f"SELECT FROM pg_stat_activity WHERE {OURS} AND wait_event_type = 'Lock'"
            wait_until(lambda: host.rows(waits), what="the relay at the fence")
            assert (spent(host), host.run("running")["state"]) == ([], "running")
        assert host.run()["state"] == "succeeded"
    assert spent(host) == [(Decimal("0.5"), True)]


def test_a_company_whose_files_are_erased_begins_anew(host: Host) -> None:
    host.agent("spend=0.25")
    with running(host.scheduler(rescan=timedelta(seconds=0.1))):
        host.wake()
        host.run()
        shutil.rmtree(host.path)
        host.agent("spend=0.5", agent="other")
        host.wake(agent="other")
        assert host.run(agent="other")["state"] == "succeeded"
    assert [amount for amount, _ in spent(host)] == [Decimal("0.25"), Decimal("0.5")]


def test_an_older_generations_words_are_refused_and_kept_as_refused(host: Host) -> None:
    gate = host.gate()
    host.agent(f"wait={gate}", "comment=too late", "status=done")
    with running(host.scheduler()):
        host.wake("I-1")
        run = host.run("running")
        # Another authority has taken the run over.
        host.conn.execute("UPDATE wakeful.run SET generation = 2 WHERE id = %s", (run["id"],))
        host.open(gate)
        wait_until(lambda: len(host.pending()) == 2 and len(reasons(host)) == 2, what="both refusals")
        assert host.rows("SELECT FROM wakeful.comment") + host.rows("SELECT FROM wakeful.status_decision") == []
    assert set(reasons(host)) == {f"run {run['id']} is at generation 2: what its generation 1 said later is refused"}
