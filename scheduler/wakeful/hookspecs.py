"""Every hook, typed, documented by the moment it fires.

Families: ``register_*`` collects at start, ``on_*`` only observes (raising changes nothing it watches).
A plugin is a module or object whose functions carry ``@wakeful.hookimpl``, named by an entry point of
the group ``wakeful``. The core calls hooks through ``wakeful.plugins.Hooks`` only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

    from wakeful.attendants import Attendant
    from wakeful.config import Config
    from wakeful.executions import Executor
    from wakeful.owners import GateCheck, Observation, Owner, PluginMigration
    from wakeful.readers import ResultReader

hookspec = pluggy.HookspecMarker("wakeful")


class Specs:
    """The hook specifications of wakeful's plugin contract."""

    @hookspec
    def register_owners(self) -> Iterable[Owner]:  # type: ignore[empty-body]  # pluggy specs have no body
        """Return the owners this plugin adds. Fires once, when a scheduler is built."""

    @hookspec
    def register_gates(self) -> Iterable[GateCheck]:  # type: ignore[empty-body]  # pluggy specs have no body
        """Return further gates, judged after the core's own. Fires once, when a scheduler is built."""

    @hookspec
    def register_executors(self, config: Config) -> Iterable[Executor]:  # type: ignore[empty-body]  # pluggy specs have no body
        """Return executors for this host. Fires once, when a scheduler is built, or a log is read."""

    @hookspec
    def register_readers(self) -> Iterable[ResultReader]:  # type: ignore[empty-body]  # pluggy specs have no body
        """Return result readers, which agents name in their contract. Fires once, when a scheduler is built."""

    @hookspec
    def register_attendants(self, config: Config) -> Iterable[Attendant]:  # type: ignore[empty-body]  # pluggy specs have no body
        """Return what attends this host's runs, asked before each end. Fires once, when a scheduler is built."""

    @hookspec
    def register_migrations(self) -> Iterable[PluginMigration]:  # type: ignore[empty-body]  # pluggy specs have no body
        """Return the plugin's own SQL migrations, applied after the core's. Fires at ``wakeful migrate``."""

    @hookspec
    def register_commands(self, root: click.Group) -> None:
        """Add commands to the command line. Fires when a command is looked up that the core lacks."""

    @hookspec
    def on_observation(self, observation: Observation) -> None:
        """Fires after the commit of whatever it tells of. Raising is logged and changes nothing."""
