"""The host that crash tests play on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.site import Site

from wakeful.testing import Database


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[Site]:
    """One database and one data directory; whatever is left of it is killed."""
    made = Site(database, tmp_path)
    yield made
    made.close()
