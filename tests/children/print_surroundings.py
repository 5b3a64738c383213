"""Prints, as JSON, everything a process inherits."""

import json
import os
import signal
import sys

with open("/proc/self/environ", errors="surrogateescape") as file:
    environment = dict(pair.split("=", 1) for pair in file.read().split("\0") if pair)
descriptors = [int(fd) for fd in os.listdir("/proc/self/fd")]
descriptors = [fd for fd in descriptors if os.path.exists(f"/proc/self/fd/{fd}")]  # without listdir's own
with open("/proc/self/status") as file:
    status = dict(line.split(":", 1) for line in file)
# Python itself ignores two; the C library's own, 32 and 33, are out of every program's reach, and make hands them on.
reachable = sum(1 << number - 1 for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ})
print(
    json.dumps(
        {
            "environment": environment,
            "descriptors": sorted(descriptors),
            "stdin": os.readlink("/proc/self/fd/0"),
            "cwd": os.getcwd(),
            "blocked": int(status["SigBlk"], 16),
            "ignored": int(status["SigIgn"], 16) & reachable,
            "session": os.getsid(0),
            "pid": os.getpid(),
            "parent_session": os.getsid(os.getppid()),
            "arguments": sys.argv[1:],
        }
    )
)
