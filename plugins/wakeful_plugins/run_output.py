"""One output file, seen from outside: the command writes to it directly, nobody stands in between.

Imports the standard library only, because the runner starts with it.
"""

from __future__ import annotations

import os

from wakeful_plugins.run_files import RunFiles


class Output:
    """The file ``name`` of a run: how fast it grows, and its cap in bytes (0 = none).

    What is over the cap is cut off while the command runs on undisturbed; the first ``cap`` bytes stay.
    """

    def __init__(self, files: RunFiles, name: str, cap: int) -> None:
        self.name = name
        self.cap = cap
        self.fd = files.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.size = 0
        self.cut = False

    def look(self) -> int:
        """Return by how many bytes the file changed since the last look; cut what is over the cap."""
        try:
            size = os.fstat(self.fd).st_size
            change = abs(size - self.size)
            if self.cap and size > self.cap:
                os.ftruncate(self.fd, self.cap)
                self.cut, size = True, self.cap
        except OSError:
            return 0
        self.size = size
        return change

    @property
    def room(self) -> int:
        """How many bytes the file was below its cap at the last look."""
        return max(0, self.cap - self.size)

    def finish(self) -> None:
        """Cut once more, mark a cut, and make the content durable, as far as the disk allows."""
        self.look()
        try:
            if self.cut:
                os.write(self.fd, f"\n[wakeful: output cut after {self.cap} bytes]\n".encode())
            os.fsync(self.fd)
        except OSError:
            return  # the exit status matters more than the last of the output
