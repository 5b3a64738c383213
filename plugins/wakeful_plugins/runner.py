"""Runs one command and sees its whole process tree to the end: one process per run, started by file path.

    python -I -S -X utf8 runner.py --directory DIR --cookie RUN-GENERATION [flags] -- COMMAND [ARGUMENT …]

It needs the standard library and its siblings here, no site-packages and no scheduler. It holds the run
directory's ``lock`` for life, writes ``started`` before the command is executed, and ``exit.json`` when
nothing of the tree is left. Its own environment is the command's, exactly.

Flags take seconds as decimals (0 = no limit): ``--max-runtime --silence-limit --stop-grace --poll --drain``;
bytes: ``--output-cap``; and ``--cwd``, ``--ready`` (a descriptor that closes once the command runs, and on
which a failure before that is told), ``--containment`` subreaper (Linux) or group, ``--isolation`` none or
namespaces (the command gets a pid namespace).
SIGTERM and SIGUSR1 mean: look at the file ``stop`` now. SIGHUP and SIGINT are ignored.

A full disk does not lose the exit status: room for ``exit.json`` is set aside before the command starts, and
if it still cannot be written, the runner keeps the lock and tries again (every 5 s at last) until it can.

Exit status: 0 recorded or voided · 64 wrong flags · 74 its files failed before ``started``, nothing was
executed (or its directory was removed) · 75 the run has, or had, another runner.
"""

from __future__ import annotations

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # -I and -S left the standard library

from wakeful_plugins import light_signal as signal
from wakeful_plugins.process_table import ProcessIdentity
from wakeful_plugins.run import Orders, Run
from wakeful_plugins.run_files import RunFiles, encoded

RECORDED, USAGE, FAILED, TAKEN = 0, 64, 74, 75


def listen() -> int:
    """Let signals wake a select on the returned descriptor. None of them ends the runner but KILL."""
    wake, signalled = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(signalled, False)
    signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return wake


def leave_parent(ready: int) -> None:
    """Take a session and a directory of its own, and close what the parent happened to leave open."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    os.chdir("/")
    os.closerange(3, max(3, ready))
    os.closerange(max(2, ready) + 1, os.sysconf("SC_OPEN_MAX"))
    os.set_inheritable(ready, False)


def main(arguments: list[str]) -> int:
    """Run one command as its flags say; return the exit status."""
    try:
        orders = Orders(arguments)
    except (KeyError, ValueError) as error:
        os.write(2, f"runner: wrong flags: {error}\n".encode())
        return USAGE
    try:
        leave_parent(orders.ready)
        wake = listen()
        files = RunFiles(os.open(orders.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))
        lock = files.lock()
        if lock is None or files.has("void") or files.has("started") or files.has("exit.json"):
            return TAKEN
        identity = ProcessIdentity.of_this_process()
        os.ftruncate(lock, 0)
        os.pwrite(lock, encoded(identity.as_json()).encode(), 0)
        if files.has("stop"):
            files.publish("void", encoded({"v": 1, "reason": "stopped before it started"}).encode())
            return RECORDED
        run = Run(orders, files, identity, wake)
        run.start()
    except OSError as error:
        os.write(orders.ready, f"{error.filename or orders.directory}: {error.strerror}\n".encode("utf-8", "replace"))
        return FAILED
    if orders.ready > 2:
        os.close(orders.ready)
    run.watch()
    return RECORDED if run.record() else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
