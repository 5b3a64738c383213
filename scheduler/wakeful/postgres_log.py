"""What an embedded server says while it starts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_KEPT = 1 << 20
_PREFIX = re.compile(r"^.*?[0-9-]{10} [0-9:.]+ \S+ \[[0-9]+\] ")
_SEVERE = re.compile(r"\b(ERROR|FATAL|PANIC|error):")


@dataclass(slots=True)
class ServerLog:
    """The log, from the place where one start began to write."""

    path: Path
    fd: int
    begins: int

    @classmethod
    def begin(cls, path: Path) -> Self:
        """Open the log for appending; one over 1 MiB is set aside first, in place of the one before."""
        if path.exists() and path.stat().st_size > _KEPT:
            path.rename(path.with_name(f"{path.name}.old"))
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return cls(path, fd, os.fstat(fd).st_size)

    def close(self) -> None:
        """Close our descriptor; the server has its own."""
        os.close(self.fd)

    def last_words(self) -> str:
        """Return what this start said last, on one line."""
        with self.path.open("rb") as file:
            file.seek(max(self.begins, self.path.stat().st_size - 16384))
            return last_words(file.read())


def last_words(said: bytes) -> str:
    """Return the last severe line of ``said`` and two before it, on one line, without times and control characters.

    What follows the severe line is the program's clearing up, which tells nobody the cause.
    """
    lines = [_PREFIX.sub("", line).strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    severe = [number for number, line in enumerate(lines, 1) if _SEVERE.search(line)]
    end = severe[-1] if severe else len(lines)
    text = "; ".join(lines[max(0, end - 3) : end])
    return "".join(c if c.isprintable() else " " for c in text) or "it ended without a word"
