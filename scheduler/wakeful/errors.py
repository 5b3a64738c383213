"""The one error tree.

    WakefulError                    every failure a caller may want to catch
    ├── InvalidInput                a value that no retry will make valid
    │   └── ConfigError             the same, from flags, environment or wakeful.toml
    ├── NotFound                    an id nobody has mentioned
    ├── WaitRefusal                 a gate is closed and the command cannot wait (HTTP 409)
    │   └── PersistedWaitRefusal    the same, and this very call saved the wait
    ├── Conflict                    somebody else was first (HTTP 409)
    ├── DatabaseUnavailable         no server, no login, no answer in time
    │   └── SchemaMismatch          a server, but not this schema
    ├── PluginError                 one plugin cannot be used; the others can
    └── ExecutorError               a run could not be started or asked about
    RunSuperseded (BaseException)   a newer generation owns the run: the walk is over

Messages say cause and remedy; ``code`` is the exit code of the command line.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID


class WakefulError(Exception):
    """Root of the tree: ``message`` names the cause, ``hint`` the remedy, ``code`` the exit code."""

    code = 1
    slug = "failed"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def as_json(self) -> dict[str, object]:
        """Return the JSON error: ``{error, code, message, hint}``."""
        return {"error": self.slug, "code": self.code, "message": self.message, "hint": self.hint}


class InvalidInput(WakefulError):
    """A value that no retry will make valid."""

    code = 2
    slug = "invalid"


class ConfigError(InvalidInput):
    """A flag, an environment variable or a line of wakeful.toml that cannot be used."""

    slug = "config"


class NotFound(WakefulError):
    """An id that does not exist, or is not visible to this session."""

    slug = "not_found"


class WaitRefusal(WakefulError):
    """A closed gate's answer to a command that must act now (HTTP 409)."""

    code = 4
    slug = "refused"

    def __init__(
        self,
        message: str,
        *,
        gate: str,
        key: str,
        reason: str,
        opens_on: str,
        since: datetime | None = None,
        reopens_at: datetime | None = None,
    ) -> None:
        super().__init__(message, hint=f"opens on: {opens_on}")
        self.gate = gate
        self.key = key
        self.reason = reason
        self.opens_on = opens_on
        self.since = since
        self.reopens_at = reopens_at

    def as_json(self) -> dict[str, object]:
        """Return the JSON error with the gate's details."""
        details = {"gate": self.gate, "key": self.key, "reason": self.reason, "opens_on": self.opens_on}
        return super().as_json() | details


class PersistedWaitRefusal(WaitRefusal):
    """The same refusal, raised exactly when this call's own conditional update saved the wait."""


class Conflict(WakefulError):
    """Somebody else was first, or the thing is already final (HTTP 409)."""

    code = 4
    slug = "conflict"


class DatabaseUnavailable(WakefulError):
    """No server, no login, or no answer within the deadline. Never carries a password or host user."""

    code = 3
    slug = "no_database"


class SchemaMismatch(DatabaseUnavailable):
    """A server that answers, but without the schema this code needs."""

    slug = "schema"


class PluginError(WakefulError):
    """One plugin that cannot be used; names entry point, distribution and reason."""

    slug = "plugin"


class ExecutorError(WakefulError):
    """A run could not be started, found or stopped by its executor."""

    slug = "executor"


class RunSuperseded(BaseException):
    """A newer generation owns the run: this walk is over and writes nothing more.

    A BaseException, so that a broad ``except Exception`` in host code cannot turn the end of a walk
    into a failed node or a retry.
    """

    def __init__(self, company: str, run: UUID, generation: int) -> None:
        super().__init__(f"run {run} of company {company!r} is no longer at generation {generation}, or has ended")
        self.company = company
        self.run = run
        self.generation = generation
