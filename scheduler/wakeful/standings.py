"""Where a wake or a run stands, in words: decided from one row of ``explain.sql``, without reading anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from wakeful.receipts import PENDING

# What keeps everything from moving, by the names that ``explain.brakes`` answers with.
BRAKES: Mapping[str, str] = MappingProxyType(
    {
        "draining": "the instance drains: nothing is admitted until `wakeful settings set draining false`",
        "owners_enabled": "no owner looks at wakes until `wakeful settings set owners_enabled true`",
        "panic": "panic: nothing runs until `wakeful resume`",
        "scheduler_enabled": "nothing runs until `wakeful settings set scheduler_enabled true`",
        "unowned": "no scheduler is at work on this database: start `wakeful up`",
    }
)

# How often interrupts may ask one run to stop (also in interrupt_issue).
TEARDOWNS = 3
PROOF = ("contained", "waited", "attested")


class Standing(StrEnum):
    """What a person needs to know first. The last three are the ends people see."""

    WAITING = "waiting"  # behind a gate
    SLEEPING = "sleeping"  # until a time
    DUE = "due"  # a scheduler has to look at it
    QUEUED = "queued"  # a dispatcher has to start it
    RUNNING = "running"
    STOPPING = "stopping"
    UNCERTAIN = "uncertain"  # nobody can prove whether it lives
    RAN = "ran"
    MERGED = "merged"
    WILL_NOT_RUN = "will not run"


def of_wake(row: Any) -> tuple[Standing, str]:
    """Return what a row of ``explain.wake`` amounts to, and one sentence that says why."""
    match row.state:
        case "linked" if row.run_state is None:
            return Standing.RAN, f"run {row.run} carried it; its record is past its retention"
        case "linked" if row.run_ended_at is not None:
            return Standing.RAN, f"run {row.run} carried it and {_ended_as(row.run_state)}"
        case "linked" if row.run_state == "queued":
            return Standing.QUEUED, f"run {row.run} carries it and waits to be started"
        case "linked" if row.run_state == "stopping":
            return Standing.STOPPING, f"run {row.run} carries it and is being stopped"
        case "linked":
            return Standing.RUNNING, f"run {row.run} carries it and is {row.run_state} on host {row.run_host}"
        case "coalesced":
            return Standing.MERGED, f"another wake or run carries it: {row.coalesced_into or row.run}"
        case "settled":
            return Standing.MERGED, row.wait_message or "its outcome was folded in; there is nothing to run"
        case "retired" | "skipped" | "cancelled" | "failed":
            words = {"retired": "overtaken", "skipped": "not needed", "cancelled": "taken back", "failed": "unusable"}
            return Standing.WILL_NOT_RUN, row.wait_message or row.error or row.reason or words[row.state]
    if row.holder is not None:
        # The message names the run it first waited for; another one may have come in between, in silence.
        return Standing.WAITING, f"issue {row.issue} has a live run ({row.holder})"
    if row.wait_reason is not None:
        return Standing.WAITING, row.wait_message or row.wait_reason
    if row.due_at is None:
        return Standing.WAITING, "it has no deadline; a signal of its own has to come"
    if row.due_at > row.now:
        match row.state:
            case "claimed":
                return Standing.DUE, f"{row.claimed_by} has taken it and looks at it"
            case "error":
                return Standing.SLEEPING, "it could not be dispatched, and is tried again"
        return Standing.SLEEPING, "its time has not come"
    if row.state == "claimed":
        return Standing.DUE, f"{row.claimed_by} took it and did not come back; another scheduler has to look at it"
    return Standing.DUE, f"its time has come; a scheduler with a plugin for kind {row.kind} has to look at it"


def trouble(row: Any) -> tuple[str, ...]:
    """Return the note on a pending wake that could not be looked at."""
    if row.state in PENDING and row.failures:
        return (f"looking at it failed {row.failures} times, last: {row.error}",)
    return ()


def interrupt(row: Any) -> tuple[str, ...]:
    """Return the notes on an interrupted wake: how far its stop is, and whether its person may still speak for it."""
    if row.interrupt_at is None:
        return ()
    notes = [f"{row.interrupt_by} interrupts for it, {_stop_of(row)}"]
    if row.queue_authority not in (None, row.interrupt_by):
        notes.append(f"it goes in the name of {row.queue_authority} by now, so that interrupt gives no right any more")
    return tuple(notes)


def _stop_of(row: Any) -> str:
    run, state = f"run {row.interrupted_run}", row.interrupted_state
    if row.interrupted_run is None:
        return "where nothing was running"
    if state is None:
        return f"stopping {run}, whose record is past its retention"
    if row.interrupted_ended_at is None:
        return f"stopping {run}, which was asked {row.teardowns} of {TEARDOWNS} times and is {state}"
    if row.interrupted_evidence not in PROOF:
        return f"stopping {run}, which {_ended_as(state)}; nobody has proven that its processes are gone"
    return f"stopping {run}, which {_ended_as(state)}; its processes are gone ({row.interrupted_evidence})"


def of_run(row: Any) -> tuple[Standing, str, datetime]:
    """Return what a row of ``explain.run`` amounts to, one sentence that says why, and since when."""
    if row.ended_at is not None:
        if row.state == "cancelled" and row.attempt == 0:
            return Standing.WILL_NOT_RUN, row.message or row.stop_reason or row.reason or "cancelled", row.ended_at
        return Standing.RAN, _how_it_ended(row), row.ended_at
    if row.uncertain_at is not None:
        cause = row.recovery_cause or "its host's files cannot be reached"
        return Standing.UNCERTAIN, f"nobody can prove whether it lives: {cause}", row.uncertain_at
    match row.state:
        case "queued" if row.wait_reason is not None:
            return Standing.WAITING, row.wait_message or row.wait_reason, row.wait_since
        case "queued":
            return Standing.QUEUED, _waits_for_host(row), row.queued_at
        case "stopping":
            who = f"{row.stop_by} asked" + (f" ({row.stop_reason})" if row.stop_reason else "")
            if _is_silent(row):
                return Standing.STOPPING, f"{who}; no scheduler answers on host {row.host}", row.stop_at
            return Standing.STOPPING, f"{who}; host {row.host} ends its processes", row.stop_at
        case "suspended":
            return Standing.WAITING, "the walk is suspended until it is continued", row.started_at or row.queued_at
    attempt = f"attempt {row.attempt} of {row.max_attempts}"
    if row.state == "starting":
        return Standing.RUNNING, f"host {row.host} is starting it, {attempt}", row.claimed_at
    return Standing.RUNNING, f"it runs on host {row.host}, {attempt}", row.started_at or row.claimed_at


def _waits_for_host(row: Any) -> str:
    if row.host is not None and row.host_dead_at is not None:
        return f"it is bound to host {row.host}, which was declared dead: start one there, or free agent {row.agent}"
    if row.host is not None and not row.host_known:
        return f"it is bound to host {row.host}, where no scheduler has ever run"
    if row.host is not None:
        return f"a scheduler on host {row.host} has to start it"
    if row.labels and not row.host_fits:
        return f"no host has the labels it needs: {', '.join(row.labels)}"
    return f"a scheduler with the executor {row.executor!r} has to start it"


def _how_it_ended(row: Any) -> str:
    how = None
    if row.exit_signal is not None:
        how = f"ended by signal {row.exit_signal}"
    elif row.exit_code:
        how = f"exit code {row.exit_code}"
    kind = row.end_class if row.end_class not in ("ok", "failed", "killed", "stopped") else None
    said = row.message or row.error
    # Where nothing was said, the stored message only repeats the exit.
    parts = [part for part in (kind, how, said if said != how else None) if part]
    asked = f"{row.stop_by} asked" + (f" ({row.stop_reason})" if row.stop_reason else "")
    if row.stop_at is not None and row.state == "cancelled":
        parts.insert(0, asked)
    return f"it {_ended_as(row.state)}" + (f": {', '.join(parts)}" if parts else "")


def _ended_as(state: str) -> str:
    words = {"succeeded": "succeeded", "failed": "failed", "cancelled": "was cancelled", "lost": "is lost"}
    return words.get(state, state)


def _is_silent(row: Any) -> bool:
    """Whether nobody renews the run: its host's scheduler does so every 20 s while it works."""
    return row.renew_by is None or row.renew_by < row.now


def absence(row: Any) -> tuple[str, ...]:
    """Return the notes on a live run whose host does not answer for it, or that waits for a person."""
    notes: list[str] = []
    if row.state in ("starting", "running", "stopping") and _is_silent(row):
        seen = "never" if row.host_seen_at is None else f"last seen {row.host_seen_at.isoformat(timespec='seconds')}"
        notes.append(f"host {row.host} has not renewed it in time ({seen}): start `wakeful up` there")
    if row.recovery is not None:
        notes.append(f"recovery action {row.recovery} is open: {row.recovery_cause}")
    return tuple(notes)
