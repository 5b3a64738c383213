"""Leaves a process of another user (uid 65534) behind. Needs root. Prints that process's pid.

Exits 6, or stays with the argument ``stay``.
"""

import os
import signal
import sys

heard, told = os.pipe()
pid = os.fork()
if pid == 0:
    os.setresuid(65534, 65534, 65534)
    os.write(told, b"!")
    while True:
        signal.pause()
os.read(heard, 1)
print(pid, flush=True)
if sys.argv[1:] == ["stay"]:
    signal.pause()
sys.exit(6)
