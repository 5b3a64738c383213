"""The local executor: real runners, real children, real crashes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pluggy
import pytest
from tests.conditions import wait_until

from wakeful.crash_points import CrashPoint
from wakeful.errors import ExecutorError
from wakeful.executions import (
    EndClass,
    Ended,
    ExitReport,
    Grade,
    NeverStarted,
    Pending,
    RunKey,
    Running,
    RunSpec,
    Status,
    Uncertain,
    Vanished,
)
from wakeful.hookspecs import Specs
from wakeful.testing import HoldAt
from wakeful_plugins import local_executor
from wakeful_plugins.local_executor import LocalExecutor

ROOT = Path(__file__).parents[2]
CHILDREN = ROOT / "tests" / "children"
SOURCES = (str(ROOT / "scheduler"), str(ROOT / "plugins"))
GRACE = timedelta(seconds=0.3)
LONG = timedelta(seconds=60)
FOREVER = (sys.executable, "-I", "-S", "-c", "import signal; print('up', flush=True); signal.pause()")


def child(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", str(CHILDREN / f"{name}.py"), *arguments)


def spec_of(*command: str, **changes: Any) -> RunSpec:
    return replace(RunSpec(command, {"v": 1, "wake": {}}, agent="coder", stop_grace=GRACE), **changes)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def carriers(key: RunKey) -> list[int]:
    """Return who carries a run's cookie, by a search of the test's own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"WAKEFUL_RUN={key.cookie}".encode() in environment:
                found.append(int(entry.name))
    return found


class Site:
    """One data root, with the executors and hosts that use it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.executors: list[LocalExecutor] = []
        self.hosts: list[subprocess.Popen[str]] = []
        self.keys: list[RunKey] = []

    def executor(self, **options: Any) -> LocalExecutor:
        """Return an executor that would find a stop request by itself only after a minute."""
        options = {"poll": LONG, "drain": GRACE, "patience": GRACE} | options
        self.executors.append(LocalExecutor(self.data, **options))
        return self.executors[-1]

    def key(self) -> RunKey:
        self.keys.append(RunKey("acme", uuid.uuid4(), 1))
        return self.keys[-1]

    def path(self, key: RunKey) -> Path:
        return self.data / "runs" / hashlib.sha256(b"acme").hexdigest()[:32] / str(key.run) / str(key.generation)

    def host(self, action: str, key: RunKey, place: str = "", command: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start another process that uses the executor."""
        words = [str(self.data), str(key.run), json.dumps(command), action, place]
        self.hosts.append(
            subprocess.Popen(
                [sys.executable, str(CHILDREN / "host.py"), *words],
                env=os.environ | {"PYTHONPATH": os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")])},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return self.hosts[-1]

    def line(self, key: RunKey) -> str:
        """Return the first line that the run printed."""
        path = self.path(key) / "stdout"
        return wait_until(
            lambda: path.exists() and path.read_text().rpartition("\n")[0].partition("\n")[0], what="a line on stdout"
        )

    def runner(self, key: RunKey) -> int:
        return wait_until(lambda: self.record(key, "started"))["runner"]["pid"]

    def record(self, key: RunKey, name: str) -> dict[str, Any]:
        path = self.path(key) / name
        return json.loads(path.read_text()) if path.exists() else {}

    def close(self) -> None:
        for host in self.hosts:
            host.kill()
            host.communicate()
        last = self.executor()
        for key in self.keys:
            if self.path(key).exists() and not isinstance(last.poll([key])[0], Uncertain):
                with contextlib.suppress(ExecutorError):  # some tests put something else in its files' place
                    last.stop(key, timedelta(0))
                wait_until(lambda key=key: not isinstance(last.examine(key), Running | Pending))
        for executor in self.executors:
            executor.close()
        for key in self.keys:  # nothing, unless a test has failed
            for pid in carriers(key):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A data root. The orphans of killed runners come to this process, and stay apart from other workers' tests."""
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    made = Site(tmp_path / "data")
    yield made
    made.close()
    prctl(36, 0, 0, 0, 0)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class News:
    """Waits for a status without polling: it looks again when the executor says so."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor = executor
        self._told = threading.Semaphore(0)
        executor.attach(self._told.release)

    def wait(self, key: RunKey, kind: type, seconds: float = 20) -> Any:
        deadline = time.monotonic() + seconds
        while not isinstance(status := self._executor.poll([key])[0], kind):
            if not self._told.acquire(timeout=max(0, deadline - time.monotonic())):
                raise AssertionError(f"{status} and no news within {seconds} s")
        return status


def run(site: Site, *command: str, **changes: Any) -> ExitReport:
    executor, key = site.executor(), site.key()
    news = News(executor)
    executor.submit(spec_of(*command, **changes), key)
    ended: Ended = news.wait(key, Ended)
    return ended.report


# -- one run


def test_a_run_from_submit_to_its_report(site: Site, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    executor, key = site.executor(), site.key()
    news = News(executor)
    before = datetime.now(UTC)
    executor.submit(spec_of("sh", "-c", "echo up; read x < fifo; echo no >&2; exit 3", cwd=str(tmp_path)), key)
    assert isinstance(executor.poll([key])[0], Pending | Running)
    running: Running = news.wait(key, Running)
    assert running.pid == site.record(key, "started")["pid"]
    with open(tmp_path / "fifo", "w") as fifo:
        fifo.write("go\n")
    report: ExitReport = news.wait(key, Ended).report
    assert report.key == key
    assert (report.exit_code, report.signal, report.ended_by, report.error) == (3, None, None, None)
    assert report.grade is Grade.CONTAINED
    assert before <= report.started_at == running.started_at <= report.ended_at <= datetime.now(UTC)
    assert report.stdout.path == str(site.path(key) / "stdout")
    assert (report.stdout.bytes, report.stdout.tail) == (3, "up\n")
    assert report.stdout.sha256 == hashlib.sha256(b"up\n").hexdigest()
    assert report.stderr.tail == "no\n"
    assert not report.stdout.altered
    assert not report.stdout.truncated
    assert report.result is None


def test_what_the_command_is_given(site: Site) -> None:
    own = {"PATH": os.environ["PATH"], "HOME": "/home/x", "SECRET": "s", "WAKEFUL_DSN": "d", "TZ": "UTC"}
    executor, key = site.executor(environ=own), site.key()
    news = News(executor)
    given = spec_of(
        *child("print_surroundings"),
        issue="T-1",
        token="1.2.3",
        instance="i-7",
        allow=("PATH", "HOME", "WAKEFUL_DSN", "ABSENT"),
        environment={"LITERAL": "ä=1", "HOME": "/else"},
    )
    executor.submit(given, key)
    news.wait(key, Ended)
    seen = json.loads((site.path(key) / "stdout").read_text())
    path, coordination = site.path(key), seen["environment"].pop("WAKEFUL_COORD")
    literal = os.fsencode(seen["environment"].pop("LITERAL")).decode()
    assert literal == "ä=1"
    assert seen["environment"] == {
        "PATH": os.environ["PATH"],
        "HOME": "/else",
        "WAKEFUL_RUN": f"{key.run}-1",
        "WAKEFUL_COMPANY": "acme",
        "WAKEFUL_AGENT": "coder",
        "WAKEFUL_ISSUE": "T-1",
        "WAKEFUL_INPUT": f"{path}/input.json",
        "WAKEFUL_RESULT": f"{path}/result.json",
        "WAKEFUL_INSTANCE": "i-7",
        "WAKEFUL_TOKEN": "1.2.3",
    }
    assert Path(coordination).is_relative_to(site.data)
    assert seen["cwd"] == str(path / "work")
    assert (seen["stdin"], seen["descriptors"]) == ("/dev/null", [0, 1, 2])
    assert json.loads((path / "input.json").read_text()) == {"v": 1, "wake": {}}
    for directory in (site.data / "runs", path, path / "work", path.parent, path.parent.parent, Path(coordination)):
        assert directory.stat().st_mode & 0o777 == 0o700
    assert {entry.name for entry in path.iterdir()} == {
        "lock", "input.json", "started", "stdout", "stderr", "exit.json", "work",
    }  # fmt: skip


def test_without_an_issue_its_variable_is_absent(site: Site) -> None:
    assert run(site, "sh", "-c", "echo ${WAKEFUL_ISSUE-none}").stdout.tail == "none\n"


def test_a_coordination_root_may_be_given(site: Site, tmp_path: Path) -> None:
    assert run(site, "printenv", "WAKEFUL_COORD", coordination=str(tmp_path)).stdout.tail == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": {"WAKEFUL_TOKEN": "mine"}}, "sets WAKEFUL_TOKEN"),
        ({"environment": {"WAKEFUL_X": "mine"}}, "sets WAKEFUL_X"),
        ({"environment": {"A": "b\0c"}}, "variable A holds a NUL"),
        ({"environment": {"A=B": "c"}}, "'A=B' cannot name"),
        ({"environment": {"": "c"}}, "'' cannot name"),
        ({"environment": {"A": 1}}, "variable A is not text but int"),
        ({"environment": {"A": "\ud800"}}, "variable A holds half of a surrogate pair"),
        ({"issue": "a\0b"}, "WAKEFUL_ISSUE holds a NUL"),
        ({"command": ()}, "no command"),
        ({"command": ("",)}, "empty word"),
        ({"command": ("sh", "a\0b")}, "command holds a NUL"),
        ({"cwd": "here"}, "'here' is relative"),
        ({"max_runtime": timedelta(0)}, "max_runtime is not positive"),
        ({"silence_limit": timedelta(seconds=-1)}, "silence_limit is not positive"),
        ({"stop_grace": timedelta(seconds=-1)}, "stop_grace is negative"),
        ({"input": {"a": float("nan")}}, "input is no JSON"),
        ({"input": {"a": object()}}, "input is no JSON"),
    ],
)
def test_what_no_process_can_be_given_is_refused(site: Site, changes: dict[str, Any], message: str) -> None:
    executor, key = site.executor(), site.key()
    with pytest.raises(ExecutorError, match=message) as caught:
        executor.submit(replace(spec_of("true"), **changes), key)
    assert caught.value.hint
    assert not site.path(key).exists()


def test_arguments_too_long_for_the_system_are_one_clear_error(site: Site) -> None:
    executor, key = site.executor(), site.key()
    with pytest.raises(ExecutorError, match="Argument list too long"):
        executor.submit(spec_of("true", "x" * 5_000_000), key)
    assert isinstance(executor.examine(key), NeverStarted)


def test_a_command_that_cannot_be_executed(site: Site) -> None:
    report = run(site, "no-such-program", environment={"PATH": "/usr/bin:/bin"})
    assert (report.exit_code, report.signal) == (None, None)
    assert report.error == "command no-such-program: No such file or directory"


def test_output_that_is_not_utf8_keeps_its_exit_status(site: Site) -> None:
    report = run(site, "sh", "-c", r"printf '\377\262a\000b'; exit 3")
    assert report.exit_code == 3
    assert report.stdout.tail == "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}a\N{REPLACEMENT CHARACTER}b"
    assert (report.stdout.altered, report.stdout.bytes) == (True, 5)


def test_much_output_leaves_a_bounded_tail(site: Site) -> None:
    report = run(site, *child("flood"))
    assert report.exit_code == 0
    for output in (report.stdout, report.stderr):
        assert output.bytes == 20_000_000
        assert output.sha256 == hashlib.sha256((b"x" * 999 + b"\n") * 20_000).hexdigest()
        assert output.tail == (("x" * 999 + "\n") * 9)[-8192:]


def test_output_over_the_cap_says_so(site: Site) -> None:
    executor, key = site.executor(output_cap=1000), site.key()
    news = News(executor)
    executor.submit(spec_of("sh", "-c", "seq 1 2000; echo few >&2"), key)
    report: ExitReport = news.wait(key, Ended).report
    assert (report.stdout.truncated, report.stderr.truncated) == (True, False)
    assert report.stdout.tail.endswith("\n[wakeful: output cut after 1000 bytes]\n")
    assert executor.logs(key, "stdout", 1000, 10_000) == b"\n[wakeful: output cut after 1000 bytes]\n"


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("printf '{\"end\": 1}' > $WAKEFUL_RESULT", b'{"end": 1}'),
        ("head -c 65536 /dev/zero > $WAKEFUL_RESULT", bytes(65536)),
        ("head -c 99999 /dev/zero > $WAKEFUL_RESULT", bytes(65537)),
        ("ln -s /etc/passwd $WAKEFUL_RESULT", b""),
        ("mkfifo $WAKEFUL_RESULT", b""),
        ("mkdir $WAKEFUL_RESULT", b""),
        ("true", None),
    ],
)
def test_the_result_is_handed_on_as_found(site: Site, script: str, result: bytes | None) -> None:
    assert run(site, "sh", "-c", script).result == result


def test_removed_output_does_not_hide_the_exit_status(site: Site) -> None:
    report = run(site, "sh", "-c", 'rm "${WAKEFUL_RESULT%result.json}stdout"; exit 4')
    assert (report.exit_code, report.stdout.bytes, report.stdout.altered) == (4, 0, True)


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"max_runtime": timedelta(seconds=0.2)}, EndClass.TIMED_OUT),
        ({"silence_limit": timedelta(seconds=0.2)}, EndClass.SILENT),
    ],
)
def test_limits(site: Site, changes: dict[str, Any], end: EndClass) -> None:
    report = run(site, *FOREVER, **changes)
    assert (report.ended_by, report.signal) == (end, signal.SIGTERM)


def test_what_outlives_the_command_is_counted(site: Site) -> None:
    report = run(site, *child("stubborn_tree", "exit", "7"))
    assert (report.exit_code, report.survivors_killed, report.grade) == (7, 1, Grade.CONTAINED)
    assert not lives(int(report.stdout.tail))


def test_logs_resume_by_byte_offset(site: Site) -> None:
    executor, key = site.executor(), site.key()
    news = News(executor)
    with pytest.raises(ExecutorError, match="no files of run"):
        executor.logs(key, "stdout", 0, 10)
    executor.submit(spec_of("printf", "abcdefäö"), key)
    news.wait(key, Ended)
    seen, offset = [], 0
    while part := executor.logs(key, "stdout", offset, 3):
        seen.append(part)
        offset += len(part)
    assert b"".join(seen) == "abcdefäö".encode()
    assert [len(part) for part in seen] == [3, 3, 3, 1]
    assert executor.logs(key, "stdout", 99, 3) == b""
    assert executor.logs(key, "stdout", 0, 1 << 60) == "abcdefäö".encode()
    for stream, begin, limit in (("input.json", 0, 1), ("stdout", -1, 1), ("stdout", 0, -1)):
        with pytest.raises(ExecutorError):
            executor.logs(key, stream, begin, limit)


def test_logs_stop_at_the_cap_while_the_file_is_over_it(site: Site, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    executor, key = site.executor(output_cap=10), site.key()
    executor.submit(spec_of("sh", "-c", f"echo up; read x < {tmp_path / 'fifo'}; seq 1 99; read x"), key)
    site.line(key)
    runner = site.runner(key)
    os.kill(runner, signal.SIGSTOP)  # it will not cut the file for now
    with open(tmp_path / "fifo", "w") as fifo:
        fifo.write("go\n")
    wait_until(lambda: (site.path(key) / "stdout").stat().st_size > 200)
    assert executor.logs(key, "stdout", 0, 100) == b"up\n1\n2\n3\n4"[:10]
    assert executor.logs(key, "stdout", 20, 100) == b""
    os.kill(runner, signal.SIGCONT)


def test_a_run_without_output_yet_has_empty_logs(site: Site) -> None:
    executor, key = site.executor(), site.key()
    executor.stop(key, GRACE)
    assert executor.logs(key, "stdout", 0, 10) == b""


# -- the same key again


def test_submitting_again_starts_nothing(site: Site, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    executor, key = site.executor(), site.key()
    news = News(executor)
    command = spec_of("sh", "-c", f"echo x >> {mark}")
    for _ in range(3):
        executor.submit(command, key)
    news.wait(key, Ended)
    executor.submit(command, key)
    site.executor().submit(command, key)
    assert mark.read_text() == "x\n"
    assert isinstance(executor.poll([key])[0], Ended)


def test_many_who_submit_at_once_start_it_once(site: Site, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    key = site.key()
    command = ("sh", "-c", f"echo x >> {mark}")
    executors = [site.executor() for _ in range(3)]
    hosts = [site.host("submit", key, command=command) for _ in range(2)]
    threads = [
        threading.Thread(target=executor.submit, args=(spec_of(*command), key))
        for executor in executors
        for _ in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for executor in executors:
        News(executor).wait(key, Ended)
    for host in hosts:
        wait_until(lambda host=host: host.stdout.readline() == "Ended\n")
    assert mark.read_text() == "x\n"


def test_another_token_for_the_same_key_is_refused(site: Site) -> None:
    """After a restore from backup generations repeat; the files know better."""
    executor, key = site.executor(), site.key()
    news = News(executor)
    executor.submit(spec_of("true", token="1.x.1"), key)
    news.wait(key, Ended)
    with pytest.raises(ExecutorError, match=r"under another token: '1\.x\.1'"):
        executor.submit(spec_of("true", token="2.x.1"), key)


def test_companies_do_not_meet(site: Site) -> None:
    executor, key = site.executor(), site.key()
    other = replace(key, company="acme/../x\0")
    executor.stop(other, GRACE)
    assert isinstance(executor.poll([other])[0], NeverStarted)
    assert isinstance(executor.poll([key])[0], Uncertain)


# -- stop


def test_stop_of_a_tree_that_ignores_it(site: Site) -> None:
    executor, key = site.executor(), site.key()
    news = News(executor)
    executor.submit(spec_of(*child("stubborn_tree", "stay"), stop_grace=LONG), key)
    grandchild = int(site.line(key))
    executor.stop(key, GRACE)
    report: ExitReport = news.wait(key, Ended).report
    assert (report.ended_by, report.signal, report.grade) == (EndClass.STOPPED, signal.SIGKILL, Grade.CONTAINED)
    assert not lives(grandchild)


def test_stop_by_another_executor_reaches_the_runner_at_once(site: Site) -> None:
    executor, key = site.executor(output_cap=0), site.key()
    news = News(executor)
    executor.submit(spec_of(*FOREVER), key)
    site.line(key)
    site.executor().stop(key, GRACE)
    assert news.wait(key, Ended).report.ended_by is EndClass.STOPPED


def test_stop_of_a_run_that_never_started(site: Site, tmp_path: Path) -> None:
    executor, key = site.executor(), site.key()
    executor.stop(key, GRACE)
    assert executor.poll([key]) == [NeverStarted("stopped before it started")]
    executor.submit(spec_of("touch", str(tmp_path / "executed")), key)
    assert executor.poll([key]) == [NeverStarted("stopped before it started")]
    assert executor.examine(key) == NeverStarted("stopped before it started")
    assert not (tmp_path / "executed").exists()


def test_stop_of_a_run_that_has_ended_changes_nothing(site: Site) -> None:
    executor, key = site.executor(), site.key()
    news = News(executor)
    executor.submit(spec_of("true"), key)
    ended = news.wait(key, Ended)
    executor.stop(key, GRACE)
    assert executor.poll([key]) == [ended]
    assert not (site.path(key) / "stop").exists()


def test_a_negative_grace_is_refused(site: Site) -> None:
    with pytest.raises(ExecutorError, match="grace is negative"):
        site.executor().stop(site.key(), timedelta(seconds=-1))


# -- a runner that has not come far


@pytest.fixture
def paused(tmp_path: Path) -> str:
    """An interpreter that stops itself before it runs the runner, so that a test can act in between."""
    path = tmp_path / "paused"
    path.write_text(f'#!/bin/sh\necho $$ > {tmp_path}/pid.$$\nkill -STOP $$\nexec {sys.executable} "$@"\n')
    path.chmod(0o700)
    return str(path)


def paused_pid(tmp_path: Path) -> int:
    path = wait_until(lambda: next(iter(tmp_path.glob("pid.*")), None))
    pid = int(path.suffix[1:])
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    return pid


def test_a_late_runner_finds_its_run_void(site: Site, paused: str, tmp_path: Path) -> None:
    executor, key = site.executor(python=paused), site.key()
    executor.submit(spec_of("touch", str(tmp_path / "executed")), key)
    pid = paused_pid(tmp_path)
    assert isinstance(executor.examine(key), Pending)  # its own child, and alive
    assert isinstance(site.executor().examine(key), NeverStarted)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert isinstance(executor.poll([key])[0], NeverStarted)
    assert not (tmp_path / "executed").exists()
    assert not (site.path(key) / "started").exists()


def test_stop_before_the_runner_takes_the_lock(site: Site, paused: str, tmp_path: Path) -> None:
    executor, key = site.executor(python=paused), site.key()
    news = News(executor)
    executor.submit(spec_of("touch", str(tmp_path / "executed")), key)
    pid = paused_pid(tmp_path)
    executor.stop(key, GRACE)
    news.wait(key, NeverStarted)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert not (tmp_path / "executed").exists()


def test_a_runner_killed_before_started(site: Site, paused: str, tmp_path: Path) -> None:
    executor, key = site.executor(python=paused), site.key()
    news = News(executor)
    executor.submit(spec_of("true"), key)
    os.kill(paused_pid(tmp_path), signal.SIGKILL)
    assert news.wait(key, NeverStarted).reason == "its runner ended before it executed anything"


def test_a_loser_among_runners_hands_over_to_the_winner(site: Site, paused: str, tmp_path: Path) -> None:
    """The first runner is late; another process's runner has the lock by then, and is watched instead."""
    first, second, key = site.executor(python=paused), site.executor(), site.key()
    news = News(first)
    first.submit(spec_of(*FOREVER), key)
    pid = paused_pid(tmp_path)
    second.submit(spec_of(*FOREVER), key)
    site.line(key)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    second.stop(key, GRACE)
    assert news.wait(key, Ended).report.ended_by is EndClass.STOPPED


def test_a_runner_that_cannot_write_says_why(site: Site) -> None:
    executor, key = site.executor(), site.key()
    news = News(executor)
    executor.stop(key, GRACE)
    path = site.path(key)
    (path / "void").unlink()
    (path / "stop").unlink()
    (path / "stdout").mkdir()
    executor.submit(spec_of("true"), key)
    assert news.wait(key, NeverStarted).reason == "stdout: Is a directory"


# -- crashes of the submitting process


def crash(site: Site, place: CrashPoint, key: RunKey, command: tuple[str, ...] = (), action: str = "submit") -> None:
    host = site.host(action, key, place, command)
    assert host.wait(timeout=30) == -signal.SIGKILL


@pytest.mark.parametrize("place", [CrashPoint.RUN_DIRECTORY, CrashPoint.RUN_INPUT])
def test_killed_before_there_was_a_runner(site: Site, place: CrashPoint, tmp_path: Path) -> None:
    key = site.key()
    crash(site, place, key, ("touch", str(tmp_path / "executed")))
    assert (site.path(key) / "input.json").exists() == (place is CrashPoint.RUN_INPUT)
    executor = site.executor()
    assert executor.poll([key]) == [Pending()]
    assert isinstance(executor.examine(key), NeverStarted)
    executor.submit(spec_of("touch", str(tmp_path / "executed")), key)
    assert isinstance(executor.poll([key])[0], NeverStarted)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "place",
    [
        CrashPoint.RUN_DIRECTORY,
        CrashPoint.RUN_INPUT,
        CrashPoint.SPAWN_BEFORE_STARTED,
        CrashPoint.SPAWN_AFTER_STARTED,
    ],
)
def test_submitting_again_after_a_crash_executes_once(site: Site, place: CrashPoint, tmp_path: Path) -> None:
    key, mark = site.key(), tmp_path / "executed"
    command = ("sh", "-c", f"echo x >> {mark}; exit 5")
    crash(site, place, key, command)
    executor = site.executor()
    news = News(executor)
    executor.submit(spec_of(*command), key)
    assert news.wait(key, Ended).report.exit_code == 5
    assert mark.read_text() == "x\n"


@pytest.mark.parametrize("place", [CrashPoint.SPAWN_BEFORE_STARTED, CrashPoint.SPAWN_AFTER_STARTED])
def test_killed_after_the_spawn(site: Site, place: CrashPoint) -> None:
    """The runner goes on alone. Whoever examines finds it, or has proof that nothing was or will be executed."""
    key = site.key()
    crash(site, place, key, child("stubborn_tree", "exit", "6"))
    executor = site.executor()
    news = News(executor)
    status = executor.examine(key)
    if place is CrashPoint.SPAWN_AFTER_STARTED or not isinstance(status, NeverStarted):
        assert isinstance(status, Running | Ended)
        assert news.wait(key, Ended).report.exit_code == 6
    else:
        wait_until(lambda: not carriers(key))
        assert not (site.path(key) / "started").exists()


def test_examining_waits_for_a_runner_on_its_way_to_started(site: Site) -> None:
    """It has the lock and is adopted, but nobody would tell when its command runs."""
    executor, key, seen = site.executor(patience=LONG), site.key(), []
    executor.stop(key, GRACE)
    (site.path(key) / "void").unlink()
    with subprocess.Popen(child("hold_lock", str(site.path(key) / "lock")), stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"up\n"
        thread = threading.Thread(target=lambda: seen.append(executor.examine(key)))
        thread.start()
        wait_until(lambda: any("pidfd" in fd for fd in map(link_of, os.listdir("/proc/self/fd"))))
        started = {"pid": 1, "cgroup": "", "ancestors": [], "grace": 0, "token": "", "runner": site.record(key, "lock")}
        draft = site.path(key) / "draft"
        draft.write_text(json.dumps(started | {"started_at": "2026-01-01T00:00:00+00:00"}))
        draft.rename(site.path(key) / "started")
        thread.join()
        assert seen == [Running(datetime(2026, 1, 1, tzinfo=UTC), 1)]
        holder.kill()
    assert isinstance(executor.examine(key), Vanished)


def link_of(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def test_killed_while_an_exit_record_is_read(site: Site) -> None:
    key = site.key()
    crash(site, CrashPoint.EXIT_RECORD, key, ("sh", "-c", "exit 9"))
    executor = site.executor()
    assert executor.poll([key])[0].report.exit_code == 9
    assert executor.examine(key) == executor.poll([key])[0]


def test_killed_between_the_stop_request_and_its_signal(site: Site) -> None:
    executor, key = site.executor(poll=timedelta(seconds=0.05)), site.key()
    news = News(executor)
    executor.submit(spec_of(*FOREVER), key)
    site.line(key)
    crash(site, CrashPoint.STOP_REQUEST, key, action="stop")
    assert news.wait(key, Ended).report.ended_by is EndClass.STOPPED


def test_the_next_scheduler_adopts_a_living_run(site: Site, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    key = site.key()
    host = site.host("submit", key, command=("sh", "-c", f"echo up; read x < {tmp_path / 'fifo'}; exit 7"))
    site.line(key)
    host.kill()
    host.wait()
    executor = site.executor()
    news = News(executor)
    status = executor.examine(key)
    assert status == Running(datetime.fromisoformat(site.record(key, "started")["started_at"]), status.pid)
    assert executor.poll([key]) == [status]
    with open(tmp_path / "fifo", "w") as fifo:
        fifo.write("go\n")
    report: ExitReport = news.wait(key, Ended).report
    assert (report.exit_code, report.grade) == (7, Grade.CONTAINED)


def test_the_exit_of_a_run_that_ended_without_a_scheduler(site: Site, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    key = site.key()
    host = site.host("submit", key, command=("sh", "-c", f"echo up; read x < {tmp_path / 'fifo'}; exit 7"))
    site.line(key)
    host.kill()
    host.wait()
    with open(tmp_path / "fifo", "w") as fifo:
        fifo.write("go\n")
    wait_until(lambda: not lives(site.runner(key)))
    executor = site.executor()
    assert executor.examine(key).report.exit_code == 7
    assert executor.poll([key]) == [executor.examine(key)]


def test_who_only_looks_sees_whether_the_runner_lives(site: Site) -> None:
    executor, key = site.executor(), site.key()
    executor.submit(spec_of(*FOREVER), key)
    site.line(key)
    other = site.executor()
    assert isinstance(other.poll([key])[0], Running)
    os.kill(site.runner(key), signal.SIGKILL)
    wait_until(lambda: not lives(site.runner(key)))
    assert isinstance(other.poll([key])[0], Uncertain)


# -- a killed runner


def killed(site: Site, *command: str) -> tuple[LocalExecutor, RunKey, News]:
    """Start a run, wait for its first line, kill its runner."""
    executor, key = site.executor(), site.key()
    news = News(executor)
    executor.submit(spec_of(*command), key)
    site.line(key)
    os.kill(site.runner(key), signal.SIGKILL)
    return executor, key, news


def test_survivors_of_a_killed_runner_are_found_and_ended(site: Site) -> None:
    executor, key, news = killed(site, *child("stubborn_tree", "stay"))
    main, grandchild = site.record(key, "started")["pid"], int(site.line(key))
    reason = news.wait(key, Uncertain).reason
    assert reason == "its runner died without an exit record: examine the run"
    assert lives(main)
    assert lives(grandchild)
    assert executor.examine(key) == Vanished(Grade.CONTAINED, survivors_killed=2)
    assert not lives(main)
    assert not lives(grandchild)
    assert executor.examine(key) == Vanished(Grade.CONTAINED, survivors_killed=0)


def test_a_command_that_kills_its_runner(site: Site) -> None:
    executor, key = site.executor(), site.key()
    news = News(executor)
    executor.submit(spec_of(*child("kill_runner")), key)
    news.wait(key, Uncertain)
    assert executor.examine(key) == Vanished(Grade.CONTAINED, survivors_killed=1)
    assert not lives(int(site.line(key)))


def test_a_runner_killed_around_started_leaves_nothing(site: Site) -> None:
    """Killed as early as its start can be seen, before or after the command is executed."""
    executor, key = site.executor(), site.key()
    News(executor)
    executor.submit(spec_of(*FOREVER), key)
    wait_until(lambda: (site.path(key) / "started").exists())
    os.kill(site.runner(key), signal.SIGKILL)
    wait_until(lambda: not lives(site.runner(key)))
    assert isinstance(executor.examine(key), Vanished)
    assert carriers(key) == []


def test_two_who_examine_agree(site: Site) -> None:
    _, key, news = killed(site, *child("stubborn_tree", "stay"))
    news.wait(key, Uncertain)
    first = site.executor(patience=LONG)
    second, seen = site.executor(patience=LONG), []
    threads = [threading.Thread(target=lambda e=e: seen.append(e.examine(key))) for e in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen, key=lambda status: status.survivors_killed) == [
        Vanished(Grade.CONTAINED, 0),
        Vanished(Grade.CONTAINED, 2),
    ]


def test_a_survivor_without_a_cookie_is_known_by_its_output(site: Site) -> None:
    executor, key, news = killed(site, *child("stubborn_tree", "stay", "cookieless"))
    news.wait(key, Uncertain)
    assert executor.examine(key) == Vanished(Grade.CONTAINED, survivors_killed=2)
    assert not lives(int(site.line(key)))


def test_what_could_hide_is_uncertain_until_it_is_gone(site: Site) -> None:
    executor, key, news = killed(site, *child("stubborn_tree", "stay", "cookieless", "quiet"))
    news.wait(key, Uncertain)
    hidden = int(site.line(key))
    status = executor.examine(key)
    assert isinstance(status, Uncertain)
    assert f"processes {hidden} (python" in status.reason
    assert lives(hidden)
    os.kill(hidden, signal.SIGKILL)
    wait_until(lambda: not lives(hidden))
    assert executor.examine(key) == Vanished(Grade.CONTAINED, survivors_killed=0)


def test_a_bare_environment_below_a_stranger_is_nobodys_hiding_place(site: Site) -> None:
    executor, key, news = killed(site, *FOREVER)
    news.wait(key, Uncertain)
    bare = ["sh", "-c", "env -i sleep 1000 & echo $!; wait"]
    with subprocess.Popen(bare, stdout=subprocess.PIPE, text=True) as stranger:
        sleeper = int(stranger.stdout.readline())
        wait_until(lambda: Path(f"/proc/{sleeper}/comm").read_text() == "sleep\n")
        assert executor.examine(key) == Vanished(Grade.CONTAINED, survivors_killed=1)
        os.kill(sleeper, signal.SIGKILL)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to run as another account")
def test_survivors_that_cannot_be_killed_are_uncertain(site: Site) -> None:
    """An examiner without CAP_KILL meets a survivor of another user."""
    _, key, news = killed(site, *child("change_user", "stay"))
    news.wait(key, Uncertain)
    survivor = int(site.line(key))
    command = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill", sys.executable, str(CHILDREN / "host.py")]
    host = subprocess.Popen(
        [*command, str(site.data), str(key.run), "[]", "examine", ""],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        text=True,
    )
    site.hosts.append(host)
    line = host.stdout.readline()
    assert line.startswith("Uncertain(reason='cannot end processes ")
    assert str(survivor) in line
    os.kill(survivor, signal.SIGKILL)


@pytest.mark.parametrize(
    "command",
    [
        child("stubborn_tree", "stay", "quiet"),  # known by its cookie alone
        ("sh", "-c", "echo up; env -i sleep 1000 </dev/null >/dev/null 2>&1 & wait"),  # by its parent alone
    ],
)
def test_survivors_that_closed_their_output(site: Site, command: tuple[str, ...]) -> None:
    executor, key, news = killed(site, *command)
    news.wait(key, Uncertain)
    assert executor.examine(key) == Vanished(Grade.CONTAINED, survivors_killed=2)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"boot": "another"}, Vanished(Grade.CONTAINED)),
        ({"namespace": 1}, Uncertain("the runner is dead, but it ran in another pid namespace")),
        ({"boot": ""}, Uncertain("the runner was killed, and this system cannot be searched")),
    ],
)
def test_a_pid_counts_only_with_its_boot_and_namespace(site: Site, change: dict[str, Any], expected: Status) -> None:
    executor, key, news = killed(site, *FOREVER)
    news.wait(key, Uncertain)
    started = site.record(key, "started")
    (site.path(key) / "started").write_text(json.dumps(started | {"runner": started["runner"] | change}))
    status = executor.examine(key)
    assert type(status) is type(expected)
    assert lives(started["pid"])  # nobody was signalled
    if isinstance(status, Uncertain):
        assert status.reason.startswith(expected.reason)
    (site.path(key) / "started").write_text(json.dumps(started))
    assert isinstance(executor.examine(key), Vanished)


def test_a_reused_pid_is_never_signalled(site: Site) -> None:
    """The recorded pids belong to a stranger by now: its start ticks differ."""
    executor, key, news = killed(site, *FOREVER)
    news.wait(key, Uncertain)
    with subprocess.Popen(FOREVER, stdout=subprocess.DEVNULL) as stranger:
        started = site.record(key, "started")
        forged = started | {"pid": stranger.pid, "runner": started["runner"] | {"pid": stranger.pid}}
        (site.path(key) / "started").write_text(json.dumps(forged))
        (site.path(key) / "lock").write_text(json.dumps(forged["runner"]))
        executor.stop(key, GRACE)
        assert isinstance(executor.examine(key), Vanished)
        assert stranger.poll() is None
        stranger.kill()


def test_a_lost_directory_of_a_living_run_is_uncertain(site: Site, tmp_path: Path) -> None:
    executor, key = site.executor(), site.key()
    executor.submit(spec_of(*FOREVER), key)
    site.line(key)
    site.path(key).rename(tmp_path / "away")
    status = site.executor().examine(key)
    assert isinstance(status, Uncertain)
    assert "directory is gone, but processes of it live" in status.reason
    assert not site.path(key).exists()
    (tmp_path / "away").rename(site.path(key))


# -- files that are not what they should be


def test_poll_of_a_run_nobody_submitted_is_uncertain_and_changes_nothing(site: Site) -> None:
    assert isinstance(site.executor().poll([site.key()])[0], Uncertain)
    assert not site.data.exists()


def test_examining_what_was_never_submitted_makes_it_void(site: Site) -> None:
    key = site.key()
    assert isinstance(site.executor().examine(key), NeverStarted)
    assert isinstance(site.executor().poll([key])[0], NeverStarted)


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def foreign(path: Path) -> None:
    path.write_text("{}")
    os.link(path, path.with_name("second-name"))


@pytest.mark.parametrize("make", [link, os.mkfifo, os.mkdir, foreign])
@pytest.mark.parametrize("name", ["exit.json", "void", "started", "lock"])
def test_something_else_in_a_files_place_proves_nothing(site: Site, name: str, make: Callable[[Path], None]) -> None:
    executor, key = site.executor(), site.key()
    executor.stop(key, GRACE)
    path = site.path(key)
    for entry in path.iterdir():
        entry.unlink()
    make(path / name)
    status = executor.examine(key)
    assert isinstance(status, Uncertain)
    assert name in status.reason


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("exit.json", "", "exit.json in .* is damaged"),
        ("exit.json", '{"v": 1', "exit.json in .* is damaged"),
        ("exit.json", "[]", "exit.json in .* is damaged: not a JSON object"),
        ("exit.json", '{"cookie": "other-1"}', "belongs to another run: other-1"),
        ("started", "", "Expecting value"),
        ("started", "{}", "started lacks or misspells 'pid'"),
    ],
)
def test_damaged_records_are_uncertain(site: Site, name: str, content: str, reason: str) -> None:
    executor, key = site.executor(), site.key()
    executor.stop(key, GRACE)
    (site.path(key) / "void").unlink()
    (site.path(key) / name).write_text(content)
    for status in (executor.poll([key])[0], executor.examine(key)):
        assert isinstance(status, Uncertain)
        assert re.search(reason, status.reason)


def test_half_an_input_is_written_anew(site: Site) -> None:
    executor, key = site.executor(), site.key()
    news = News(executor)
    executor.stop(key, GRACE)
    for entry in site.path(key).iterdir():
        entry.unlink()
    (site.path(key) / "input.json").write_text('{"v": ')
    executor.submit(spec_of("cat", str(site.path(key) / "input.json")), key)
    assert json.loads(news.wait(key, Ended).report.stdout.tail) == {"v": 1, "wake": {}}


def test_a_linked_directory_is_refused(site: Site, tmp_path: Path) -> None:
    executor, key = site.executor(), site.key()
    executor.stop(key, GRACE)
    path = site.path(key)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ExecutorError, match="cannot be used"):
        executor.submit(spec_of("true"), key)
    assert isinstance(executor.poll([key])[0], Uncertain)
    assert isinstance(executor.examine(key), Uncertain)
    with pytest.raises(ExecutorError):
        executor.stop(key, GRACE)
    with pytest.raises(ExecutorError):
        executor.logs(key, "stdout", 0, 1)


def test_a_directory_that_others_may_write_is_refused(site: Site) -> None:
    executor, key = site.executor(), site.key()
    executor.stop(key, GRACE)
    site.path(key).chmod(0o777)
    with pytest.raises(ExecutorError, match="owned or writable by another user"):
        executor.submit(spec_of("true"), key)


def test_a_lock_held_by_nobody_known_is_uncertain(site: Site) -> None:
    executor, key = site.executor(), site.key()
    executor.stop(key, GRACE)
    (site.path(key) / "void").unlink()
    with open(site.path(key) / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert executor.examine(key) == Uncertain(
            "the run's lock is held, but not by a runner that can be found from here"
        )


def test_a_full_disk_is_one_clear_error(site: Site, tmp_path: Path) -> None:
    site.data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(site.data)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root and leave to mount a tmpfs")
    executor = LocalExecutor(site.data)
    try:
        with open(site.data / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(b"x" * 4096):
                pass
        with pytest.raises(ExecutorError, match="No space left") as caught:
            executor.submit(spec_of("true"), RunKey("acme", uuid.uuid4(), 1))
        assert "room" in caught.value.hint
    finally:
        executor.close()
        subprocess.run(["umount", "--lazy", str(site.data)], check=True)


# -- the watch


def test_nobody_polls_while_a_run_goes_on(site: Site) -> None:
    """The one thread sleeps in the kernel without a timeout."""
    executor, key = site.executor(poll=GRACE), site.key()
    executor.submit(spec_of(*FOREVER), key)
    site.line(key)
    thread = next(thread for thread in threading.enumerate() if thread.name == "wakeful-runner-watch")
    call = wait_until(lambda: asleep(thread.native_id))
    timeout = int(call[4], 16)
    assert timeout & 0xFFFFFFFF == 0xFFFFFFFF  # the fourth argument of epoll_wait: -1


def asleep(thread: int) -> list[str]:
    words = Path(f"/proc/self/task/{thread}/syscall").read_text().split()
    return words if words[0] not in ("running", "202") else []  # 202: futex, waiting for the interpreter


def test_without_pidfds_locks_are_looked_at(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pidfd(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    first, second, key = site.executor(poll=GRACE / 10), site.executor(poll=GRACE / 10), site.key()
    mine, told = News(first), threading.Event()
    first.submit(spec_of(*FOREVER), key)
    site.line(key)
    assert isinstance(second.examine(key), Running)
    second.attach(told.set)
    first.stop(key, GRACE)
    assert told.wait(20)
    assert mine.wait(key, Ended) == second.poll([key])[0]


def test_no_zombie_and_no_descriptor_is_left(site: Site) -> None:
    executor = site.executor()
    news = News(executor)

    def one() -> int:
        key = site.key()
        executor.submit(spec_of("true"), key)
        runner = site.runner(key)
        news.wait(key, Ended)
        wait_until(lambda: not Path(f"/proc/{runner}").exists())
        return len(os.listdir("/proc/self/fd"))

    before = one()
    assert [one() for _ in range(5)] == [before] * 5


def test_a_callback_that_raises_does_not_end_the_watch(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    executor, key = site.executor(), site.key()

    def broken() -> None:
        raise RuntimeError("the host's own trouble")

    executor.attach(broken)
    executor.submit(spec_of("true"), key)
    wait_until(lambda: "the host's own trouble" in caplog.text)
    other, news = site.key(), News(executor)
    executor.submit(spec_of("true"), other)
    news.wait(other, Ended)


def test_close_leaves_children_alone(site: Site) -> None:
    executor, key = site.executor(), site.key()
    executor.submit(spec_of(*FOREVER), key)
    site.line(key)
    executor.close()
    executor.close()
    assert lives(site.record(key, "started")["pid"])
    assert isinstance(site.executor().examine(key), Running)


def test_many_runs_at_once(site: Site) -> None:
    executor = site.executor()
    news = News(executor)
    keys = [site.key() for _ in range(20)]
    for code, key in enumerate(keys):
        executor.submit(spec_of("sh", "-c", f"exit {code}"), key)
    for key in keys:
        news.wait(key, Ended)
    assert [status.report.exit_code for status in executor.poll(keys)] == list(range(20))


def test_news_of_the_start_comes_after_started(site: Site) -> None:
    held = HoldAt(CrashPoint.SPAWN_AFTER_STARTED)
    executor, key = site.executor(crash=held), site.key()
    news = News(executor)
    executor.submit(spec_of(*FOREVER), key)
    held.wait_reached()
    assert site.record(key, "started")
    held.release()
    news.wait(key, Running)


def test_the_plugin_registers_one_executor(tmp_path: Path) -> None:
    manager = pluggy.PluginManager("wakeful")
    manager.add_hookspecs(Specs)
    manager.register(local_executor)
    manager.check_pending()
    [[executor]] = manager.hook.register_executors(config=SimpleNamespace(data=tmp_path))
    assert executor.name == "local"
    executor.close()


# -- pid namespaces


@pytest.fixture
def isolating(site: Site) -> LocalExecutor:
    """An executor that puts commands into pid namespaces."""
    executor = site.executor(namespaces=True, output_cap=0)
    if refusal := executor.why_no_namespaces():
        pytest.skip(f"needs leave to make pid namespaces: {refusal}")
    return executor


def test_a_command_alone_in_its_namespace(site: Site, isolating: LocalExecutor) -> None:
    key, news = site.key(), News(isolating)
    script = "echo $$ $(ls /proc | grep -c '^[0-9]') $(id -u) > out; cat out; exit 3"
    isolating.submit(spec_of("sh", "-c", script), key)
    report: ExitReport = news.wait(key, Ended).report
    pid, processes, uid = map(int, report.stdout.tail.split())
    assert (pid, uid, report.exit_code, report.grade) == (2, os.geteuid(), 3, Grade.CONTAINED)
    assert processes <= 5  # the first process, the shell, its pipe
    assert (site.path(key) / "work" / "out").stat().st_uid == os.geteuid()


@pytest.mark.parametrize(
    ("command", "code", "number", "error"),
    [
        (("sh", "-c", "kill -9 $$"), None, 9, None),
        (("no-such-program",), None, None, "command no-such-program: No such file or directory"),
    ],
)
def test_how_a_command_in_a_namespace_ends(
    site: Site, isolating: LocalExecutor, command: tuple[str, ...], code: int | None, number: int | None, error: str
) -> None:
    key, news = site.key(), News(isolating)
    isolating.submit(spec_of(*command, environment={"PATH": "/usr/bin:/bin"}), key)
    report: ExitReport = news.wait(key, Ended).report
    assert (report.exit_code, report.signal, report.error, report.survivors_killed) == (code, number, error, 0)


def test_what_outlives_a_command_in_a_namespace_gets_its_grace(site: Site, isolating: LocalExecutor) -> None:
    key, news = site.key(), News(isolating)
    script = "(trap 'echo bye; exit' TERM; echo up; while :; do read x < fifo; done) & read x < ready; exit 4"
    script = f"mkfifo fifo ready; {script.replace('echo up', 'echo up; echo > ready')}"
    isolating.submit(spec_of("sh", "-c", script, stop_grace=LONG), key)
    report: ExitReport = news.wait(key, Ended).report
    assert (report.exit_code, report.stdout.tail) == (4, "up\nbye\n")
    assert report.survivors_killed >= 1


def test_stop_of_a_namespace_that_ignores_it(site: Site, isolating: LocalExecutor) -> None:
    key, news = site.key(), News(isolating)
    isolating.submit(spec_of(*child("stubborn_tree", "stay", "cookieless", "quiet")), key)
    site.line(key)
    isolating.stop(key, GRACE)
    report: ExitReport = news.wait(key, Ended).report
    assert (report.ended_by, report.signal, report.grade) == (EndClass.STOPPED, 9, Grade.CONTAINED)


def test_nothing_in_a_namespace_outlives_its_runner(site: Site, isolating: LocalExecutor) -> None:
    """Even what hides from every search: the kernel ends it."""
    key, news = site.key(), News(isolating)
    isolating.submit(spec_of(*child("stubborn_tree", "stay", "cookieless", "quiet")), key)
    site.line(key)
    runner = site.runner(key)
    tree = below(runner)
    assert len(tree) == 3  # the first process, the command, its hidden grandchild
    os.kill(runner, signal.SIGKILL)
    news.wait(key, Uncertain)
    wait_until(lambda: not any(lives(pid) for pid in tree))
    assert isolating.examine(key) == Vanished(Grade.CONTAINED, survivors_killed=0)


def below(root: int) -> list[int]:
    children = [int(pid) for pid in Path(f"/proc/{root}/task/{root}/children").read_text().split()]
    return [pid for child_pid in children for pid in (child_pid, *below(child_pid))]


def test_namespaces_that_do_not_work_are_refused(site: Site, tmp_path: Path) -> None:
    """An interpreter in a namespace of users in which no further one may be made."""
    wrapper = tmp_path / "python"
    wrapper.write_text(
        "#!/bin/sh\nexec unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_pid_namespaces;"
        f' exec {sys.executable} "$@"\' sh "$@"\n'
    )
    wrapper.chmod(0o700)
    if subprocess.run([wrapper, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip("needs leave to make user namespaces")
    executor, key = site.executor(namespaces=True, python=str(wrapper)), site.key()
    with pytest.raises(ExecutorError, match=r"pid namespaces do not work here: pid namespace .unshare.: ") as caught:
        executor.submit(spec_of("true"), key)
    assert caught.value.hint
    assert not site.path(key).exists()


# -- the example agent


AGENT = (sys.executable, str(ROOT / "examples" / "agents" / "answering_agent.py"))


def test_the_answering_agent_answers(site: Site) -> None:
    work = {
        "v": 1,
        "wake": {"payload": {"answer": "zweiundvierzig", "seconds": 0.3}},
        "issue": {"title": "The question"},
        "comments": [{"author": "user:ada", "body": "Take your time."}],
    }
    report = run(site, *AGENT, input=work)
    assert (report.exit_code, report.stderr.tail) == (0, "")
    lines = report.stdout.tail.splitlines()
    assert lines[:3] == ["attempt 1: The question", "user:ada wrote: Take your time.", "thinking, step 1"]
    assert lines[-1] == "the answer is zweiundvierzig"
    assert report.ended_at - report.started_at >= timedelta(seconds=0.3)
    result = json.loads(report.result or b"")
    assert (result["class"], result["message"]) == ("ok", "The answer is zweiundvierzig.")
    [artifact] = result["artifacts"]
    content = Path(artifact["uri"].removeprefix("file://")).read_bytes()
    assert content == b"zweiundvierzig\n"
    assert artifact["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.mark.parametrize("payload", [None, {}, {"seconds": 1}])
def test_the_answering_agent_without_an_answer(site: Site, payload: dict[str, Any] | None) -> None:
    report = run(site, *AGENT, input={"v": 1, "wake": {"payload": payload}})
    assert (report.exit_code, report.result) == (3, None)
    assert report.stderr.tail.startswith("answering agent: no answer: ")
    assert report.stderr.tail.count("\n") == 1
