"""Kills its own runner, and lives on as an orphan that ignores TERM. Prints its pid first."""

import os
import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
os.kill(os.getppid(), signal.SIGKILL)
while True:
    signal.pause()
