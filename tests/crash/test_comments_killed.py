"""SIGKILL of the scheduler while comments become a run: they reach one run, and what it says is posted once."""

from __future__ import annotations

import json

import pytest
from tests.conditions import wait_until
from tests.crash.site import COMPANY, Site

from wakeful.crash_points import CrashPoint

POINTS = (
    *(CrashPoint.ADMISSION_BEFORE_COMMIT, CrashPoint.ADMISSION_AFTER_COMMIT),
    *(CrashPoint.CLAIM_BEFORE_COMMIT, CrashPoint.CLAIM_AFTER_COMMIT, CrashPoint.SPAWN_BEFORE_STARTED),
    *(CrashPoint.TERMINAL_BEFORE_COMMIT, CrashPoint.TERMINAL_AFTER_COMMIT),
)
SAYS = '{"comment": "done"}'


@pytest.mark.parametrize("point", POINTS)
def test_words_are_neither_lost_nor_doubled(site: Site, point: CrashPoint) -> None:
    heard = site.root / "heard.json"
    site.writer(f'cp "$WAKEFUL_INPUT" {heard}; echo \'{SAYS}\' > "$WAKEFUL_RESULT"')
    first = site.scheduler(crash=point)
    for id in ("c-1", "c-2"):
        site.conn.execute(
            "SELECT wakeful.save_comment(%s, 'I-1', %s, 'user:ann', id => %s, agent => 'coder')",
            (COMPANY, f"words of {id}", id),
        )
    first.dies()
    site.scheduler().wait_ready()
    run = site.wait_run()
    assert (run["state"], run["comments"], run["authority"]) == ("succeeded", ["c-1", "c-2"], "user:ann"), site.logs()
    assert len(site.executions()) == 1
    given = json.loads(heard.read_text())
    assert [(one["id"], one["body"]) for one in given["comments"]] == [
        ("c-1", "words of c-1"),
        ("c-2", "words of c-2"),
    ]
    assert given["authority"] == "user:ann"
    posted = site.conn.execute("SELECT body, author_kind, author, run FROM wakeful.comment WHERE run IS NOT NULL")
    assert posted.fetchall() == [{"body": "done", "author_kind": "agent", "author": "coder", "run": run["id"]}]
    assert [wake["state"] for wake in site.conn.execute("SELECT state FROM wakeful.wake").fetchall()] == ["linked"]


def test_words_saved_behind_a_run_whose_end_nobody_heard_of(site: Site) -> None:
    """Their receipt has no clock, and the signal of that end dies with its scheduler."""
    gate = site.gate()
    site.writer(gate.wait)
    first = site.scheduler(crash=CrashPoint.TERMINAL_AFTER_COMMIT).wait_ready()
    site.wake("I-1")
    site.wait_run("running")
    site.conn.execute("SELECT wakeful.save_comment(%s, 'I-1', 'words', 'user:ann', id => 'c-1')", (COMPANY,))
    [parked] = site.conn.execute(
        "SELECT due_at, wait_reason FROM wakeful.wake WHERE kind = 'saved_comments'"
    ).fetchall()
    assert parked == {"due_at": None, "wait_reason": "execution.live_run"}
    gate.open()
    first.dies()
    site.scheduler().wait_ready()
    gate.open()
    wait_until(lambda: [run for run in site.runs() if run["comments"] and run["ended_at"]], what="the run of the words")
    assert [(run["comments"], run["state"]) for run in site.runs()] == [([], "succeeded"), (["c-1"], "succeeded")]
    site.wait_alone()
