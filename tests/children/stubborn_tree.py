"""A tree that does not want to go: setsid, double fork, TERM ignored.

Arguments: ``exit CODE`` or ``stay`` for the main process, then any of ``cookieless`` (the grandchild runs with
an empty environment), ``quiet`` (it closes its output). Prints the grandchild's pid as its first line.
"""

import os
import signal
import sys

STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
import os
os.write(int(sys.argv[1]), b"%d\\n" % os.getpid())
os.close(int(sys.argv[1]))
if sys.argv[2] == "quiet":
    os.closerange(0, 64)
while True:
    signal.pause()
"""


def main() -> None:
    words = sys.argv[1:]
    heard, told = os.pipe()
    os.set_inheritable(told, True)
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        arguments = [sys.executable, "-I", "-S", "-c", STUBBORN, str(told), "quiet" if "quiet" in words else "loud"]
        environment = {} if "cookieless" in words else dict(os.environ)
        os.execve(sys.executable, arguments, environment)  # noqa: S606 - a shell would spoil the environment
    os.wait()
    os.close(told)
    print(os.read(heard, 32).decode().strip(), flush=True)
    if words[0] == "exit":
        sys.exit(int(words[1]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


main()
