"""Rows that somebody wrote around the producers: each fails alone, is reported, and holds up nothing else."""

from __future__ import annotations

import pytest
from tests.conditions import wait_until
from tests.crash.site import Site


@pytest.mark.parametrize(
    "payload",
    ["repeat('[', 6000) || repeat(']', 6000)", "repeat('9', 50000)"],
    ids=["deep", "long number"],
)
def test_a_payload_that_cannot_be_read_fails_its_own_run(site: Site, payload: str) -> None:
    site.writer()
    site.agent(["true"], "other")
    site.wake("issue")
    site.conn.execute(f"UPDATE wakeful.wake SET payload = ({payload})::jsonb")  # noqa: S608 - three texts of ours
    site.wake(None, "other")
    site.scheduler().wait_ready()
    wait_until(lambda: sum(run["ended_at"] is not None for run in site.runs()) == 2, within=20, what="both ends")
    runs = {run["agent"]: run for run in site.runs()}
    assert runs["other"]["state"] == "succeeded"
    assert (runs["coder"]["state"], runs["coder"]["reason"]) == ("failed", "run.not_started")
    assert site.executions() == []
