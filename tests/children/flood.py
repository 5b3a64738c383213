"""Writes 20 MB to stdout, then 20 MB to stderr, and exits 0."""

import sys

LINE = b"x" * 999 + b"\n"

for stream in (sys.stdout.buffer, sys.stderr.buffer):
    for _ in range(20_000):
        stream.write(LINE)
    stream.flush()
