"""Invariants 2 and 3: whose death is proven, who is overtaken then, and what is left alone in doubt."""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.coordination.holding import HOLDER, busy, opened

from wakeful_coordination import Coordination, claim
from wakeful_coordination.errors import InDoubt, NotFound
from wakeful_coordination.layout import instance_path
from wakeful_coordination.root import Root
from wakeful_coordination.session import Alive, Dead, Liveness, liveness
from wakeful_coordination.testing.children import Child, until


def test_invariant_02_a_stopped_owner_keeps_its_lease_and_its_death_frees_it(coord: Coordination, path: str) -> None:
    opened(coord, "a")
    with Child(HOLDER, path, "a") as child:
        sid = child.hear().split()[1]
        child.kill(signal.SIGSTOP)
        assert busy(coord, "a")
        assert isinstance(liveness(coord.root, sid), Alive)
        child.kill()
        with coord.lease("a", timeout=30):
            assert isinstance(liveness(coord.root, sid), Dead)


def test_invariant_02_a_zombie_owner_is_dead_although_its_pid_answers(coord: Coordination, path: str) -> None:
    opened(coord, "a")
    with Child(HOLDER, path, "a") as child:
        sid = child.hear().split()[1]
        os.kill(child.pid, signal.SIGKILL)
        until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        os.kill(child.pid, 0)  # the process table still answers for it
        assert isinstance(liveness(coord.root, sid), Dead)
        assert not busy(coord, "a")


def session_file(path: str, sid: str) -> Path:
    return Path(path, "sessions", sid)


def rewrite(file: Path, **changes: object) -> None:
    # In place: the inode bears the lock.
    with file.open("r+") as opened_file:
        known = json.load(opened_file) | changes
        opened_file.seek(0)
        opened_file.truncate()
        json.dump(known, opened_file)


def test_invariant_02_a_reused_pid_does_not_keep_a_dead_session_alive(coord: Coordination, path: str) -> None:
    with Child(HOLDER, path) as child:
        sid = child.hear().split()[1]
        child.kill()
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    rewrite(session_file(path, sid), pid=os.getpid(), start_ticks=ticks)
    assert isinstance(liveness(coord.root, sid), Dead)


def test_invariant_02_a_living_session_whose_pid_names_nobody_is_alive(coord: Coordination, path: str) -> None:
    with Child("raise SystemExit") as gone:
        gone.end()
    with Child(HOLDER, path) as child:
        sid = child.hear().split()[1]
        rewrite(session_file(path, sid), pid=gone.pid, start_ticks=1, host="elsewhere")
        assert isinstance(liveness(coord.root, sid), Alive)


UNFINISHED = """
import fcntl
from wakeful_coordination import claim
c = Coordination.open(sys.argv[1])
g = c.generations.capture("a")
t = c.transaction(g, "comment", {}, mutations=[Mutation("a", "state.json", "new")])
c.publish(t)
c.leases.acquire(("a",), None, False)
c.authority._mark(t)
if "unlock" in sys.argv: fcntl.flock(c.leases.file("a")[0], fcntl.LOCK_UN)
say(t.txid)
hear()
"""


def test_invariant_02_an_unfinished_transaction_of_a_live_session_is_not_overtaken(
    coord: Coordination, path: str
) -> None:
    generation = coord.generations.open("a")
    # The kernel's lock is lost by a fault of its owner; only the claim says that it is still at work.
    with Child(UNFINISHED, path, "unlock") as child:
        txid = child.hear()
        for _ in range(2):
            with pytest.raises(InDoubt, match="not proven dead: pid"), coord.lease("a"):
                pass
        assert coord.outbox.bytes_of(txid) is not None
        child.kill()
        with coord.lease("a"):
            assert coord.state(generation) == "new"
    assert coord.authority.receipt(txid) is not None


def test_invariant_02_an_owner_that_is_still_dying_is_waited_for(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    with Child(UNFINISHED, path, "unlock") as child, Coordination.open(path, exit_grace=30) as patient:
        child.hear()
        asked = threading.Event()
        claimant = claim.claimant

        def asking(root: Root, fd: int) -> Liveness | None:
            found = claimant(root, fd)
            asked.set()
            return found

        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
            patch.setattr(claim, "claimant", asking)
            taken = pool.submit(lambda: patient.lease("a").__enter__().__exit__(None, None, None))
            # It lives at the first look, and is dead at a later one.
            assert asked.wait(30)
            child.kill()
            taken.result(30)
        assert patient.state(generation) == "new"


def test_invariant_02_resolving_a_dead_sessions_transaction_overtakes_no_live_one_beside_it(
    coord: Coordination, path: str
) -> None:
    generations = [coord.generations.open(name) for name in "ab"]
    script = UNFINISHED.replace("t = c", "h = c.generations.capture('b')\nt = c").replace(
        '[Mutation("a", "state.json", "new")]',
        '[Mutation("a", "state.json", "new"), Mutation("b", "state.json", "new")], others=[h]',
    )
    script = script.replace('(("a",), None', '(("a", "b"), None')
    with Child(script, path) as dead, Child(HOLDER, path) as alive:
        dead.hear()
        sid = alive.hear().split()[1]
        dead.kill()
        lease = Path(path, instance_path("b"), "lease")
        lease.write_text(json.dumps([sid, coord.root.machine.boot_id]) + "\n")
        with pytest.raises(InDoubt, match="b has an unfinished transaction"), coord.lease("a"):
            pass
        assert [coord.state(one) for one in generations] == [None, None]
        alive.kill()
    with coord.lease("a"):
        assert [coord.state(one) for one in generations] == ["new", "new"]


def test_an_instance_whose_directory_is_taken_away_while_it_is_held_is_in_doubt(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    with coord.lease("a"):
        home = Path(path, instance_path("a"))
        home.rename(Path(path).parent / "elsewhere")
        with pytest.raises(InDoubt, match="deleted or replaced") as caught:
            coord.terminals.record(generation, "succeeded")
        assert "wakeful coord repair" in (caught.value.hint or "")
    assert coord.state(generation) is None
    assert coord.caches.read(generation) is None
    with pytest.raises(NotFound):
        coord.generations.capture("a")


def test_invariant_02_a_transaction_of_an_earlier_boot_is_brought_to_its_end(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    with Child(UNFINISHED, path) as child:
        child.hear()
        child.kill()
    lease = Path(path, instance_path("a"), "lease")
    sid, _ = json.loads(lease.read_text())
    session_file(path, sid).unlink()
    with pytest.raises(InDoubt, match="is gone"), coord.lease("a"):
        pass
    lease.write_text(json.dumps([sid, "00000000-0000-0000-0000-000000000000"]) + "\n")
    with coord.lease("a"):
        assert coord.state(generation) == "new"


def test_invariant_02_another_hosts_session_in_a_root_that_was_moved_here_is_dead(
    coord: Coordination, path: str
) -> None:
    generation = coord.generations.open("a")
    with Child(UNFINISHED, path) as child:
        child.hear()
        child.kill()
    lease = Path(path, instance_path("a"), "lease")
    sid, _ = json.loads(lease.read_text())
    # A local disk serves one kernel at a time: whoever wrote this under another one is gone, whatever its pid says.
    elsewhere = "11111111-1111-1111-1111-111111111111"
    rewrite(session_file(path, sid), host="elsewhere", boot_id=elsewhere, pid=os.getpid())
    lease.write_text(json.dumps([sid, elsewhere]) + "\n")
    with coord.lease("a"):
        assert coord.state(generation) == "new"


def test_invariant_03_a_root_that_another_host_may_be_using_is_refused_and_left_as_it_is(path: str) -> None:
    with Coordination.open(path) as coord:
        coord.publish(coord.transaction(coord.generations.open("a"), "comment", {}))
    before = {one: one.stat().st_mtime_ns for one in Path(path).rglob("*")}
    device = os.stat(path).st_dev
    shared = f"36 35 {os.major(device)}:{os.minor(device)} / / rw - nfs4 host:/export rw"
    # Its sessions may be those of another host, whose locks are not seen here: nobody's death can be proven.
    with pytest.raises(InDoubt, match="nfs4"):
        Coordination.open(path, mountinfo=shared)
    assert {one: one.stat().st_mtime_ns for one in Path(path).rglob("*")} == before


def test_invariant_03_in_doubt_nothing_is_acquired_changed_or_deleted(coord: Coordination, path: str) -> None:
    generation = coord.generations.open("a")
    coord.caches.write(generation, b"payload")
    with Child(UNFINISHED, path) as child:
        child.hear()
        child.kill()
    lease = Path(path, instance_path("a"), "lease")
    sid, _ = json.loads(lease.read_text())
    session_file(path, sid).unlink()
    before = {name.name: name.read_bytes() for name in lease.parent.iterdir()}
    for attempt in (
        lambda: coord.terminals.record(generation, "succeeded"),
        lambda: coord.generations.replace(generation),
        lambda: coord.caches.write(generation, b"other"),
        lambda: coord.publish(coord.transaction(generation, "comment", {})),
    ):
        with pytest.raises(InDoubt):
            attempt()
    assert {name.name: name.read_bytes() for name in lease.parent.iterdir()} == before
    with Coordination.open(path, dead_sessions=[sid]) as told, told.lease("a"):
        assert told.state(generation) == "new"


def test_invariant_03_a_claim_that_nobody_can_read_is_in_doubt_and_a_torn_one_is_not(
    coord: Coordination, path: str
) -> None:
    opened(coord, "a")
    lease = Path(path, instance_path("a"), "lease")
    lease.write_text("what is this?\n")
    with pytest.raises(InDoubt, match="cannot be read"), coord.lease("a"):
        pass
    lease.write_text('["0123')
    with coord.lease("a"):
        assert lease.read_bytes() == b""


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_invariant_03_a_lease_that_was_deleted_or_replaced_while_held_is_refused_to_others(
    coord: Coordination, path: str, how: str
) -> None:
    generation = coord.generations.open("a")
    lease = Path(path, instance_path("a"), "lease")
    with Child(HOLDER, path, "a") as child:
        child.hear()
        lease.unlink()
        if how == "replaced":
            lease.touch()
        with Coordination.open(path) as other:
            for _ in range(2):
                with pytest.raises(InDoubt), other.lease("a"):
                    pass
        child.tell("go on")
        child.hear()
    # The old file is still open here: its lock is free, but it is no longer the instance's lease.
    with coord.lease("a"), pytest.raises(InDoubt, match="deleted or replaced"):
        coord.terminals.record(generation, "succeeded")
    assert coord.repair.instance("a").lease
    assert not coord.repair.instance("a").lease
    with Coordination.open(path) as other:
        assert other.terminals.record(generation, "succeeded").outcome == "succeeded"
