"""Which filesystem a root stands on, and whether its locks can be believed."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from wakeful_coordination.errors import InDoubt

#: One kernel decides about flock on these, so a lock that is free has no living owner.
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs", "zfs", "overlay", "bcachefs", "ramfs"})


def filesystem_type(mountinfo: str, path: str, device: int) -> str:
    """Return the type of the filesystem that holds ``path`` (absolute, resolved), or ``"unknown"``.

    ``mountinfo`` is the text of /proc/self/mountinfo and ``device`` the path's st_dev. A mount of that
    device wins; filesystems whose files bear anonymous devices (btrfs) are found by their mount point.
    An overlay counts as its upper layer where that can be seen.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = [mount for line in mountinfo.splitlines() if (mount := _parse(line)) is not None]
    covering = [mount for mount in mounts if _covers(mount[1], path)]
    matching = [mount for mount in covering if mount[0] == number] or covering
    if not matching:
        return "unknown"
    # Of equal mount points the last one mounted hides the others.
    best = max(enumerate(matching), key=lambda pair: (len(pair[1][1]), pair[0]))[1]
    if best[2] != "overlay":
        return best[2]
    upper = dict(option.partition("=")[::2] for option in best[3].split(",")).get("upperdir")
    below = [mount for mount in mounts if upper and mount[2] != "overlay" and _covers(mount[1], upper)]
    if below and (seen := max(below, key=lambda mount: len(mount[1]))[2]) not in LOCAL:
        return seen
    return "overlay"


def require_local(kind: str, path: str) -> None:
    """Refuse a root whose locks another kernel may ignore.

    Raises InDoubt with what an operator may do.
    """
    if kind not in LOCAL:
        raise InDoubt(
            f"{path} lies on a filesystem of type {kind}: nobody's death can be proven there",
            hint="put the root on a local disk (ext4, xfs, btrfs, tmpfs); one host only",
        )


def _parse(line: str) -> tuple[str, str, str, str] | None:
    head, dash, tail = line.partition(" - ")
    fields, rest = head.split(" "), tail.split(" ")
    if not dash or len(fields) < 6 or not rest[0]:
        return None
    return fields[2], _unescaped(fields[4]), rest[0], rest[2] if len(rest) > 2 else ""


def _unescaped(name: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        name = name.replace(code, character)
    return name


def _covers(point: str, path: str) -> bool:
    return PurePosixPath(path).is_relative_to(point)
