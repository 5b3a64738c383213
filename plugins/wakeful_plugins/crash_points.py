"""The points at which the local executor can be made to die, so that tests can kill it exactly there."""

from __future__ import annotations

from enum import StrEnum


class CrashPoint(StrEnum):
    """Where the executor calls its injected ``crash``; each member says what is on disk or alive by then."""

    RUN_DIRECTORY = "run_directory"  # the run's directory, empty
    RUN_INPUT = "run_input"  # and a durable input.json; no runner
    SPAWN_BEFORE_STARTED = "spawn_before_started"  # a runner, which this process has not heard of yet
    SPAWN_AFTER_STARTED = "spawn_after_started"  # a durable started, known here but not yet told
    STOP_REQUEST = "stop_request"  # a durable stop; nobody signalled
    EXIT_RECORD = "exit_record"  # exit.json read, not yet handed on


def no_crash(point: str) -> None:
    """Go on past ``point``: what the product does."""
