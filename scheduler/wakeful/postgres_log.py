"""What an embedded server says while it starts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_KEPT = 1 << 20
_PREFIX = re.compile(r"^[0-9-]{10} [0-9:.]+ \S+ \[[0-9]+\] ")


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
        """Return the last three lines of this start on one line, without times and control characters."""
        with self.path.open("rb") as file:
            file.seek(max(self.begins, self.path.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").splitlines()
        said = [_PREFIX.sub("", line).strip() for line in lines if line.strip()]
        text = "; ".join(said[-3:])
        return "".join(c if c.isprintable() else " " for c in text) or "it ended without a word"
