"""A real database per test, copied in a moment from a template that was migrated once for this schema.

Safe between processes: templates and test databases carry names that a living session holds an advisory lock
for, so whatever a killed test left behind is dropped by the next server that opens.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import make_conninfo

from wakeful import connections, migrations
from wakeful.postgres import EmbeddedServer
from wakeful.store import query

if TYPE_CHECKING:
    from wakeful.owners import PluginMigration

# The same for all processes of one schema content; a new content makes a new template.
_TEMPLATE = "wakeful_template_"
_TEST = "wakeful_test_"


class Database:
    """One migrated database of its own.

    Arguments:
        dsn: for the ordinary login, which is no superuser in the embedded server.
        admin_dsn: for a superuser; the same as ``dsn`` on a server named by a DSN.
    """

    def __init__(self, dsn: str, admin_dsn: str, name: str, maintenance_dsn: str) -> None:
        self.dsn = dsn
        self.admin_dsn = admin_dsn
        self.name = name
        self.maintenance_dsn = maintenance_dsn
        self.logins: list[str] = []
        self._open: list[Connection[Any]] = []

    def connect(self, *, purpose: str = "test", autocommit: bool = True) -> Connection[Any]:
        """Return a new session, as the product opens them; closed with the database."""
        conn = connections.connect(self.dsn, purpose=purpose, autocommit=autocommit)
        self._open.append(conn)
        return conn

    def connect_as(self, role: str, *, autocommit: bool = True) -> Connection[Any]:
        """Return a new session that has only the rights of ``role``: wakeful_host, wakeful_viewer and so on."""
        conn = self.connect(purpose=f"test as {role}", autocommit=True)
        conn.execute(sql.SQL("SET SESSION ROLE {}").format(sql.Identifier(role)))
        conn.autocommit = autocommit
        return conn

    def login(self, role: str) -> str:
        """Return the DSN of a new login that has the rights of ``role`` and no other; dropped with the database."""
        name, password = f"{self.name}_{role}", secrets.token_hex(8)
        text = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}")
        conn = self.connect()
        conn.execute(text.format(sql.Identifier(name), sql.Literal(password), sql.Identifier(role)))
        self.logins.append(name)
        # Its sessions must end with the database.
        conn.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(name)))
        return make_conninfo(self.dsn, user=name, password=password)

    def close(self) -> None:
        """Close every session opened here."""
        while self._open:
            with contextlib.suppress(psycopg.Error):
                self._open.pop().close()


class Server:
    """The server all test databases live in; a context manager.

    Arguments:
        dsn: a server whose login may create databases and roles; None starts the embedded one.
        data: directory of the embedded server, shared by all processes that name it.
        plugins: migrations to apply after the core's.
        binaries: programs of the embedded server: ``wheel``, or ``path`` for an installed one.
    """

    def __init__(
        self,
        *,
        dsn: str | None,
        data: Path,
        plugins: Iterable[PluginMigration] = (),
        binaries: Literal["wheel", "path"] = "wheel",
    ) -> None:
        self._given = dsn
        self._embedded = None if dsn else EmbeddedServer(data, binaries=binaries)
        self._plugins = tuple(plugins)
        self._token = secrets.token_hex(4)
        self._count = 0
        self._made: str | None = None
        self._maintenance: Connection[Any] | None = None
        self._forgets: bool | None = None

    def __enter__(self) -> Self:
        if self._embedded is not None:
            self._embedded.start()
        self._maintenance = connections.connect(self.dsn, purpose="test server")
        self._hold(_TEST + self._token)
        self._sweep()
        return self

    def __exit__(self, *_: object) -> None:
        if self._maintenance is not None:
            self._maintenance.close()
        if self._embedded is not None:
            self._embedded.stop()

    @property
    def dsn(self) -> str:
        """The ordinary login's DSN, to the database that tests are made from, not in."""
        return self._given or self._require().dsn

    @property
    def admin_dsn(self) -> str:
        """The superuser's DSN of an embedded server; the given one otherwise."""
        return self._given or self._require().admin_dsn

    @contextlib.contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[Database]:
        """Lend a database of its own, dropped afterwards with all its sessions.

        Arguments:
            migrated: False for an empty one.
        """
        self._count += 1
        name = f"{_TEST}{self._token}_{self._count}"
        if migrated:
            self._create(name, self._template())
        else:
            self._create(name)
        made = Database(
            make_conninfo(self.dsn, dbname=name), make_conninfo(self.admin_dsn, dbname=name), name, self.dsn
        )
        try:
            yield made
        finally:
            made.close()
            self._drop(name)
            for login in made.logins:
                self._admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(login)))

    def _require(self) -> EmbeddedServer:
        if self._embedded is None:
            raise AssertionError("a server is given by its DSN or embedded")
        return self._embedded

    @property
    def _admin(self) -> Connection[Any]:
        if self._maintenance is None:
            raise AssertionError("the test server is not open: use it in a with statement")
        return self._maintenance

    def _template(self) -> str:
        """Return the name of the migrated database; one server object sees one content of the schema."""
        if self._made is not None:
            return self._made
        content = f"{migrations.text(self._plugins)}\0{self._admin.info.server_version}"
        name = _TEMPLATE + hashlib.sha256(content.encode()).hexdigest()[:12]
        with self._alone():
            self._hold(name)
            if not self._exists(name):
                # The name appears when everything is in it, whatever is killed before.
                unfinished = f"{_TEST}{self._token}_template"
                self._create(unfinished)
                conn = connections.connect(make_conninfo(self.dsn, dbname=unfinished), purpose="test template")
                with contextlib.closing(conn):
                    migrations.apply(conn, self._plugins)
                rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
                self._admin.execute(rename.format(sql.Identifier(unfinished), sql.Identifier(name)))
        self._made = name
        return name

    def _create(self, name: str, template: str = "template1") -> None:
        # The default strategy writes every page to the WAL as well: measured, three times the processor time.
        text = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        self._admin.execute(text.format(sql.Identifier(name), sql.Identifier(template)))

    def _drop(self, name: str) -> None:
        # Not WITH (FORCE): that may not touch an autovacuum worker, which a plain DROP sends away by itself.
        self._admin.execute(query("testing.end_sessions"), {"name": name})
        if self._may_forget():
            # Its counts would stay for ever, and push out those of the living: the server keeps 5000.
            self._admin.execute(query("testing.forget_counts"), {"name": name})
        self._admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))

    def _may_forget(self) -> bool:
        if self._forgets is None:
            row = self._admin.execute(query("testing.may_forget_counts")).fetchone()
            self._forgets = row is not None and bool(row[0])
        return self._forgets

    def _exists(self, name: str) -> bool:
        return self._admin.execute(query("testing.database_oid"), {"name": name}).fetchone() is not None

    def _hold(self, name: str) -> None:
        self._admin.execute(query("testing.hold_name"), {"name": name})

    def _sweep(self) -> None:
        """Drop what killed tests and earlier schemas left."""
        with self._alone():
            for (name,) in self._admin.execute(query("testing.databases")).fetchall():
                if self._is_unused(name if name.startswith(_TEMPLATE) else name.rsplit("_", 1)[0]):
                    self._drop(name)
            for name, held_as in self._admin.execute(query("testing.logins")).fetchall():
                if self._is_unused(held_as):
                    self._admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))

    def _is_unused(self, name: str) -> bool:
        row = self._admin.execute(query("testing.is_unused"), {"name": name}).fetchone()
        return row is not None and bool(row[0])

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self._admin.execute(query("testing.lock_template"))
        try:
            yield
        finally:
            self._admin.execute(query("testing.unlock_template"))
