"""The runner alone, started by file path as the executor starts it: real processes, real files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.conditions import wait_until

RUNNER = Path(__file__).parents[2] / "plugins" / "wakeful_plugins" / "runner.py"
CHILDREN = Path(__file__).parents[1] / "children"
GRACE = 0.3
FOREVER = [sys.executable, "-I", "-S", "-c", "import signal; print('up', flush=True); signal.pause()"]


def child(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(CHILDREN / f"{name}.py"), *arguments]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Runner:
    """One runner over one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, flags: dict[str, Any] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        settings = {"--directory": self.directory, "--cookie": "run-1", "--stop-grace": GRACE} | (flags or {})
        words = [str(word) for pair in settings.items() for word in pair]
        options.setdefault("env", {"PATH": os.environ["PATH"]})
        options.setdefault("stderr", subprocess.PIPE)
        self.processes.append(
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-X", "utf8", str(RUNNER), *words, "--", *command],
                stdin=subprocess.DEVNULL,
                **options,
            )
        )
        return self.processes[-1]

    def run(self, *command: str, **options: Any) -> dict[str, Any]:
        process = self.start(*command, **options)
        _, error = process.communicate(timeout=30)
        assert (process.returncode, error or b"") == (0, b"")
        return self.exit()

    def text(self, name: str) -> str:
        path = self.directory / name
        return path.read_text() if path.exists() else ""

    def record(self, name: str) -> dict[str, Any]:
        return json.loads(self.text(name))

    def exit(self) -> dict[str, Any]:
        return self.record("exit.json")

    def first_line(self) -> str:
        return wait_until(lambda: self.text("stdout").rpartition("\n")[0].partition("\n")[0], what="a line on stdout")

    def stop(self, grace: float = GRACE) -> None:
        draft = self.directory / f".stop.{time.monotonic_ns()}"
        draft.write_text(json.dumps({"v": 1, "grace": grace}))
        draft.rename(self.directory / "stop")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    directory = tmp_path / "run"
    directory.mkdir()
    made = Runner(directory)
    yield made
    for process in made.processes:
        if process.poll() is None:
            made.stop(0)
            process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # a test has failed
            process.kill()
            process.communicate()
            with contextlib.suppress(OSError):
                os.kill(made.record("started")["pid"], signal.SIGKILL)


def test_output_status_and_times_are_recorded(runner: Runner) -> None:
    before = time.time()
    record = runner.run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (runner.text("stdout"), runner.text("stderr")) == ("out\n", "err\n")
    assert {name: record[name] for name in ("v", "cookie", "code", "signal", "ended_by", "error", "grade")} == {
        "v": 1, "cookie": "run-1", "code": 3, "signal": None, "ended_by": None, "error": None, "grade": "contained",
    }  # fmt: skip
    assert record["survivors_killed"] == 0
    assert record["truncated"] == []
    assert utc(before) <= record["started_at"] <= record["ended_at"] <= utc(time.time() + 0.001)
    for name in ("lock", "started", "stdout", "stderr", "exit.json"):
        assert (runner.directory / name).stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(runner.directory)) == ["exit.json", "lock", "started", "stderr", "stdout"]


def utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1e6):06d}+00:00"


def test_death_by_signal_is_recorded(runner: Runner) -> None:
    record = runner.run("sh", "-c", "kill -9 $$")
    assert (record["code"], record["signal"], record["ended_by"]) == (None, 9, None)


def test_started_stands_before_the_command_is_executed(runner: Runner) -> None:
    runner.run("sh", "-c", f"cat {runner.directory}/started; echo; echo $$", env={"WAKEFUL_TOKEN": "1.x.1\n", **PATH})
    seen, own_pid = runner.text("stdout").splitlines()
    started = json.loads(seen)
    assert started == runner.record("started")
    assert started["pid"] == int(own_pid)
    assert started["cookie"] == "run-1"
    assert started["token"] == "1.x.1\n"
    assert started["grace"] == GRACE
    assert started["runner"] == runner.record("lock")
    assert started["runner"]["pid"] == runner.processes[0].pid
    assert started["runner"]["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert 0 < started["runner"]["ticks"] <= started["ticks"]


PATH = {"PATH": os.environ["PATH"]}


def test_nothing_is_executed_if_started_cannot_be_written(runner: Runner) -> None:
    def tiny_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    mark = runner.directory / "executed"
    process = runner.start("touch", str(mark), preexec_fn=tiny_files, env={"WAKEFUL_TOKEN": "x" * 5000, **PATH})
    _, error = process.communicate(timeout=20)
    assert process.returncode == 74
    assert error.endswith((b"No space left on device\n", b"File too large\n"))
    assert not mark.exists()
    assert not (runner.directory / "started").exists()


@pytest.mark.parametrize("name", ["void", "started", "exit.json"])
def test_a_run_that_is_over_is_not_executed(runner: Runner, name: str) -> None:
    (runner.directory / name).write_text("{}")
    process = runner.start("touch", str(runner.directory / "executed"))
    process.communicate(timeout=20)
    assert process.returncode == 75
    assert not (runner.directory / "executed").exists()
    assert runner.text(name) == "{}"


def test_a_held_lock_means_another_runner(runner: Runner) -> None:
    with open(runner.directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = runner.start("true")
        process.communicate(timeout=20)
    assert process.returncode == 75
    assert os.listdir(runner.directory) == ["lock"]


def test_a_stop_before_the_start_makes_the_run_void(runner: Runner) -> None:
    runner.stop()
    process = runner.start("touch", str(runner.directory / "executed"))
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert runner.record("void")["reason"] == "stopped before it started"
    assert not (runner.directory / "executed").exists()
    assert not (runner.directory / "started").exists()


@pytest.mark.parametrize(
    ("command", "flags", "error"),
    [
        (["no-such-program"], {}, "command no-such-program: No such file or directory"),
        (["/etc/passwd"], {}, "command /etc/passwd: Permission denied"),
        (["bin/agent"], {"--cwd": "/etc"}, "command bin/agent, looked for in /etc: No such file or directory"),
        (["true"], {"--cwd": "/no/such/place"}, "working directory /no/such/place: No such file or directory"),
    ],
)
def test_a_command_that_cannot_be_executed(
    runner: Runner, command: list[str], flags: dict[str, str], error: str
) -> None:
    record = runner.run(*command, flags=flags, env={"PATH": "/usr/bin:/bin"})
    assert (record["error"], record["code"], record["signal"]) == (error, None, None)


def test_the_lock_is_freed_only_after_the_record(runner: Runner) -> None:
    runner.start("sh", "-c", "echo up; exit 4")
    runner.first_line()
    with open(runner.directory / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert runner.exit()["code"] == 4


def test_what_outlives_the_command_is_ended(runner: Runner) -> None:
    record = runner.run(*child("stubborn_tree", "exit", "7"))
    assert (record["code"], record["ended_by"], record["grade"]) == (7, None, "contained")
    assert record["survivors_killed"] == 1
    assert not lives(int(runner.first_line()))


def test_a_daemon_goes_at_the_polite_signal(runner: Runner) -> None:
    began = time.monotonic()
    record = runner.run(*child("daemonise"), flags={"--stop-grace": 25})
    assert time.monotonic() - began < 20
    assert (record["code"], record["survivors_killed"]) == (0, 1)
    assert not lives(int(runner.first_line()))


def test_strangers_are_left_alone(runner: Runner) -> None:
    with subprocess.Popen(FOREVER, stdout=subprocess.DEVNULL, start_new_session=True) as stranger:
        runner.run(*child("stubborn_tree", "exit", "0"))
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGUSR1])
def test_stop_ends_a_tree_that_ignores_it(runner: Runner, told: signal.Signals) -> None:
    process = runner.start(*child("stubborn_tree", "stay"), flags={"--poll": 60, "--output-cap": 0})
    grandchild = int(runner.first_line())
    main = runner.record("started")["pid"]
    runner.stop()
    process.send_signal(told)
    process.communicate(timeout=20)
    record = runner.exit()
    assert (record["ended_by"], record["signal"], record["grade"]) == ("stopped", 9, "contained")
    assert not lives(main)
    assert not lives(grandchild)


def test_stop_is_found_without_a_signal(runner: Runner) -> None:
    process = runner.start(*FOREVER, flags={"--poll": 0.05})
    runner.first_line()
    runner.stop()
    process.communicate(timeout=20)
    assert (runner.exit()["ended_by"], runner.exit()["signal"]) == ("stopped", signal.SIGTERM)


def test_a_second_stop_shortens_the_grace(runner: Runner) -> None:
    script = "; ".join(
        [
            "import signal",
            "signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))",
            "print('up', flush=True)",
            "[signal.pause() for _ in iter(int, 1)]",
        ]
    )
    flags = {"--poll": 60, "--output-cap": 0, "--stop-grace": 600}
    process = runner.start(sys.executable, "-I", "-S", "-c", script, flags=flags)
    runner.first_line()
    runner.stop(600)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: runner.text("stdout") == "up\nasked\n")
    runner.stop(0)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert (runner.exit()["signal"], runner.text("stdout")) == (9, "up\nasked\n")


def test_a_stopped_process_gets_its_term(runner: Runner) -> None:
    process = runner.start("sh", "-c", "trap 'echo bye; exit 9' TERM; echo up; kill -STOP $$; echo never")
    runner.first_line()
    main = runner.record("started")["pid"]
    wait_until(lambda: Path(f"/proc/{main}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    runner.stop(30)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert (runner.exit()["code"], runner.exit()["ended_by"]) == (9, "stopped")


def test_max_runtime(runner: Runner) -> None:
    record = runner.run(*FOREVER, flags={"--max-runtime": 0.2, "--poll": 60})
    assert (record["ended_by"], record["signal"]) == ("timed_out", signal.SIGTERM)


def test_silence(runner: Runner) -> None:
    record = runner.run(*FOREVER, flags={"--silence-limit": 0.2, "--poll": 60})
    assert (record["ended_by"], record["signal"]) == ("silent", signal.SIGTERM)


@pytest.mark.parametrize("stream", [1, 2])
def test_output_breaks_silence(runner: Runner, stream: int) -> None:
    chatty = f"for i in 1 2 3 4 5 6 7 8; do echo x >&{stream}; sleep 0.1; done"
    assert runner.run("sh", "-c", chatty, flags={"--silence-limit": 0.5})["ended_by"] is None


def test_a_natural_end_is_nobodys_doing(runner: Runner) -> None:
    """What is swept after the command's own end does not turn it into a stopped or timed-out run."""
    flags = {"--max-runtime": 1, "--stop-grace": 1.5}
    # Ignored before the child exists, so that it never has a moment in which TERM would end it.
    record = runner.run("sh", "-c", "trap '' TERM; sleep 1000 & exit 0", flags=flags)
    assert (record["code"], record["ended_by"]) == (0, None)
    assert record["ended_at"] > utc(datetime.fromisoformat(record["started_at"]).timestamp() + 1)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_no_signal_without_a_request_ends_a_run(runner: Runner, number: signal.Signals) -> None:
    process = runner.start("sh", "-c", "echo up; read x < fifo; exit 5", flags={"--cwd": runner.directory})
    os.mkfifo(runner.directory / "fifo")
    runner.first_line()
    process.send_signal(number)
    with open(runner.directory / "fifo", "w") as fifo:
        fifo.write("go\n")
    process.communicate(timeout=20)
    assert (runner.exit()["code"], runner.exit()["ended_by"]) == (5, None)


def test_forty_megabytes_never_block(runner: Runner) -> None:
    assert runner.run(*child("flood"))["code"] == 0
    for name in ("stdout", "stderr"):
        assert (runner.directory / name).stat().st_size == 20_000_000


def test_the_cap_cuts_the_file_and_not_the_command(runner: Runner) -> None:
    record = runner.run(*child("flood"), flags={"--output-cap": 1_000_000})
    assert (record["code"], record["truncated"]) == (0, ["stdout", "stderr"])
    data = (runner.directory / "stdout").read_bytes()
    assert data[:1_000_000] == (b"x" * 999 + b"\n") * 1000
    assert data[1_000_000:] == b"\n[wakeful: output cut after 1000000 bytes]\n"


def test_output_over_the_cap_is_cut_while_the_command_runs(runner: Runner) -> None:
    script = "import os, signal\nos.write(1, b'x' * 500_000)\nsignal.pause()"
    runner.start(sys.executable, "-I", "-S", "-c", script, flags={"--output-cap": 1000, "--poll": 0.05})
    wait_until(lambda: runner.text("started"))
    wait_until(lambda: (runner.directory / "stdout").stat().st_size == 1000)


def test_the_command_inherits_its_environment_and_nothing_else(runner: Runner) -> None:
    read, write = os.pipe()

    def spoil() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR2})
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    given = {b"A": b"1", b"ODD": b"\xff=\n", b"PATH": os.fsencode(os.environ["PATH"])}
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(CHILDREN / "print_surroundings.py"), "a b", "", "\udcff"]
    runner.run(*command, env=given, pass_fds=(write,), preexec_fn=spoil, flags={"--cwd": runner.directory})
    os.close(read)
    os.close(write)
    seen = json.loads(runner.text("stdout"))
    assert {os.fsencode(name): os.fsencode(value) for name, value in seen["environment"].items()} == given
    assert seen["descriptors"] == [0, 1, 2]
    assert seen["stdin"] == "/dev/null"
    assert seen["cwd"] == str(runner.directory)
    assert (seen["blocked"], seen["ignored"]) == (0, 0)
    assert seen["arguments"] == ["a b", "", "\udcff"]
    assert seen["session"] == seen["pid"] != seen["parent_session"]


def test_a_bare_environment_stays_bare(runner: Runner) -> None:
    runner.run("/usr/bin/env", env={})
    assert runner.text("stdout") == ""


def test_without_a_subreaper_the_group_is_ended_and_the_grade_says_so(runner: Runner) -> None:
    orphan = "(sleep 1000 & echo $!); sleep 1000"
    process = runner.start("sh", "-c", orphan, flags={"--containment": "group"})
    background = int(runner.first_line())
    runner.stop()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert (runner.exit()["ended_by"], runner.exit()["grade"]) == ("stopped", "waited")
    wait_until(lambda: not lives(background))


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to run as another account")
def test_what_no_signal_reaches_ends_the_watch_but_not_contained(runner: Runner) -> None:
    """Without CAP_KILL, root's runner cannot signal the daemon that became another user."""
    settings = ["--directory", str(runner.directory), "--cookie", "run-1", "--stop-grace", "0.1", "--drain", "0.2"]
    command = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill", sys.executable, "-I", "-S", str(RUNNER)]
    subprocess.run([*command, *settings, "--", *child("change_user")], timeout=30, check=True)
    survivor = int(runner.first_line())
    assert lives(survivor)
    os.kill(survivor, signal.SIGKILL)
    assert (runner.exit()["code"], runner.exit()["grade"]) == (6, "waited")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Runner]:
    """A runner whose directory lies on a file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root and leave to mount a tmpfs")
    (disk / "run").mkdir()
    made = Runner(disk / "run")
    try:
        yield made
        for process in made.processes:
            process.communicate(timeout=20)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)  # busy or not: a mount left behind hurts everybody


def fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return


def test_a_full_disk_does_not_lose_the_exit_status(small_disk: Runner) -> None:
    script = "while printf xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; do :; done; exit 5"
    assert small_disk.run("sh", "-c", script)["code"] == 5
    assert os.statvfs(small_disk.directory).f_bavail == 0


def test_a_disk_too_full_for_the_record_is_waited_for(small_disk: Runner) -> None:
    """The command takes even the room that was set aside; the lock stays held until there is new room."""
    directory = small_disk.directory
    process = small_disk.start(
        "sh", "-c", "rm -f .exit.json.*; echo up; read x < fifo; exit 5", flags={"--cwd": directory}
    )
    os.mkfifo(directory / "fifo")
    small_disk.first_line()
    fill(directory / "ballast")
    with open(directory / "fifo", "w") as fifo:
        fifo.write("go\n")
    main = small_disk.record("started")["pid"]
    wait_until(lambda: not Path(f"/proc/{main}").exists())
    with open(directory / "lock") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (directory / "ballast").unlink()
    process.communicate(timeout=20)
    assert small_disk.exit()["code"] == 5


def test_no_room_for_the_record_means_no_start(small_disk: Runner) -> None:
    fill(small_disk.directory / "ballast")
    process = small_disk.start("sh", "-c", "echo executed")
    _, error = process.communicate(timeout=20)
    assert process.returncode == 74
    assert error.endswith(b"No space left on device\n")
    assert small_disk.text("stdout") == ""


def test_a_removed_directory_does_not_keep_the_runner(runner: Runner) -> None:
    process = runner.start("rm", "-rf", str(runner.directory))
    process.communicate(timeout=20)
    assert process.returncode == 74


@pytest.mark.parametrize("flags", [{"--no-such": 1}, {"--poll": "soon"}])
def test_wrong_flags_are_one_line(runner: Runner, flags: dict[str, Any]) -> None:
    process = runner.start("true", flags=flags)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 64
    assert error.startswith(b"runner: wrong flags: ")
    assert error.count(b"\n") == 1


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
@pytest.mark.parametrize("name", ["lock", "stdout"])
def test_something_else_in_a_files_place_is_refused(runner: Runner, name: str, make: Callable[[Path], None]) -> None:
    make(runner.directory / name)
    process = runner.start("touch", str(runner.directory / "executed"))
    _, error = process.communicate(timeout=20)
    assert process.returncode == 74
    assert name.encode() in error
    assert not (runner.directory / "executed").exists()


def test_start_up_and_memory_are_small(
    runner: Runner, tmp_path: Path, record_testsuite_property: Callable[[str, Any], None]
) -> None:
    """The numbers are recorded; the bounds here are generous, since other work shares the machine."""
    taken = []
    for round_ in range(10):
        one = Runner(tmp_path / f"run{round_}")
        one.directory.mkdir()
        began = time.monotonic()
        one.run(sys.executable, "-I", "-S", "-c", "import time; print(time.monotonic())")
        taken.append(float(one.text("stdout")) - began)
    runner.start(*FOREVER)
    runner.first_line()
    status = Path(f"/proc/{runner.processes[0].pid}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    record_testsuite_property("runner_start_ms", round(statistics.median(taken) * 1000, 1))
    record_testsuite_property("runner_peak_mb", round(peak / 1e6, 1))
    assert statistics.median(taken) < 1.0
    assert peak < 60e6
