from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from wakeful_coordination import Coordination


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    # A root has 512 shelves, whose making and removal costs a disk more than most tests. What survives a power
    # cut is proven on the model and measured by the bench, so memory will do where there is some.
    memory = "/dev/shm"
    place = Path(tempfile.mkdtemp(prefix="coordination-", dir=memory if os.access(memory, os.W_OK) else None))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "root")


@pytest.fixture
def coord(path: str) -> Iterator[Coordination]:
    # Tests wait for the deaths they cause, so nobody is still dying when a lease is asked for.
    with Coordination.open(path, exit_grace=0.02) as opened:
        yield opened
