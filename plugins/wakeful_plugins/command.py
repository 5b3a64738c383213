"""The command of a run: forked first, executed only when it is let go.

Imports the standard library only, because the runner starts with it.
"""

from __future__ import annotations

import os

from wakeful_plugins import isolation
from wakeful_plugins import light_signal as signal


class Command:
    """A forked child that waits to become ``arguments`` in the directory ``cwd``.

    Arguments:
        stdout, stderr: descriptors of its output; stdin is the runner's own, /dev/null.
        isolated: put it into a pid namespace. ``pid`` is then the namespace's first process, and the wait
            status of the command itself comes through the descriptor ``told`` (else -1).

    Until ``release`` nothing has been executed. If the runner dies before that, the child ends by itself.
    Raises OSError.
    """

    def __init__(self, arguments: list[str], cwd: str, stdout: int, stderr: int, *, isolated: bool) -> None:
        self.told, tell_end = -1, -1
        if isolated:
            isolation.enter()
            self.told, tell_end = os.pipe()
            os.set_blocking(self.told, False)
        wait_end, self._go = os.pipe()
        self._report, error_end = os.pipe()
        every = signal.valid_signals()
        signal.pthread_sigmask(signal.SIG_BLOCK, every)  # the runner's handlers must not run in the child
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._go)
            _become(arguments, cwd, (stdout, stderr), wait_end, error_end, tell_end)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(wait_end)
        os.close(error_end)
        if isolated:
            os.close(tell_end)

    def release(self) -> str | None:
        """Let the command be executed. Returns why that was impossible, or None."""
        os.write(self._go, b"!")
        os.close(self._go)
        error = os.read(self._report, 4096)  # empty as soon as the command is executed: the other end closes
        os.close(self._report)
        return error.decode("utf-8", "replace") or None

    def abandon(self) -> None:
        """End the child without executing anything."""
        os.close(self._go)
        os.close(self._report)
        os.waitpid(self.pid, 0)


def exact_environment() -> dict[bytes, bytes]:
    """Return the environment this process was given: Python adds an LC_CTYPE of its own to a bare one."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = [pair.partition(b"=") for pair in file.read().split(b"\0")]
    except OSError:
        return dict(os.environb)
    return {name: value for name, _, value in pairs if name}


def _become(
    arguments: list[str], cwd: str, output: tuple[int, int], wait_end: int, error_end: int, tell_end: int
) -> None:
    """Turn this child into the command. Never returns."""
    what = "command"
    try:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if tell_end >= 0:
            what = "pid namespace"
            isolation.split_off(tell_end)
        os.setsid()
        os.dup2(output[0], 1)
        os.dup2(output[1], 2)
        if os.read(wait_end, 1):
            what = f"working directory {cwd}"
            os.chdir(cwd)
            what = f"command {arguments[0]}"
            if "/" in arguments[0] and not arguments[0].startswith("/"):
                what += f", looked for in {cwd}"
            os.execvpe(arguments[0], arguments, exact_environment())  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(error_end, f"{what}: {error.strerror}".encode("utf-8", "surrogateescape"))
    except BaseException as error:  # whatever it is, a second runner must not go on from here
        os.write(error_end, f"{what}: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(127)
