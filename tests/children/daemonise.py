"""Leaves a harmless daemon behind, the classical way, and exits 0. Prints the daemon's pid."""

import os
import signal
import sys

heard, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    os.write(told, b"%d" % os.getpid())
    os.closerange(0, 64)
    while True:
        signal.pause()
os.wait()
print(os.read(heard, 32).decode(), flush=True)
sys.exit(0)
