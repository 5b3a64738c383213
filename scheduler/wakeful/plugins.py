"""Plugins: found, loaded each alone, and called through one typed façade.

The order is by entry-point name (then distribution), then what the host passed in, and is what ``Hooks.report``
shows. Of two plugins with one name the first in that order is kept. Each plugin has a plugin manager of its own, so
a broken one leaves nothing behind: not when it is imported, not when it is checked, and not when it answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from wakeful.errors import PluginError
from wakeful.plugin_loading import Candidate, PluginStatus, cause, checked, imported, installed, passed_in

if TYPE_CHECKING:
    import click
    import pluggy

    from wakeful.attendants import Attendant
    from wakeful.config import Config
    from wakeful.executions import Executor
    from wakeful.owners import GateCheck, Observation, Owner, PluginMigration
    from wakeful.readers import ResultReader

__all__ = ["Hooks", "PluginStatus", "load"]

_log = logging.getLogger(__name__)


class _Loaded:
    """One plugin with the manager that holds it and nothing else; without a manager it is out of use."""

    def __init__(self, status: PluginStatus, manager: pluggy.PluginManager | None) -> None:
        self.status = status
        self.manager = manager
        self.owners: list[Owner] = []
        self.gates: list[GateCheck] = []

    @property
    def observes(self) -> bool:
        return self.manager is not None and bool(self.manager.hook.on_observation.get_hookimpls())


def load(
    config: Config,
    *,
    entry_points: Iterable[metadata.EntryPoint] | None = None,
    plugins: Iterable[object] = (),
    discover: bool = True,
) -> Hooks:
    """Load every plugin that can be loaded.

    Arguments:
        config: ``plugins_disabled`` names plugins that are not even imported; ``plugins_strict`` turns a plugin
            that fails into an error.
        entry_points: instead of those of the installed distributions.
        plugins: further modules or objects that carry hooks, named after their module or class.
        discover: whether installed plugins are looked for at all.

    Raises:
        PluginError: ``plugins_strict`` is on and at least one failed; names all that did.
    """
    candidates = installed(entry_points) if discover or entry_points is not None else []
    disabled = set(config.plugins_disabled)
    names = {candidate.status.name for candidate in candidates}
    origin = config.origins.get("plugins_disabled", "settings")
    absent = f"named in plugins_disabled ({origin}), but not installed"
    loaded = [_Loaded(PluginStatus(name, "", "", "disabled", absent), None) for name in sorted(disabled - names)]
    names_taken: dict[str, PluginStatus] = {}
    objects: dict[int, str] = {}
    for candidate in [*candidates, *passed_in(plugins)]:
        if candidate.status.name in disabled:
            reason = f"plugins_disabled ({origin})"
            loaded.append(_Loaded(replace(candidate.status, state="disabled", reason=reason), None))
        else:
            loaded.append(_loaded(candidate, names_taken, objects))
    hooks = Hooks(loaded, strict=config.plugins_strict)
    hooks.refuse_failures()
    return hooks


def _loaded(candidate: Candidate, names: dict[str, PluginStatus], objects: dict[int, str]) -> _Loaded:
    """Load one plugin beside those that came before it, whose names and objects (by id) are taken."""
    status = candidate.status
    if status.state == "failed":
        return _Loaded(status, None)
    try:
        first = names.setdefault(status.name, status)
        if first is not status:
            raise PluginError(f"the name is taken by the one of {first.distribution or 'the host'}")
        plugin = imported(candidate)
        if id(plugin) in objects:
            raise PluginError(f"it is the same object as plugin {objects[id(plugin)]}")
        manager = checked(plugin, status.name)
    except PluginError as error:
        return _Loaded(status.failed(error.message), None)
    objects[id(plugin)] = status.name
    return _Loaded(status, manager)


class Hooks:
    """The hooks of all active plugins, one typed method each; what the core calls instead of pluggy.

    A plugin that raises from a ``register_*`` hook, or answers with something unusable, is disabled from then on
    and named in the report (under ``plugins_strict``: PluginError). The others are not affected.
    """

    def __init__(self, loaded: Sequence[_Loaded], *, strict: bool) -> None:
        self._loaded = loaded
        self._strict = strict
        self._registered = False
        self._observers = [plugin for plugin in loaded if plugin.observes]

    @property
    def report(self) -> list[PluginStatus]:
        """Every plugin found, in load order."""
        return [plugin.status for plugin in self._loaded]

    def owners(self) -> list[Owner]:
        """Return the owners of all plugins. A name or kind that is taken already disables the later plugin."""
        self._register()
        return [owner for plugin in self._active() for owner in plugin.owners]

    def gates(self) -> list[GateCheck]:
        """Return the hosts' own gates. A plugin whose owners or gates cannot be used contributes neither."""
        self._register()
        return [gate for plugin in self._active() for gate in plugin.gates]

    def executors(self, config: Config) -> list[Executor]:
        """Return new executors for this host. Call before ``owners``: a failing plugin then contributes neither."""
        taken: set[str] = set()
        return self._collect("register_executors", _executor_claims, taken, config=config)

    def readers(self) -> list[ResultReader]:
        """Return the result readers of all plugins. Call before ``owners``, as ``executors``."""
        taken: set[str] = set()
        return self._collect("register_readers", _reader_claims, taken)

    def attendants(self, config: Config) -> list[Attendant]:
        """Return new attendants for this host. Call before ``owners``, as ``executors``."""
        taken: set[str] = set()
        return self._collect("register_attendants", _attendant_claims, taken, config=config)

    def migrations(self) -> list[PluginMigration]:
        """Return the plugins' own SQL migrations, in load order."""
        taken: set[str] = set()
        return self._collect("register_migrations", _migration_claims, taken)

    def commands(self, root: click.Group) -> None:
        """Let each plugin add commands to ``root``. A command that exists already disables the plugin that adds it.

        Raises:
            PluginError: that happened, under ``plugins_strict``.
        """
        import click

        for plugin in self._active():
            with self._isolated(plugin, "register_commands") as hook:
                apart = click.Group(root.name)
                hook(root=apart)
                for name, command in apart.commands.items():
                    if name in root.list_commands(click.Context(root)):
                        raise PluginError(f"the command {name!r} exists already")
                    if not isinstance(command, click.Command):
                        raise PluginError(f"the command {name!r} is no click command")
                for name, command in apart.commands.items():
                    root.add_command(command, name)

    def observe(self, observation: Observation) -> None:
        """Tell the observers. One that raises is logged and changes nothing."""
        for plugin in self._observers:
            if plugin.manager is None:
                continue
            try:
                plugin.manager.hook.on_observation(observation=observation)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # an observer must not stop what it watches, not even by SystemExit
                _log.warning("plugin %s: on_observation raised %s", plugin.status.name, cause(error), exc_info=True)

    def refuse_failures(self) -> None:
        """Raise PluginError naming every failed plugin, if ``plugins_strict`` is on and there is one."""
        failed = [status for status in self.report if status.state == "failed"]
        if self._strict and failed:
            raise PluginError(
                "; ".join(map(str, failed)), hint="repair or remove them, or name them in WAKEFUL_PLUGINS_DISABLED"
            )

    def _active(self) -> list[_Loaded]:
        return [plugin for plugin in self._loaded if plugin.manager is not None]

    def _register(self) -> None:
        if self._registered:
            return
        self._registered = True
        taken: set[str] = set()
        for plugin in self._active():
            owners = self._answers(plugin, "register_owners", _owner_claims, taken)
            gates = self._answers(plugin, "register_gates", _gate_claims, taken)
            if plugin.manager is not None:  # neither hook has put it out of use
                plugin.owners, plugin.gates = owners, gates

    def _collect(self, hook: str, claims: Claims, taken: set[str], **arguments: object) -> list[Any]:
        return [item for plugin in self._active() for item in self._answers(plugin, hook, claims, taken, **arguments)]

    def _answers(self, plugin: _Loaded, hook: str, claims: Claims, taken: set[str], **arguments: object) -> list[Any]:
        """Return what one plugin answers; nothing if it raises, or claims what another one has."""
        if plugin.manager is None:
            return []
        with self._isolated(plugin, hook) as call:
            items = [item for answer in call(**arguments) for item in answer]
            mine: set[str] = set()
            for item in items:
                for claim in claims(item):
                    if claim in taken or claim in mine:
                        raise PluginError(f"{claim} exists already")
                    mine.add(claim)
            taken |= mine
            return items
        return []

    @contextmanager
    def _isolated(self, plugin: _Loaded, hook: str) -> Iterator[Callable[..., Any]]:
        if plugin.manager is None:
            raise PluginError(f"plugin {plugin.status.name} is not active")
        try:
            yield getattr(plugin.manager.hook, hook)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit: one plugin must not end the host
            plugin.manager = None
            plugin.owners, plugin.gates = [], []
            plugin.status = plugin.status.failed(f"{hook}: {cause(error)}")
            _log.warning("%s", plugin.status)
            self.refuse_failures()


# ── what the plugins' answers claim: each of these exists once ──────────────────────────────────────────

Claims = Callable[[Any], Iterable[str]]


def _owner_claims(owner: Owner) -> list[str]:
    _needs(owner, "owner", name=str, kinds=frozenset, judge=Callable)
    return [f"the owner {owner.name!r}", *(f"the kind {kind!r}" for kind in owner.kinds)]


def _gate_claims(gate: GateCheck) -> list[str]:
    _needs(gate, "gate", kind=str, opens_on=str, judge=Callable)
    return [f"the gate {gate.kind!r}"]


def _executor_claims(executor: Executor) -> list[str]:
    _needs(executor, "executor", name=str, submit=Callable, poll=Callable, examine=Callable, stop=Callable)
    return [f"the executor {executor.name!r}"]


def _reader_claims(reader: ResultReader) -> list[str]:
    _needs(reader, "result reader", name=str, read=Callable)
    return [f"the result reader {reader.name!r}"]


def _attendant_claims(attendant: Attendant) -> list[str]:
    methods = dict.fromkeys(("start", "began", "ending", "ended", "stop"), Callable)
    _needs(attendant, "attendant", name=str, **methods)
    return [f"the attendant {attendant.name!r}"]


def _migration_claims(step: PluginMigration) -> list[str]:
    _needs(step, "migration", plugin=str, version=int, name=str, text=str)
    if not step.plugin:
        raise PluginError("a migration without a plugin's name")
    return [f"migration {step.version} of {step.plugin!r}"]


def _needs(item: object, what: str, **attributes: Any) -> None:
    for attribute, kind in attributes.items():
        if not isinstance(getattr(item, attribute, None), kind):
            raise PluginError(f"{item!r} is no {what}: it has no usable {attribute!r}")
