"""Disks of a root on which something happens at one named step. Below them is the real filesystem."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from wakeful_coordination.posix import PosixFilesystem


class Stepping(PosixFilesystem):
    """Calls ``before`` and ``after`` around each change of a name: with the call and the name that comes or goes."""

    def __init__(
        self,
        before: Callable[[str, str], None] = lambda call, name: None,
        after: Callable[[str, str], None] = lambda call, name: None,
    ) -> None:
        super().__init__()
        self._before = before
        self._after = after

    def rename(self, source: str, target: str, at: int) -> None:
        self._before("rename", target)
        super().rename(source, target, at)
        self._after("rename", target)

    def rename_new(self, source: str, target: str, at: int) -> None:
        self._before("rename_new", target)
        super().rename_new(source, target, at)
        self._after("rename_new", target)

    def unlink(self, name: str, at: int) -> None:
        self._before("unlink", name)
        super().unlink(name, at)
        self._after("unlink", name)


class Step:
    """One step: the change of a name that begins so. Says whether a call is it.

    Arguments:
        text: ``<call> <beginning of the name>``, such as ``rename held-``.
    """

    def __init__(self, text: str) -> None:
        self._call, _, self._beginning = text.partition(" ")

    def __call__(self, call: str, name: str) -> bool:
        return call == self._call and name.startswith(self._beginning)


def killing(step: str, *, after: bool) -> Stepping:
    """Return a disk that kills its process right before, or right after, a step."""
    wanted = Step(step)

    def kill(call: str, name: str) -> None:
        if wanted(call, name):
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()  # the kill is asynchronous; not one further instruction of the product runs here

    return Stepping(after=kill) if after else Stepping(before=kill)


class Failing(Stepping):
    """A disk whose first flush after a step fails, as often as ``times`` says; then it is whole again."""

    def __init__(self, step: str, times: int = 1) -> None:
        wanted = Step(step)
        self._guard = threading.Lock()
        self._left = times
        self._armed = False

        def arm(call: str, name: str) -> None:
            with self._guard:
                if wanted(call, name) and self._left > 0:
                    self._left -= 1
                    self._armed = True

        super().__init__(after=arm)

    def sync(self, fd: int) -> None:
        with self._guard:
            fails, self._armed = self._armed, False
        if fails:
            raise OSError(5, os.strerror(5))
        super().sync(fd)


class Counting(PosixFilesystem):
    """Counts how often a directory was listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = 0

    def names(self, fd: int) -> list[str]:
        self.listed += 1
        return super().names(fd)
