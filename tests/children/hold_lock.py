"""Holds the lock file named by its argument as a runner does that has not started its command yet."""

import fcntl
import json
import os
import signal
import sys
from pathlib import Path

with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    json.dump(
        {
            "pid": os.getpid(),
            "ticks": int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]),
            "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "namespace": os.stat("/proc/self/ns/pid").st_ino,
        },
        lock,
    )
    lock.flush()
    print("up", flush=True)
    signal.pause()
