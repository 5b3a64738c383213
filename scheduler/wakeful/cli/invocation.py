"""One invocation of the command line: its options, and what commands need of them, made when first asked for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wakeful.cli import rendering

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.errors import Diagnostic

    from wakeful.config import Config
    from wakeful.connections import Session
    from wakeful.plugins import Hooks
    from wakeful.producers import ProducerResult, Statement

MIGRATION_DEADLINE = timedelta(minutes=30)
LEAST_PATIENCE = timedelta(seconds=1)  # with an embedded server that is to end


class Invocation:
    """What the options say, kept in click's context; every command gets it by ``pass_invocation``."""

    def __init__(self) -> None:
        self.flags: dict[str, object] = {}
        self.json = False
        self.debug = False
        self._config: Config | None = None

    def remember(self, name: str, value: object) -> None:
        """Take one option into the settings."""
        self.flags[name] = value
        self._config = None  # read before, to look for a plugin's command, whose options came after it

    @property
    def config(self) -> Config:
        """The effective settings. Raises ConfigError."""
        if self._config is None:
            from wakeful import config

            self._config = config.load(self.flags, os.environ, Path.cwd())
        return self._config

    def noun(self, word: str) -> str:
        """Return what this installation calls one of wakeful's nouns, for people only."""
        return self.config.nouns.get(word, word)

    def hooks(self, plugins: Sequence[object] = ()) -> Hooks:
        """Load all plugins, and name on standard error those that cannot be used. Raises PluginError if strict."""
        from wakeful import plugins as loading

        hooks = loading.load(self.config, plugins=plugins)
        for status in hooks.report:
            if status.state == "failed":
                rendering.note(f"wakeful: {status}")
        return hooks

    # ── the database ────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def server(self, *, keep: bool = False) -> Iterator[Config]:
        """Lend the settings with the DSN of a server that is there: the one they name, or the embedded one.

        Arguments:
            keep: start the embedded one again whenever it dies meanwhile, and let its end take no longer than a
                scheduler's: a frozen one is left behind, to end when it wakes up.

        Raises:
            DatabaseUnavailable: the embedded server cannot be started.
        """
        if self.config.dsn is not None:
            yield self.config
            return
        from wakeful.postgres import STOP_WITHIN, EmbeddedServer
        from wakeful.postgres_keeper import Keeper

        if rendering.on_terminal() and not (self.config.data / "postgres").exists():
            rendering.note(f"making an embedded PostgreSQL in {self.config.data}")
        # It is asked to end, and after this time to end at once, for as long again.
        patience = max(self.config.shutdown_grace / 2, LEAST_PATIENCE) if keep else STOP_WITHIN
        with (
            EmbeddedServer(self.config.data, binaries=self.config.postgres, stop_within=patience) as embedded,
            Keeper(embedded) if keep else contextlib.nullcontext(),
        ):
            yield replace(self.config, dsn=embedded.dsn)

    @contextlib.contextmanager
    def session(self, *, purpose: str = "cli") -> Iterator[Session]:
        """Lend a session on a database whose schema is in place; an embedded one is brought up to date.

        Raises:
            DatabaseUnavailable: no server, no login, no answer.
            SchemaMismatch: an external server without this version's schema.
        """
        from wakeful.connections import Session

        with self.server() as config:
            assert config.dsn is not None  # noqa: S101 - server() says so; for the type checker
            with Session(config.dsn, purpose=purpose) as session:
                self._require_schema(session)
                yield session

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        """Lend an autocommit connection of :meth:`session` for one short command."""
        with self.session() as session, session.autocommit() as conn:
            yield conn

    def _require_schema(self, session: Session) -> None:
        from wakeful import migrations
        from wakeful.cli.times import tolerate
        from wakeful.errors import SchemaMismatch

        with session.autocommit() as conn:
            tolerate(conn)
            missing = migrations.pending(conn, migrations.core())
        if missing and self.config.dsn is not None:
            absent = len(missing) == len(migrations.core())
            raise SchemaMismatch(
                "this database has no wakeful schema" if absent else "this database has an older wakeful schema",
                hint="run: wakeful migrate",
            )
        if missing:
            steps = self.hooks().migrations()
            with session.autocommit(within=MIGRATION_DEADLINE) as conn:
                migrations.apply(conn, steps)

    # ── whose records ───────────────────────────────────────────────────────────────────────────────────

    def company(self, conn: Connection[Any], *, known: bool = True) -> str:
        """Return the company this invocation is about, and make it the session's tenant.

        Arguments:
            known: whether one that was named must exist already.

        Raises:
            NotFound: there is none, or not the one that was named.
            InvalidInput: there are several, and none was named.
        """
        from wakeful import listings

        return listings.enter_company(conn, self.config.company, known=known)

    def optional_company(self, conn: Connection[Any]) -> str | None:
        """Return the company that was named, None for all that this login sees."""
        return self.company(conn) if self.config.company is not None else None

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────

    def answer(self, value: Mapping[str, object] | object, words: str) -> None:
        """Print ``value`` for programs, ``words`` for people."""
        if self.json:
            rendering.emit_json(value)
        else:
            click.echo(rendering.printable(words))

    def produce(self, conn: Connection[Any], statement: Statement, **about: object) -> ProducerResult:
        """Run a producer; for programs, print its answer together with what it is about. People get their own line."""
        from wakeful import producers

        conn.add_notice_handler(_pass_on)
        try:
            result = producers.run(conn, statement)
        finally:
            conn.remove_notice_handler(_pass_on)
        if self.json:
            answer = {"outcome": result.outcome, "wake": result.wake, "state": result.state, "run": result.run}
            rendering.emit_json({**about, **answer})
        return result

    def say(self, words: str) -> None:
        """Print a line for people only."""
        if not self.json:
            click.echo(rendering.printable(words))


def _pass_on(notice: Diagnostic) -> None:
    """Say what a producer did otherwise than it was asked to."""
    if notice.severity_nonlocalized == "WARNING" and notice.message_primary is not None:
        rendering.note(f"wakeful: {notice.message_primary}")


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)
