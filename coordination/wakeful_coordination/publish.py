"""The one order in which bytes and names become durable.

New and replaced files: temporary in the target directory, fsync, rename, fsync of the directory, and
only then a return. Across directories: link, fsync of the target directory; the caller unlinks the
source afterwards. A rename never crosses directories: the weakest filesystem may lose both names.
"""

from __future__ import annotations

import contextlib

from wakeful_coordination.errors import InvalidRecord, UnsafePath
from wakeful_coordination.root import Root


def new_file(root: Root, at: int, name: str, data: bytes, *, place: str, temporary: str | None = None) -> None:
    """Publish a file that must not exist; on return it survives power loss.

    ``place`` names the directory ``at`` in messages; ``temporary`` must be unique among writers, and defaults
    to a name that the holder of the directory's lease alone uses. FileExistsError where the name is taken.
    """
    spare = temporary or f".tmp-{name}"
    _write(root, at, spare, data, place)
    try:
        root.files.rename_new(spare, name, at)
    except OSError as error:
        _dropped(root, at, spare)
        root.fail(error, f"{place}/{name}")
    root.sync(at, place)


def replace_file(
    root: Root, at: int, name: str, data: bytes, *, place: str, durable: bool = True, temporary: str | None = None
) -> None:
    """Publish a file over what stands there, as a new inode; on return it survives power loss.

    Also the way to acknowledge again what an earlier process published without knowing that it is durable.
    ``durable=False`` leaves the directory's fsync to the caller.
    """
    spare = temporary or f".tmp-{name}"
    _write(root, at, spare, data, place)
    try:
        root.files.rename(spare, name, at)
    except OSError as error:
        root.fail(error, f"{place}/{name}")
    if durable:
        root.sync(at, place)


def add_name(root: Root, source: str, source_at: int, target: str, target_at: int, *, place: str) -> None:
    """Give a durable file a second name in another directory; on return the name survives power loss.

    FileExistsError where the name is taken.
    """
    with root.explained(f"{place}/{target}"):
        root.files.link(source, source_at, target, target_at)
    root.sync(target_at, place)


def remove(root: Root, at: int, name: str, *, place: str) -> bool:
    """Remove a name if it stands; not durable until the directory is synced. Says whether it stood."""
    with root.explained(f"{place}/{name}"):
        try:
            root.files.unlink(name, at)
        except FileNotFoundError:
            return False
    return True


def read_file(root: Root, at: int, name: str, *, place: str, limit: int) -> bytes | None:
    """Return a file's bytes, or None where nothing stands.

    Raises UnsafePath for anything but a regular file of ours, InvalidRecord for more than ``limit`` bytes.
    """
    files = root.files
    try:
        fd = files.open_file(name, at)
        try:
            found = files.status(fd)
            if found.kind != "file" or found.uid != root.uid:
                path = f"{root.path}/{place}/{name}"
                raise UnsafePath(f"{path} is a {found.kind} of user {found.uid}", hint="move it away")
            data = files.read(fd, limit + 1)
        finally:
            files.close(fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        root.fail(error, f"{place}/{name}")
    if len(data) > limit:
        raise InvalidRecord(f"{root.path}/{place}/{name}: more than {limit} bytes")
    return data


def _write(root: Root, at: int, spare: str, data: bytes, place: str) -> None:
    """Write a temporary and flush it; it is removed again where that fails."""
    root.usable()
    files = root.files
    try:
        try:
            fd = files.create(spare, at)
        except FileExistsError:
            # Only this writer uses the name: what stands there was left by its death.
            files.unlink(spare, at)
            fd = files.create(spare, at)
        try:
            files.write(fd, data)
            root.sync(fd, f"{place}/{spare}")
        except BaseException:
            _dropped(root, at, spare)
            raise
        finally:
            files.close(fd)
    except OSError as error:
        root.fail(error, f"{place}/{spare}")


def _dropped(root: Root, at: int, spare: str) -> None:
    # The first error is the one to tell; a temporary left behind harms nobody.
    with contextlib.suppress(OSError):
        root.files.unlink(spare, at)
