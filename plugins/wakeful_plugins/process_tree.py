"""Everything below the runner: collected as it ends, and ended where it must end.

Imports the standard library only, because the runner starts with it.
"""

from __future__ import annotations

import os

from wakeful_plugins import light_signal as signal
from wakeful_plugins.process_table import Stat, descendants, send, stat_of

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def become_subreaper() -> bool:
    """Make the orphans of every descendant children of this process. False where that is impossible."""
    try:
        import ctypes

        zero = ctypes.c_ulong(0)
        done: int = ctypes.CDLL(None).prctl(SUBREAPER, ctypes.c_ulong(1), zero, zero, zero)
    except (ImportError, OSError, AttributeError):
        return False
    return done == 0 and stat_of(os.getpid()) is not None


class ProcessTree:
    """The processes below this one.

    Arguments:
        contained: whether this process is a subreaper. If not, only the main process and its process group
            are known, and what leaves the group is never seen.

    ``status`` is the main process's wait status once it has ended, ``outlived`` who had to be ended after it,
    ``ended`` who was told to end at all.
    Where the command has a pid namespace, ``main`` is that namespace's first process, which only KILL ends, and
    the command's own status is read from the descriptor ``told``.
    """

    def __init__(self, *, contained: bool) -> None:
        self.contained = contained
        self.main = 0
        self.told = -1
        self.status: int | None = None
        self.outlived: set[tuple[int, int]] = set()
        self.ended: set[tuple[int, int]] = set()
        self._asked: set[tuple[int, int]] = set()

    def reap(self) -> bool:
        """Collect what has ended. False when no child is left."""
        self._hear()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.main:
                self._hear()
                self.status = status if self.status is None else self.status
                if not self.contained:
                    self._signal_group(signal.SIGKILL)  # its orphans are nobody's children here: now or never

    def _hear(self) -> None:
        """Learn the status of a command in a namespace, if it has ended."""
        if self.told < 0:
            return
        try:
            data = os.read(self.told, 32)
        except BlockingIOError:
            return
        if data:
            self.status = int(data)
        os.close(self.told)
        self.told = -1

    def end(self, *, kill: bool) -> None:
        """Signal whatever lives: TERM, once to each, or KILL."""
        if not self.contained and self.status is None:
            self._signal_group(signal.SIGKILL if kill else signal.SIGTERM)
        for stat in self._living():
            one = (stat.pid, stat.ticks)
            self.ended.add(one)
            if self.status is not None and stat.pid != self.main:
                self.outlived.add(one)
            if kill:
                send(*one, signal.SIGKILL)
            elif one not in self._asked:
                self._asked.add(one)
                send(*one, signal.SIGTERM)
                send(*one, signal.SIGCONT)  # a stopped process would never see the TERM

    def _living(self) -> list[Stat]:
        try:
            return descendants(os.getpid())
        except OSError:
            return []  # no /proc, or no descriptor left: the next look may see more

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self.main, number)
        except OSError:
            return
