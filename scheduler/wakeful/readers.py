"""Result readers: what a plugin offers that understands what an agent program prints of itself.

A reader is named by ``kind`` in an agent's ``reader``. It is asked only where no ``result.json`` exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class SavedStream(Protocol):
    """One output of an ended run. ``size`` is in bytes; ``truncated`` says that the cap cut its end off."""

    @property
    def size(self) -> int:
        """How many bytes there are."""

    @property
    def truncated(self) -> bool:
        """Whether what was printed last is missing."""

    def read(self, offset: int, limit: int) -> bytes:
        """Return up to ``limit`` bytes from a byte offset; empty at the end."""


class ResultReader(Protocol):
    """Reads an agent program's own output. Implementations are plugins (hook ``register_readers``)."""

    name: str

    def read(self, config: Mapping[str, Any], stdout: SavedStream, stderr: SavedStream) -> Mapping[str, Any] | None:
        """Return the fields of a result that the output holds, or None; depends on the arguments alone.

        Without a ``class`` the exit status decides. ``reader: {"error": ...}`` tells operators what went wrong.

        Arguments:
            config: the agent's ``reader``.
        """
