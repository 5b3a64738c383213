"""SIGKILL of a scheduler around its claim of status intents: another one finds them, and finishes each once."""

from __future__ import annotations

import pytest
from tests.crash.site import COMPANY, Site

from wakeful.crash_points import CrashPoint
from wakeful.testing import VirtualClock

ALIKE = 3


def commit(site: Site) -> None:
    """Commit intents of one scope: each change of the issue's status makes one."""
    site.conn.execute("SELECT wakeful.create_issue(%s, 'issue')", (COMPANY,))
    site.conn.execute("UPDATE wakeful.issue SET assignee_kind = 'agent', assignee = 'coder'")
    for number in range(ALIKE):
        status = ("in_progress", "todo")[number % 2]
        site.conn.execute("SELECT wakeful.commit_status(%s, 'issue', %s)", (COMPANY, status))


@pytest.mark.parametrize(
    ("point", "arrival", "left"),
    [
        (CrashPoint.INTENT_BEFORE_COMMIT, 1, ["queued"]),
        (CrashPoint.INTENT_AFTER_COMMIT, 1, ["claimed"]),
        # The pass's own transaction passes these places first, with no receipt in it.
        (CrashPoint.ADMISSION_BEFORE_COMMIT, 2, ["claimed"]),
        (CrashPoint.ADMISSION_AFTER_COMMIT, 2, ["coalesced", "linked"]),
    ],
)
def test_intents_of_a_killed_scheduler_are_dispatched_once(
    site: Site, point: CrashPoint, arrival: int, left: list[str]
) -> None:
    site.writer("echo said")
    commit(site)
    site.scheduler(crash=point, arrival=arrival).dies()
    rows = site.conn.execute("SELECT DISTINCT state FROM wakeful.wake ORDER BY 1").fetchall()
    assert [row["state"] for row in rows] == left, site.logs()
    if left == ["claimed"]:
        lease = "SELECT DISTINCT due_at - claimed_at = interval '60 seconds' AS minute FROM wakeful.wake"
        assert site.conn.execute(lease).fetchall() == [{"minute": True}]
        VirtualClock(site.database.connect(purpose="test clock")).advance(60)
    site.scheduler().wait_ready()
    run = site.wait_run()
    assert (run["state"], run["stdout_tail"]) == ("succeeded", "said\n"), site.logs()
    assert len(site.executions()) == 1
    wakes = site.conn.execute("SELECT state, run FROM wakeful.wake ORDER BY id").fetchall()
    assert [wake["state"] for wake in wakes] == ["linked"] + ["coalesced"] * (ALIKE - 1)
    assert {wake["run"] for wake in wakes} == {run["id"]}
    site.wait_alone()
