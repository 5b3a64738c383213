"""Sessions: each process that opens a root holds a lock for life, so that its death can be proven.

To get that lock on a local filesystem proves the process dead: zombies, reused pids, other pid
namespaces and stopped processes all answer right. The pid in the file is for people.
"""

from __future__ import annotations

from dataclasses import dataclass

from wakeful_coordination import publish, record
from wakeful_coordination.errors import CoordinationError, InDoubt
from wakeful_coordination.layout import VERSION
from wakeful_coordination.root import Root, session_path

_LIMIT = 4096
_WHAT = "session"


@dataclass(frozen=True, slots=True)
class Dead:
    """The process is proven dead; ``proof`` says how."""

    proof: str


@dataclass(frozen=True, slots=True)
class Alive:
    """The process lives, or may still act; ``who`` tells people where to look."""

    who: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """Nothing is proven; ``reason`` says why. Only an operator may decide."""

    reason: str


Liveness = Dead | Alive | Doubt


class Session:
    """This process's session: entered once, held until close or death."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.sid = root.new_id()
        machine = root.machine
        data = record.encode(
            {
                "v": VERSION,
                "sid": self.sid,
                "root_id": root.root_id,
                "boot_id": machine.boot_id,
                "host": machine.host,
                "pid": machine.pid,
                "pidns": machine.pid_namespace,
                "start_ticks": machine.start_ticks,
                "started_at": root.now().isoformat(timespec="microseconds"),
            }
        )
        with root.directory("sessions") as at, root.explained("sessions"):
            spare = f".tmp-{self.sid}"
            self._fd = root.open_lock(spare, at, create=True)
            if not root.files.try_lock(self._fd):
                raise InDoubt(f"{root.path}/sessions: a new file is locked already")
            root.files.write(self._fd, data)
            # Locked before it gets its name: nobody can ever find it free while this process lives.
            root.files.rename_new(spare, self.sid, at)
        root.sid = self.sid

    def close(self) -> None:
        """Leave. The file goes too, unless a claim names it: then it must stay, to prove that its owner is gone."""
        root = self._root
        try:
            if root.refusal is None and not root.claims:
                with root.directory("sessions") as at:
                    publish.remove(root, at, self.sid, place="sessions")
        except CoordinationError:
            # The lock frees itself; a recoverer removes the file.
            pass
        finally:
            root.close_lock(self._fd)


def liveness(root: Root, sid: str, boot_id: str | None = None) -> Liveness:
    """Say whether the process of a session is proven dead.

    ``boot_id`` is the boot the asker saw recorded beside the session id, if any: another boot of this
    kernel on a local disk is proof by itself.
    """
    if sid == root.sid:
        return Alive("this very process")
    if sid in root.declared_dead:
        return Dead("an operator said so")
    if boot_id is not None and boot_id != root.machine.boot_id:
        return Dead("it belonged to an earlier boot")
    path = session_path(sid)
    try:
        fd = root.open_lock(path, root.fd)
    except FileNotFoundError:
        return Doubt(f"{root.path}/{path} is gone")
    except OSError as error:
        return Doubt(f"{root.path}/{path}: {error.strerror}")
    try:
        found = root.files.status(fd)
        if found.kind != "file" or found.uid != root.uid:
            return Doubt(f"{root.path}/{path} is a {found.kind} of user {found.uid}")
        free = root.files.try_share(fd)
        try:
            known = record.decode(root.files.read(fd, _LIMIT), what=_WHAT, version=VERSION)
        except CoordinationError:
            # Unsynced bytes die with the power, the lock with the process: only the second matters here.
            known = {}
        if not free:
            return Alive(f"pid {known.get('pid', '?')} on {known.get('host', '?')}")
        if known and known.get("root_id") != root.root_id:
            return Doubt(f"{root.path}/{path} belongs to another root")
        return Dead("the kernel has freed its lock")
    finally:
        root.close_lock(fd)
