"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

from psycopg import Connection


def described(conn: Connection[Any]) -> dict[str, Any]:
    """Return the header of ``results.json``."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "postgresql": conn.execute("SHOW server_version").fetchall()[0][0],
        "fsync": conn.execute("SHOW fsync").fetchall()[0][0],
        "synchronous_commit": conn.execute("SHOW synchronous_commit").fetchall()[0][0],
        "load": round(os.getloadavg()[0], 2),
    }


def fsyncs_per_s(directory: Path, seconds: float) -> float:
    """Return how often a second this machine makes 8 kB durable, in ``directory``."""
    block = b"\0" * 8192
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(block)
        file.flush()
        descriptor = file.fileno()
        count = 0
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            os.pwrite(descriptor, block, 0)
            os.fdatasync(descriptor)
            count += 1
        return count / (time.monotonic() - start)
