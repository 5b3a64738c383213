"""A pid namespace around a command: the kernel itself ends everything in it, and nothing in it can hide.

Imports the standard library only, because the runner starts with it. Linux only. Works for root, and for
other users where the system lets them make user namespaces; programs that change the user (sudo) then fail.
"""

from __future__ import annotations

import os

from wakeful_plugins import light_signal as signal

NEW_MOUNTS, NEW_USER, NEW_PIDS = 0x20000, 0x10000000, 0x20000000  # CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID
PRIVATE_TREE = 0x44000  # MS_REC | MS_PRIVATE
PLAIN = 14  # MS_NOSUID | MS_NODEV | MS_NOEXEC
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def enter() -> None:
    """Give this process's future children a pid namespace of their own. Raises OSError where that is not allowed.

    This process stays outside and sees its children under outside pids, so that all it does to them still works.
    """
    uid, gid = os.geteuid(), os.getegid()
    try:
        _call("unshare", NEW_PIDS)
        return
    except PermissionError:
        _call("unshare", NEW_USER | NEW_PIDS)
    for path, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{path}", "w") as file:
            file.write(text)


def split_off(told: int) -> None:
    """Called in the namespace's first process: returns in its child, while it stays behind and never returns.

    It collects the namespace's orphans, writes the child's wait status to the descriptor ``told``, ends when
    it is alone, and is killed with its parent; the kernel then kills whatever is left. Raises OSError.
    """
    _call("unshare", NEW_MOUNTS)
    _call("mount", b"none", b"/", None, PRIVATE_TREE, None)
    _call("mount", b"proc", b"/proc", b"proc", PLAIN, None)
    _call("prctl", PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    child = os.fork()
    if child == 0:
        return
    os.closerange(3, told)
    os.closerange(told + 1, os.sysconf("SC_OPEN_MAX"))
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)
        if pid == child:
            os.write(told, b"%d" % status)
            os.close(told)


def _call(name: str, *arguments: int | bytes | None) -> None:
    """Call a function of the C library that answers 0, or set errno and raise it as an OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_ulong(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in arguments]
    if libc[name](*words) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), f"pid namespace ({name})")
