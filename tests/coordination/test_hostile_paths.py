"""Links, FIFOs, directories and foreign owners where files belong; filesystems whose locks prove nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wakeful_coordination import Coordination
from wakeful_coordination.errors import InDoubt, InvalidRecord, NotFound, UnknownVersion, UnsafePath
from wakeful_coordination.layout import instance_path
from wakeful_coordination.machine import Machine
from wakeful_coordination.mounts import filesystem_type
from wakeful_coordination.posix import PosixFilesystem


def plant(kind: str, place: Path, victim: Path) -> None:
    {
        "link": lambda: place.symlink_to(victim),
        "dangling link": lambda: place.symlink_to(victim.with_name("nowhere")),
        "fifo": lambda: os.mkfifo(place),
        "directory": lambda: place.mkdir(),
    }[kind]()


KINDS = ["link", "dangling link", "fifo", "directory"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["lease", "generation.json", "state.json"])
def test_nothing_is_followed_opened_or_truncated_in_the_place_of_a_file(
    path: str, tmp_path: Path, kind: str, what: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    with Coordination.open(path) as coord:
        generation = coord.generations.open("a")
    place = Path(path, instance_path("a"), what)
    place.unlink(missing_ok=True)
    plant(kind, place, victim)
    with Coordination.open(path) as coord:
        attempt = coord.terminals.record if what != "state.json" else lambda one, _: coord.state(one)
        with pytest.raises((UnsafePath, InDoubt)) as refused:
            attempt(generation, "succeeded")
        assert "\n" not in refused.value.message
        assert what in refused.value.message or "lease" in refused.value.message
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("kind", ["link", "fifo"])
@pytest.mark.parametrize("what", ["sessions", "outbox/pending", "instances", "root.json", "recovery.lock"])
def test_nothing_is_followed_in_the_place_of_a_roots_own_names(path: str, tmp_path: Path, kind: str, what: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    with Coordination.open(path) as coord:
        generation = coord.generations.open("a")
    place = Path(path, what)
    place.rename(elsewhere)
    plant(kind, place, elsewhere)

    def use() -> None:
        with Coordination.open(path) as coord:
            coord.publish(coord.transaction(generation, "comment", {}))
            coord.recover()

    with pytest.raises(UnsafePath) as refused:
        use()
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("what", ["sessions", "outbox/pending", "outbox/quarantine", "receipts"])
def test_a_directory_of_the_root_that_is_gone_is_told_in_one_line(path: str, what: str) -> None:
    with Coordination.open(path) as coord:
        transaction = coord.transaction(coord.generations.open("a"), "comment", {})
        Path(path, what).rename(Path(path).parent / "elsewhere")
        with pytest.raises(UnsafePath, match="is gone"):
            coord.publish(transaction) if what != "sessions" else coord.survey.overview()


def test_without_openat2_no_component_is_followed_either(path: str, tmp_path: Path) -> None:
    files = PosixFilesystem()
    files._openat2 = False
    with Coordination.open(path, files=files) as coord:
        generation = coord.generations.open("a")
        shelf = Path(path, instance_path("a")).parent
        shelf.rename(tmp_path / "elsewhere")
        shelf.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(UnsafePath):
            coord.terminals.record(generation, "succeeded")
    with pytest.raises(InvalidRecord), Coordination.open(path) as coord:
        coord.generations.capture("../../etc")


def test_the_root_may_be_reached_through_a_link_but_not_be_one(path: str, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(tmp_path)
    with Coordination.open(str(tmp_path / "way" / "root")) as coord:
        coord.generations.open("a")
    with Coordination.open(path, create=False) as coord:
        assert coord.generations.capture("a").seq == 1
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(UnsafePath):
        Coordination.open(str(tmp_path / "link"))


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707])
def test_a_root_that_others_may_enter_is_refused(path: str, mode: int) -> None:
    Coordination.open(path).close()
    Path(path).chmod(mode)
    with pytest.raises(UnsafePath, match=f"{mode:04o}"):
        Coordination.open(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("what", ["", "sessions", "outbox/pending"])
def test_a_foreign_owner_is_refused(path: str, what: str) -> None:
    with Coordination.open(path) as coord:
        generation = coord.generations.open("a")
    os.chown(Path(path, what), 12345, 12345)
    with pytest.raises(UnsafePath, match="owner 12345"), Coordination.open(path) as coord:
        coord.publish(coord.transaction(generation, "comment", {}))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_lease_of_a_foreign_owner_is_refused(path: str) -> None:
    with Coordination.open(path) as coord:
        coord.generations.open("a")
    os.chown(Path(path, instance_path("a"), "lease"), 12345, 12345)
    with Coordination.open(path) as coord, pytest.raises(UnsafePath, match="user 12345"), coord.lease("a"):
        pass


def test_everything_made_is_private(path: str) -> None:
    before = os.umask(0)
    try:
        with Coordination.open(path) as coord:
            generation = coord.generations.open("a")
            coord.publish(coord.transaction(generation, "comment", {}))
            coord.caches.write(generation, b"x")
            modes = {one.lstat().st_mode & 0o7777 for one in Path(path).rglob("*")}
    finally:
        os.umask(before)
    assert modes == {0o700, 0o600}


def test_a_directory_with_other_things_in_it_does_not_become_a_root(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(UnsafePath, match=r"thesis\.txt"):
        Coordination.open(str(tmp_path))
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_a_root_that_is_not_there_is_not_made_unless_asked(path: str) -> None:
    with pytest.raises(NotFound):
        Coordination.open(path, create=False)
    with pytest.raises(NotFound):
        Coordination.open(f"{path}/deeper/still")
    assert not Path(path).exists()


def test_a_root_of_an_unknown_layout_is_refused(path: str) -> None:
    Coordination.open(path).close()
    Path(path, "root.json").write_text('{"v": 2}')
    with pytest.raises(UnknownVersion, match="version 2"):
        Coordination.open(path)


MOUNT = "36 35 {numbers} / {point} rw,noatime shared:1 - {kind} /dev/x rw"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs", "9p", "virtiofs", "ceph", "gfs2", "lustre"])
def test_a_filesystem_whose_locks_prove_nothing_is_refused_at_once(path: str, tmp_path: Path, kind: str) -> None:
    numbers = f"{os.major(tmp_path.stat().st_dev)}:{os.minor(tmp_path.stat().st_dev)}"
    with pytest.raises(InDoubt, match=kind) as refused:
        Coordination.open(path, mountinfo=MOUNT.format(numbers=numbers, point="/", kind=kind))
    assert refused.value.hint
    assert "local disk" in refused.value.hint
    assert not Path(path, "root.json").exists()


def test_a_filesystem_that_no_mount_explains_is_refused(path: str) -> None:
    with pytest.raises(InDoubt, match="unknown"):
        Coordination.open(path, mountinfo="")


def test_the_type_comes_from_the_device_then_from_the_mount_point() -> None:
    table = "\n".join(
        [
            MOUNT.format(numbers="8:1", point="/", kind="ext4"),
            MOUNT.format(numbers="0:50", point="/data", kind="nfs4"),
            MOUNT.format(numbers="8:2", point=r"/data/my\040disk", kind="xfs"),
            MOUNT.format(numbers="0:60", point="/btr", kind="btrfs"),
            "nonsense",
        ]
    )
    assert filesystem_type(table, "/data/root", os.makedev(0, 50)) == "nfs4"
    assert filesystem_type(table, "/data/my disk/root", os.makedev(8, 2)) == "xfs"
    assert filesystem_type(table, "/srv/root", os.makedev(8, 1)) == "ext4"
    # A subvolume's files bear a device number that no mount has.
    assert filesystem_type(table, "/btr/sub/root", os.makedev(0, 99)) == "btrfs"
    assert filesystem_type(table, "/database", os.makedev(0, 77)) == "ext4"


@pytest.mark.parametrize(("upper", "found"), [("/", "overlay"), ("/net", "nfs4"), ("/unseen", "overlay")])
def test_an_overlay_counts_as_its_upper_layer(upper: str, found: str) -> None:
    table = "\n".join(
        [
            f"40 1 0:70 / / rw - overlay overlay rw,lowerdir=/l,upperdir={upper}/up,workdir=/w",
            MOUNT.format(numbers="0:50", point="/net", kind="nfs4"),
        ]
    )
    assert filesystem_type(table, "/root", os.makedev(0, 70)) == found


def test_without_proc_nobody_can_be_identified_and_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(InDoubt, match="self/stat"):
        Machine.here(tmp_path)
