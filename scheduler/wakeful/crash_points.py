"""The places where a scheduler can be made to die, so that tests kill it exactly there. The one list of them.

The product calls an injected ``crash`` with each place it passes; outside tests that is :func:`no_crash`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class CrashPoint(StrEnum):
    """Every place; each comment says what is committed, on disk or alive by then."""

    ADMISSION_BEFORE_COMMIT = "admission_before_commit"  # the run is inserted, nothing committed
    ADMISSION_AFTER_COMMIT = "admission_after_commit"  # the run is queued, nobody in this process told
    INTENT_BEFORE_COMMIT = "intent_before_commit"  # the claim of intents is written, nothing committed
    INTENT_AFTER_COMMIT = "intent_after_commit"  # the intents are this pass's for 60 s, none dispatched
    CLAIM_BEFORE_COMMIT = "claim_before_commit"  # the claim is written, nothing committed
    CLAIM_AFTER_COMMIT = "claim_after_commit"  # the run is this scheduler's, with no file of it on disk
    RUN_DIRECTORY = "run_directory"  # the run's directory, empty
    RUN_INPUT = "run_input"  # and a durable input.json; no runner
    SPAWN_BEFORE_STARTED = "spawn_before_started"  # a runner, which this process has not heard of yet
    SPAWN_AFTER_STARTED = "spawn_after_started"  # a durable started, known here but not yet told
    STOP_REQUEST = "stop_request"  # a durable stop; nobody signalled
    EXIT_RECORD = "exit_record"  # exit.json read, not yet handed on
    TERMINAL_BEFORE_COMMIT = "terminal_before_commit"  # the end is written, nothing committed
    TERMINAL_AFTER_COMMIT = "terminal_after_commit"  # the run is final, nobody in this process told


Crash = Callable[[str], None]


def no_crash(point: str) -> None:
    """Go on past ``point``: what the product does."""
