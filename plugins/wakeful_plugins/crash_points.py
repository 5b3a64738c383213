"""The points at which the local executor can be made to die: its part of the scheduler's one list."""

from __future__ import annotations

from wakeful.crash_points import CrashPoint, no_crash

__all__ = ["CrashPoint", "no_crash"]
