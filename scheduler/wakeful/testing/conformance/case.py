"""What a plugin's author tells the conformance suite: the owner, and how its receipts come to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from uuid import UUID

from psycopg import Connection

from wakeful import producers


class NonConforming(AssertionError):
    """An owner breaks a rule: the message names the rule, what was seen, and what is expected."""

    def __init__(self, rule: str, seen: str, expected: str) -> None:
        super().__init__(f"{rule}: {seen}; expected: {expected}")
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Place:
    """Where one receipt is saved: an agent that exists, and an issue that nobody has mentioned yet."""

    company: str
    agent: str
    issue: str


Save = Callable[[Connection[Any], Place], UUID]
Act = Callable[[Connection[Any], Place], None]
Certified = Callable[[Connection[Any], Place], tuple[UUID, UUID]]


def pause_agent(conn: Connection[Any], place: Place) -> None:
    """Close the gate (agent, id)."""
    producers.run(conn, producers.pause_agent(place.company, place.agent))


def resume_agent(conn: Connection[Any], place: Place) -> None:
    """Open the gate (agent, id)."""
    producers.run(conn, producers.resume_agent(place.company, place.agent))


@dataclass(frozen=True, slots=True)
class Case:
    """One owner under test.

    Arguments:
        plugins: the plugins to load, as ``module`` or ``module:attribute`` (a class is called without arguments); the
            suite adds those that time waits and an executor without processes.
        owner: the name of the owner under test.
        save: saves one receipt of the owner, due at once, for the place's agent and issue, and returns its wake.
            Whatever else it leaves behind must not lead to a run by itself.
        block, reopen: close and open a gate that the receipt has to wait for; by default its agent's pause.
        spoil: takes away the receipt's authority while it waits, so that it must not run; None: nothing can.
        certified: saves a receipt that a queued run of the place's issue certifies, and returns its wake and that run;
            the receipt may not run beside it. None: receipts are not certified by a run.
    """

    plugins: tuple[str, ...]
    owner: str
    save: Save
    block: Act = pause_agent
    reopen: Act = resume_agent
    spoil: Act | None = None
    certified: Certified | None = None


def load(name: str) -> object:
    """Return the plugin that ``module`` or ``module:attribute`` names."""
    module, _, attribute = name.partition(":")
    found: object = import_module(module)
    if attribute:
        found = getattr(found, attribute)
    return found() if isinstance(found, type) else found
