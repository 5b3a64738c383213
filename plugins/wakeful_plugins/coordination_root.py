"""Which coordination roots a command is about, and one of them opened."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wakeful.errors import InvalidInput, NotFound, WakefulError
from wakeful_plugins.run_directory import coordination_root

if TYPE_CHECKING:
    from wakeful.config import Config
    from wakeful_coordination import Coordination, CoordinationError


def named_root(given: str | None) -> Path | None:
    """Return the root that ``given`` (an option) or else WAKEFUL_COORD names; None where neither does."""
    path = given or os.environ.get("WAKEFUL_COORD")
    return Path(path).absolute() if path else None


def roots(config: Config, given: str | None) -> list[Path]:
    """Return the roots meant: the named one, else the named company's, else all below the data directory."""
    if (named := named_root(given)) is not None:
        return [named]
    if config.company is not None:
        return [coordination_root(config.data, config.company)]
    try:
        return sorted(path for path in (config.data.absolute() / "coord").iterdir() if path.is_dir())
    except FileNotFoundError:
        return []


def company_root(config: Config, company: str) -> Path:
    """Return where a company's root lies on this host."""
    return coordination_root(config.data, company)


def one_root(config: Config, given: str | None) -> Path:
    """Return the one root meant. Raises NotFound where there is none, InvalidInput where there are several."""
    found = roots(config, given)
    if not found:
        raise NotFound(
            f"there is no coordination root below {config.data}",
            hint="the first run of a company makes one; name another with --root",
        )
    if len(found) > 1:
        raise InvalidInput(
            f"there are {len(found)} coordination roots below {config.data}",
            hint="name one: --company ID or --root DIR",
        )
    return found[0]


def holds_older_files(path: Path) -> bool:
    """Say whether there is no root yet in the directory where the next run makes one, but something else."""
    try:
        return not os.path.lexists(path / "root.json") and any(path.iterdir())
    except OSError:
        return False


@contextlib.contextmanager
def opened(path: Path, *, dead_sessions: Sequence[str] = ()) -> Iterator[Coordination]:
    """Open an existing root for the length of a ``with``; its errors are raised as wakeful's own."""
    from wakeful_coordination import Coordination

    with translated(), Coordination.open(str(path), create=False, dead_sessions=dead_sessions, keep=1) as root:
        yield root


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise file coordination's errors as WakefulError, with the same words, slug and exit code."""
    from wakeful_coordination import CoordinationError

    try:
        yield
    except CoordinationError as error:
        raise as_wakeful(error) from error


def as_wakeful(error: CoordinationError) -> WakefulError:
    """Return the error as one of wakeful's."""
    own = WakefulError(error.message, hint=error.hint)
    own.code, own.slug = error.code, error.slug
    return own
