"""The demo's actors: real commands and real scheduler processes on a database of the demo's own.

An agent fails for want of an answer; its project's budget is spent; the retry that brings the answer is saved
and says why it waits; the server executes nothing meanwhile; the raise starts one run; the scheduler is killed
while it runs; the next one adopts it. Every figure comes from the reader, a process that shares no state with
any of this.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wakeful.errors import WakefulError

if TYPE_CHECKING:
    from wakeful.config import Config
    from wakeful.testing import Database

COMPANY = "acme"
QUIET = 5.0
PATIENCE = 20.0
BEAT = 0.05

Say = Callable[[str, str], None]


@dataclass(slots=True)
class Stage:
    """Where the demo plays: its database, its data directory, and what the outside said so far."""

    environ: dict[str, str]
    say: Say
    schedulers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def wakeful(self, *words: str) -> Any:
        """Run one command of the command line as anyone would, and return its JSON."""
        shown = " ".join(f"'{word}'" if " " in word or "{" in word else word for word in words)
        self.say("command", f"wakeful {shown}")
        command = [sys.executable, "-m", "wakeful.cli.main", *words, "--json"]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise WakefulError(
                f"the demo's command failed: wakeful {shown}: {done.stderr.strip() or done.stdout.strip()}"
            )
        return json.loads(done.stdout)

    def reader(self, *words: str) -> dict[str, Any]:
        """Ask the reader process."""
        command = [sys.executable, "-m", "wakeful.cli.demo_reader", *words]
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise WakefulError(f"the demo's reader failed: {done.stderr.strip()[-500:]}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def scheduler(self) -> subprocess.Popen[bytes]:
        """Start a scheduler process."""
        self.say("command", "wakeful up &")
        log = Path(self.environ["WAKEFUL_DATA"]) / f"scheduler-{len(self.schedulers) + 1}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "wakeful.cli.main", "up"],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.schedulers.append(process)
        return process

    def until(self, what: str, happened: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read the rows until something is in them."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = self.look()
            if happened(found):
                return found
            if time.monotonic() > deadline:
                raise WakefulError(f"the demo waited {PATIENCE:g} s in vain for {what}", hint=self._last_words())
            time.sleep(BEAT)

    def look(self) -> dict[str, Any]:
        """Read the rows here, only to know when to go on; the figures come from the reader."""
        from wakeful.cli.demo_reader import look

        return look(self.environ)

    def close(self) -> None:
        """Leave nothing running."""
        for process in self.schedulers:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
            process.wait()

    def _last_words(self) -> str:
        log = Path(self.environ["WAKEFUL_DATA"]) / f"scheduler-{len(self.schedulers)}.log"
        return log.read_text(errors="replace")[-500:] if log.exists() else "no scheduler was started"


def _check_counting(database: Database) -> None:
    """Raise WakefulError where the demo could not show its silence."""
    from wakeful.testing import Statements

    try:
        with Statements(database, nested=False):
            pass
    except AssertionError as error:
        raise WakefulError(
            f"the demo counts statements, and {error}", hint="or unset WAKEFUL_DSN: an embedded server counts"
        ) from None


@contextlib.contextmanager
def _scratch(embedded: bool) -> Iterator[Path]:
    """Lend a directory, and remove it with the home that root's embedded server may have had to make elsewhere."""
    from wakeful import postgres_home

    with tempfile.TemporaryDirectory(prefix="wakeful-demo-") as name:
        Path(name).chmod(0o755)  # so that it need not: the server runs as another account
        try:
            yield Path(name)
        finally:
            if embedded:
                shutil.rmtree(postgres_home.settle(Path(name) / "data").directory, ignore_errors=True)


@contextlib.contextmanager
def stage(config: Config, say: Say) -> Iterator[Stage]:
    """Set the stage: a fresh database on the named or embedded server, and a fresh data directory."""
    from wakeful import migrations
    from wakeful.testing import Server

    with (
        _scratch(embedded=config.dsn is None) as scratch,
        Server(dsn=config.dsn, data=scratch / "data", binaries=config.postgres) as server,
        server.database(migrated=False) as database,
    ):
        _check_counting(database)
        migrations.apply(database.connect(purpose="demo set-up"))
        data = scratch / "work"
        data.mkdir(mode=0o700)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WAKEFUL_")}
        demo = {
            "WAKEFUL_DSN": database.dsn,
            "WAKEFUL_DATA": str(data),
            "WAKEFUL_COMPANY": COMPANY,
            "WAKEFUL_DEMO_DSN": database.dsn,
            "WAKEFUL_DEMO_MAINTENANCE": database.maintenance_dsn,
            "WAKEFUL_DEMO_DATABASE": database.name,
            "WAKEFUL_DEMO_COMPANY": COMPANY,
            "WAKEFUL_DEMO_DATA": str(data),
        }
        play = Stage(kept | demo, say)
        try:
            yield play
        finally:
            play.close()


def perform(play: Stage) -> dict[str, Any]:
    """Play the main job and return what the reader found, judged."""
    say = play.say
    say("scene", "A company with a project, an agent and an issue")
    play.wakeful("company", "add", COMPANY)
    play.wakeful("project", "add", "site")
    play.wakeful("agent", "add", "writer", "--run", f"{sys.executable} {agent()}", "--estimate", "1")
    play.wakeful("issue", "create", "ISS-1", "--title", "Write the launch note", "--project", "site")
    play.scheduler()

    say("scene", "The agent runs, and fails: an answer is missing")
    play.wakeful("wake", "writer", "ISS-1")
    first = play.until("the first run's end", lambda found: any(run["ended_at"] for run in found["runs"]))["runs"][0]
    say("fact", f"run {first['id'][-6:]} {first['state']}, exit code {first['exit_code']}")

    say("scene", "Its project's budget is spent; a person brings the answer all the same")
    play.wakeful("budget", "set", "project:site", "10")
    play.wakeful("spend", "add", "12", "--project", "site")
    payload = '{"answer": "Ship on Friday", "seconds": 3}'
    saved = play.wakeful("retry", first["id"], "--payload", payload, "--key", "click-1")
    play.until("the saved retry to wait", lambda found: any(wake["wait_gate"] for wake in found["wakes"]))
    why = play.wakeful("why", saved["wake"])
    say("fact", f"saved. It waits: {why['message']}. It opens on: {why['opens_on']}")

    say("scene", f"Asleep: what does the database do for {QUIET:g} seconds?")
    idle = play.reader("quiet", str(QUIET))
    say("fact", f"{idle['idle_statements']} statements in {idle['idle_seconds']} s")
    asleep = play.reader("look")

    say("scene", "The budget is raised: the commit that opens the gate wakes the sleeper")
    play.wakeful("budget", "raise", "project:site", "50")
    running = play.until("the retry to run", lambda found: any(run["state"] == "running" for run in found["runs"]))
    run = next(run for run in running["runs"] if run["state"] == "running")
    say("fact", f"run {run['id'][-6:]} runs")

    say("scene", "The scheduler is killed (SIGKILL) while the agent works")
    play.schedulers[-1].send_signal(signal.SIGKILL)
    play.schedulers[-1].wait()
    before = play.reader("look")
    play.scheduler()
    play.until("the end of the adopted run", lambda found: all(run["ended_at"] for run in found["runs"]))

    say("scene", "Somebody clicks retry again, with another key and with the same one")
    clicks = [play.wakeful("retry", first["id"], "--key", key) for key in ("click-2", "click-1")]
    after = play.reader("look")
    figures = judge(asleep, before, after, idle, clicks, first["id"])
    say("fact", f"both clicks name run {(clicks[0]['run'] or '?')[-6:]}, which {after['runs'][-1]['state']}")
    return figures | {"timeline": after["audit"]}


def judge(
    asleep: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    idle: Mapping[str, Any],
    clicks: Sequence[Mapping[str, Any]],
    source: str,
) -> dict[str, Any]:
    """Turn what the reader saw, asleep, before the new scheduler and after all, into the demo's figures. Pure."""
    runs = after["runs"]
    states = [run["state"] for run in runs]
    retry = next(run for run in runs if run["retry_of"] == source)
    claimed = {run["id"]: run for run in before["runs"]}
    adopted = [
        run
        for run in runs
        if run["id"] in claimed
        and claimed[run["id"]]["ended_at"] is None
        and run["claimed_by"] != claimed[run["id"]]["claimed_by"]
        and (run["generation"], run["attempt"]) == (claimed[run["id"]]["generation"], claimed[run["id"]]["attempt"])
    ]
    wakes = [run["wake"] for run in runs if run["wake"]]
    unfinished = [wake for wake in after["wakes"] if wake["state"] == "deferred"]
    parked = next(wake for wake in asleep["wakes"] if wake["certified_run"] == source)
    repeated = sum(count - 1 for count in after["executed"].values()) + len(wakes) - len(set(wakes))
    same = all(click["run"] == retry["id"] and click["outcome"] == "existing" for click in clicks)
    figures: dict[str, Any] = {
        "runs": len(runs),
        "succeeded": states.count("succeeded"),
        "failed": states.count("failed"),
        "lost": states.count("lost") + len(unfinished),
        "duplicate_runs": repeated,
        "adopted": len(adopted),
        "idle_seconds": idle["idle_seconds"],
        "idle_statements": idle["idle_statements"],
        "why": {"gate": parked["wait_gate"], "reason": parked["wait_reason"], "opens_on": parked["opens_on"]},
        "second_click_same_run": same,
        "stdout_tail": retry["stdout_tail"],
    }
    figures["ok"] = bool(
        figures["runs"] == 2
        and figures["succeeded"] == 1
        and figures["failed"] == 1
        and runs[0]["exit_code"] == 3
        and figures["lost"] == 0
        and figures["duplicate_runs"] == 0
        and figures["adopted"] == 1
        and figures["idle_seconds"] >= QUIET
        and figures["idle_statements"] == 0
        and figures["why"]["gate"] == "budget"
        and same
        and len(after["wakes"]) == 2
        and figures["stdout_tail"]
    )
    return figures


def agent() -> Path:
    """Return the demo's agent program: the checkout's, else the copy in the installed package."""
    from importlib.resources import files

    import wakeful

    places = [Path(wakeful.__file__).parents[2] / "examples/agents", Path(str(files("wakeful") / "examples/agents"))]
    for place in places:
        if (place / "answering_agent.py").is_file():
            return place / "answering_agent.py"
    raise WakefulError("the demo's agent program is not installed", hint="run the demo from a checkout: make demo")
