"""Schedulers, runners and the database are killed at moments nobody chose; afterwards everything adds up."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conditions import wait_until
from tests.crash.site import FINAL, SchedulerProcess, Site

from wakeful import migrations, postgres_home
from wakeful.postgres import EmbeddedServer
from wakeful.testing import Database, Statements

WAKES = 200
LIMIT = 4
ATTEMPTS = 20
SECONDS = 30.0
LEASE = (3.0, 1.0, 1.0)
COUNTS = "SELECT state, count(*) AS n FROM wakeful.run GROUP BY state"


class Hall:
    """A server of the campaign's own, and the site on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.server = EmbeddedServer(root / "server")
        self.server.start()
        self.database = self._database()
        migrations.apply(self.database.connect())
        self.site = Site(self.database, root)

    def _database(self) -> Database:
        return Database(self.server.dsn, self.server.admin_dsn, "wakeful", self.server.dsn)

    def postmaster(self) -> int:
        home = postgres_home.settle(self.root / "server")  # root's lies elsewhere
        return int((home.cluster / "postmaster.pid").read_text().split()[0])

    def restart(self) -> None:
        """Kill the postmaster and start the server again, as its next user would."""
        self.database.close()
        os.kill(self.postmaster(), signal.SIGKILL)
        self.server.stop()
        self.server = EmbeddedServer(self.root / "server")
        self.server.start()
        self.site.conn = self.site.connect()

    def close(self) -> None:
        self.site.close()
        self.database.close()
        self.server.stop()


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    made = Hall(tmp_path)
    yield made
    made.close()


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [7, 8])
def test_kills_at_any_moment(hall: Hall, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - which of them dies when is no secret
    site = hall.site
    script = f'echo "$WAKEFUL_RUN begin" >> {site.truth}; sleep 0.05; echo "$WAKEFUL_RUN end" >> {site.truth}'
    site.agent(["sh", "-c", script], max_attempts=ATTEMPTS, max_concurrent_runs=LIMIT)
    living = [site.scheduler(lease=LEASE), site.scheduler(lease=LEASE)]
    until = time.monotonic() + SECONDS
    for number in range(WAKES):
        site.wake(f"issue-{number}" if number % 2 else None)
        if number % 2 and time.monotonic() < until:
            moment = time.monotonic() + draw.uniform(0, 4 * SECONDS / WAKES)
            wait_until(lambda at=moment: time.monotonic() >= at, what="the next moment")
            strike(hall, living, draw)
    wait_until(lambda: over(site), within=120, what="the end of all runs")
    check(site)
    for one in living:
        one.close()
    site.scheduler(lease=LEASE).wait_ready()
    wait_silent(hall.database)


def strike(hall: Hall, living: list[SchedulerProcess], draw: random.Random) -> None:
    """Kill something, or nothing."""
    victim = draw.choices(("scheduler", "runner", "server", "nobody"), (3, 4, 0.3, 3))[0]
    if victim == "scheduler":
        place = draw.randrange(len(living))
        living[place].close()
        living[place] = hall.site.scheduler(lease=LEASE)
    elif victim == "runner" and (pids := runners(hall.site)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(pids), signal.SIGKILL)
    elif victim == "server":
        hall.restart()


def runners(site: Site) -> list[int]:
    """Return the runners that have not written how their command ended."""
    found = []
    for path in site.data.glob("runs/*/*/*/started"):
        if not (path.parent / "exit.json").exists():
            with contextlib.suppress(OSError, ValueError):
                found.append(int(json.loads(path.read_text())["runner"]["pid"]))
    return found


def over(site: Site) -> bool:
    counts = {row["state"]: row["n"] for row in site.conn.execute(COUNTS).fetchall()}
    return sum(counts.get(state, 0) for state in FINAL) == WAKES == sum(counts.values())


def check(site: Site) -> None:
    """One run record of each wake, one execution of each generation, nobody left alive, nothing left locked."""
    runs = {str(run["id"]): run for run in site.runs()}
    wakes = site.conn.execute("SELECT state, run FROM wakeful.wake").fetchall()
    assert {wake["state"] for wake in wakes} == {"linked"}
    assert len({wake["run"] for wake in wakes}) == len(wakes) == WAKES
    told = Counter(tuple(line.split()) for line in site.truth.read_text().splitlines())
    assert set(told.values()) == {1}
    for cookie, _ in told:
        run, _, generation = cookie.rpartition("-")
        assert int(generation) <= runs[run]["generation"]
    for run, row in runs.items():
        assert row["attempt"] <= ATTEMPTS
        assert row["state"] == "succeeded", row
        assert (f"{run}-{row['generation']}", "end") in told
    site.wait_alone()
    assert site.conn.execute("SELECT id FROM wakeful.issue WHERE execution_run IS NOT NULL").fetchall() == []


def wait_silent(database: Database) -> None:
    """Wait until three seconds have passed without one statement."""
    with Statements(database) as counted:
        since = time.monotonic()
        heard: Counter[str] = Counter()

        def silent() -> bool:
            nonlocal since
            if said := [one for one in counted.executed() if "pg_stat_statements" not in one.text]:
                heard.update(one.text for one in said)
                counted.reset()
                since = time.monotonic()
            return time.monotonic() >= since + 3

        try:
            wait_until(silent, within=30, what="three silent seconds")
        except AssertionError as error:
            raise AssertionError(f"{error}: {heard}") from None
