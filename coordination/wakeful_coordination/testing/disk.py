"""A disk of the weakest POSIX filesystem: what is durable, what is only visible, what a power cut may leave.

Until a directory is synced, any subset of its changes may survive; until a file is synced, its bytes may be
the old ones, half of the new ones, or all. Only a rename within one directory is atomic.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

#: A directory change: names and the inode each then bears (None: no longer stands).
Change = tuple[tuple[str, int | None], ...]
Key = tuple[object, ...]


class Disk:
    """Directories by path, files by inode; empty directories given at the start need no entry."""

    def __init__(self) -> None:
        self.durable: dict[str, dict[str, int]] = {}
        self.pending: dict[str, list[Change]] = {}
        #: Inode to (durable bytes, visible bytes); a directory's inode maps to its path.
        self.files: dict[int, tuple[bytes, bytes]] = {}
        self.directories: dict[int, str] = {}
        self.next_inode = 1

    def copy(self) -> Disk:
        """Return an independent copy."""
        other = Disk()
        other.durable = {path: dict(names) for path, names in self.durable.items()}
        other.pending = {path: list(changes) for path, changes in self.pending.items()}
        other.files = dict(self.files)
        other.directories = dict(self.directories)
        other.next_inode = self.next_inode
        return other

    def visible(self, path: str) -> dict[str, int]:
        """Return what a process sees in a directory; not to be changed by the caller."""
        durable = self.durable.get(path, {})
        if not (pending := self.pending.get(path)):
            return durable
        names = dict(durable)
        for change in pending:
            _applied(names, change)
        return names

    def change(self, path: str, *names: tuple[str, int | None]) -> None:
        """Change a directory; visible at once, durable when it is synced."""
        self.pending.setdefault(path, []).append(names)

    def settle(self, path: str, name: str, inode: int) -> None:
        """Make one name durable although earlier changes of its directory are not: another process's doing."""
        self.durable.setdefault(path, {})[name] = inode
        kept = [tuple(one for one in change if one[0] != name) for change in self.pending.get(path, ())]
        self.pending[path] = [change for change in kept if change]

    def sync_directory(self, path: str) -> None:
        """Make a directory's names durable."""
        self.durable[path] = dict(self.visible(path))
        self.pending.pop(path, None)

    def sync_file(self, inode: int) -> None:
        """Make a file's bytes durable."""
        visible = self.files[inode][1]
        self.files[inode] = (visible, visible)

    def power_cuts(self, lost: frozenset[str], *, thorough: bool) -> Iterator[Disk]:
        """Yield every disk a power cut may leave; all changes of ``lost`` directories are gone.

        Not ``thorough``: of each directory's changes survive none, all, all but one, or one alone, and no
        lease is torn.
        """
        changed = [path for path, changes in self.pending.items() if changes]
        choices = [list(_subsets(self.pending[path], path in lost, thorough)) for path in changed]
        base = {path: names for path, names in self.durable.items() if path not in changed}
        for chosen in itertools.product(*choices):
            durable = dict(base)
            for path, survivors in zip(changed, chosen, strict=True):
                names = dict(self.durable.get(path, {}))
                for change in survivors:
                    _applied(names, change)
                durable[path] = names
            standing = {inode for names in durable.values() for inode in names.values()}
            # What a temporary holds is never read: only files that have reached another name are torn.
            named = {ino: name for names in durable.values() for name, ino in names.items() if name[0] != "."}
            dirty = [ino for ino in named if ino in self.files and self.files[ino][0] != self.files[ino][1]]
            remains = [_remains(*self.files[ino], torn=thorough or named[ino][:5] != "lease") for ino in dirty]
            for contents in itertools.product(*remains):
                yield self._rebooted(durable, dict(zip(dirty, contents, strict=True)), standing)

    def _rebooted(self, durable: dict[str, dict[str, int]], torn: dict[int, bytes], standing: set[int]) -> Disk:
        other = Disk()
        other.next_inode = self.next_inode
        # A directory whose own name is lost takes its contents with it.
        lost = {path for inode, path in self.directories.items() if inode not in standing}
        other.durable = {path: dict(names) for path, names in durable.items() if path not in lost}
        for inode in standing:
            if inode in self.directories:
                other.directories[inode] = self.directories[inode]
            else:
                data = torn.get(inode, self.files[inode][0])
                other.files[inode] = (data, data)
        return other

    def key(self, *, visible: bool = False) -> Key:
        """Return a value equal for disks that no process can tell apart, whatever their inode numbers.

        ``visible`` compares only what processes see: enough where no power cut will follow.
        """
        numbers: dict[int, int] = {}

        def number(inode: int | None) -> int:
            return -1 if inode is None else numbers.setdefault(inode, len(numbers))

        known = {*self.durable, *self.pending} if visible else self.durable
        names = tuple(
            (path, tuple((name, number(inode)) for name, inode in sorted(entries.items())))
            for path in sorted(known)
            if (entries := self.visible(path) if visible else self.durable[path])
        )
        changes = tuple(
            (path, tuple(tuple((name, number(inode)) for name, inode in change) for change in pending))
            for path, pending in sorted(self.pending.items())
            if pending and not visible
        )
        contents = tuple(self.directories.get(inode) or self._content(inode, visible) for inode in numbers)
        return names, changes, contents

    def _content(self, inode: int, visible: bool) -> bytes | tuple[bytes, bytes] | None:
        found = self.files.get(inode)
        return found[1] if visible and found is not None else found


def _applied(names: dict[str, int], change: Change) -> None:
    for name, inode in change:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _subsets(changes: list[Change], lost: bool, thorough: bool) -> Iterator[tuple[Change, ...]]:
    yield ()
    if lost:
        return
    for size in range(1, len(changes) + 1):
        if thorough or size in (1, len(changes) - 1, len(changes)):
            yield from itertools.combinations(changes, size)


def _remains(durable: bytes, visible: bytes, *, torn: bool) -> tuple[bytes, ...]:
    half = visible[: len(visible) // 2]
    return tuple(dict.fromkeys((durable, half, visible) if torn else (durable, visible)))
