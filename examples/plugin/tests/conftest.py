"""A real server and a database of the test's own, from wakeful's testing kit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from wakeful.testing import Database, Server

settings.register_profile("patient", deadline=None)  # a busy machine is no failure
settings.load_profile("patient")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """WAKEFUL_DSN, or an embedded server of these tests' own."""
    # Not below the test's own directory: the path of a socket has to be short.
    with tempfile.TemporaryDirectory(prefix="wakeful-cron-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)  # a server of root's runs as another account
        with Server(dsn=os.environ.get("WAKEFUL_DSN"), data=Path(directory)) as opened:
            yield opened


@pytest.fixture
def database(server: Server) -> Iterator[Database]:
    """A migrated database, dropped after the test."""
    with server.database() as made:
        yield made
