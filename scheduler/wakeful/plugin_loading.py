"""Plugins found among the installed distributions, imported one by one, and checked against the hook specifications.

What is found here is only what can be said of one plugin alone; ``wakeful.plugins`` puts them side by side.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from types import FrameType
from typing import Literal

import pluggy

from wakeful.errors import PluginError
from wakeful.hookspecs import Specs

GROUP = "wakeful"
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """How one plugin fared: ``reason`` says why it is not active.

    ``distribution`` and ``version`` are empty for a plugin the host passed in.
    """

    name: str
    distribution: str
    version: str
    state: Literal["active", "disabled", "failed"]
    reason: str = ""

    def __str__(self) -> str:
        origin = f"{self.distribution} {self.version}".strip() or "passed in by the host"
        return f"plugin {self.name} ({origin}) {self.state}" + (f": {self.reason}" if self.reason else "")

    def failed(self, reason: str) -> PluginStatus:
        """Return the same plugin as one that cannot be used."""
        return replace(self, state="failed", reason=reason)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plugin that has not been imported yet; one that failed already is never loaded."""

    status: PluginStatus
    load: Callable[[], object]


def installed(entry_points: Iterable[metadata.EntryPoint] | None) -> list[Candidate]:
    """Return the entry points given, or all those of the installed distributions, in load order."""
    candidates: list[Candidate] = []
    if entry_points is None:
        entry_points, candidates = _discovered()
    for point in entry_points:
        name, version = (point.dist.name, point.dist.version) if point.dist else ("", "")
        candidates.append(Candidate(PluginStatus(point.name, name, version, "active"), point.load))
    return sorted(candidates, key=lambda candidate: (candidate.status.name, candidate.status.distribution))


def passed_in(plugins: Iterable[object]) -> list[Candidate]:
    """Return a host's own plugins, named after module or class, in the order given."""

    def candidate(plugin: object) -> Candidate:
        name = str(getattr(plugin, "__name__", type(plugin).__name__))
        return Candidate(PluginStatus(name, "", "", "active"), lambda: plugin)

    return [candidate(plugin) for plugin in plugins]


def imported(candidate: Candidate) -> object:
    """Import one plugin. Raises PluginError, whatever the plugin does meanwhile, except for a person's Ctrl-C."""
    with _person() as interrupted:
        try:
            return candidate.load()
        except BaseException as error:  # SystemExit while importing must not end the host
            if interrupted():
                raise
            raise PluginError(f"cannot be imported: {cause(error)}") from error


@contextlib.contextmanager
def _person() -> Iterator[Callable[[], bool]]:
    """Lend a function that tells whether a person's SIGINT has arrived: a plugin may raise KeyboardInterrupt itself."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # Python interrupts its main thread only
        return
    arrived = []
    former = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        if callable(former):
            former(number, frame)

    if not callable(former):
        yield lambda: False  # nobody turns the signal into an exception
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(arrived)
    finally:
        signal.signal(signal.SIGINT, former)


def checked(plugin: object, name: str) -> pluggy.PluginManager:
    """Return a manager that holds this one plugin. Raises PluginError naming the hook and the argument at fault."""
    if plugin is None or isinstance(plugin, type):
        raise PluginError("the entry point names no module and no object; a class has to be instantiated")
    manager = pluggy.PluginManager("wakeful")
    manager.add_hookspecs(Specs)
    try:
        manager.register(plugin, name)
    except pluggy.PluginValidationError as error:
        lines = str(error).splitlines()
        raise PluginError(f"{lines[0].partition(' for ')[2]} does not fit: {lines[-1]}") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # looking at a plugin's attributes runs its code, too
        raise PluginError(f"its hooks cannot be read: {cause(error)}") from error
    callers = manager.get_hookcallers(plugin) or []
    if not callers:
        raise PluginError("nothing in it carries @wakeful.hookimpl")
    known = sorted(hook for hook in vars(Specs) if not hook.startswith("_"))
    for caller in callers:
        implementations = caller.get_hookimpls()
        if caller.has_spec() and any(one.hookwrapper or one.wrapper for one in implementations):
            raise PluginError(f"hook {caller.name!r} is a wrapper; plugins do not see each other's answers")
        if not caller.has_spec() and not all(one.optionalhook for one in implementations):
            raise PluginError(f"unknown hook {caller.name!r}; there are {', '.join(known)}")
    return manager


def cause(error: BaseException) -> str:
    """Return an error as one line of bounded length."""
    text = " ".join(str(error).split())
    if not isinstance(error, PluginError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"


def _discovered() -> tuple[list[metadata.EntryPoint], list[Candidate]]:
    """Return entry points, and as failed candidates the distributions whose metadata cannot be read.

    Of two distributions of one name the first on sys.path counts, as for imports.
    """
    points: list[metadata.EntryPoint] = []
    unreadable: list[Candidate] = []
    seen: set[str] = set()
    for distribution in metadata.distributions():
        try:
            if f"[{GROUP}]" not in (distribution.read_text("entry_points.txt") or ""):
                continue
            name = distribution.name.lower().replace("_", "-")
            if name not in seen:
                seen.add(name)
                points += distribution.entry_points.select(group=GROUP)
        except Exception as error:  # half an installation must not hide the others
            label = str(getattr(distribution, "_path", "a distribution")).rpartition("/")[2]
            status = PluginStatus(label, label, "", "failed", f"its metadata cannot be read: {cause(error)}")
            unreadable.append(Candidate(status, object))
    return points, unreadable
