"""SIGTERM, SIGINT and SIGHUP: the first asks a process to end, the second ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
DONE = 0  # what is no signal's number


def until_signalled(start: Callable[[], None], stop: Callable[[], bool]) -> bool:
    """Call ``start``, wait for a signal, and return what ``stop`` answers; raises what either raises.

    Both are called in a thread of their own; this one, which must be the main thread, waits for signals.
    """
    # The kernel may hand a signal to any thread, and Python's handlers run in a main thread that need not wake up for
    # it. So the signal itself writes into a pipe, and the main thread does nothing but read that.
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    asked = threading.Event()
    outcome: list[bool | BaseException] = []

    def live() -> None:
        try:
            start()
            asked.wait()
            outcome.append(stop())
        except BaseException as error:
            outcome.append(error)
        os.write(tell, bytes([DONE]))

    former_fd = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    # A terminal that closes ends what runs in it; nohup says that it shall not.
    numbers = [one for one in NUMBERS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]
    former = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        threading.Thread(target=live, name="wakeful life", daemon=True).start()
        while (number := os.read(told, 1)[0]) != DONE:
            if number in NUMBERS and asked.is_set():
                os._exit(128 + number)
            if number in NUMBERS:
                asked.set()
    finally:
        for restored, handler in former.items():
            signal.signal(restored, handler)
        signal.set_wakeup_fd(former_fd)
        os.close(told)
        os.close(tell)
    (ended,) = outcome
    if isinstance(ended, BaseException):
        raise ended
    return ended
