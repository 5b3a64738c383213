"""``wakeful`` with the plugin of file coordination found, installed or not, and a company's root beside it."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from tests.command_line import ROOTS, CommandLine
from tests.unit.test_plugins import Site

from wakeful_plugins.run_directory import coordination_root

NOWHERE = "host=127.0.0.1 port=1 connect_timeout=2 user=nobody"  # nothing listens on port 1


def command_line(home: Path, dsn: str = NOWHERE) -> CommandLine:
    """Return the program with its data below ``home``; without a database unless one is named."""
    site = Site(home / "site")
    site.path.mkdir(exist_ok=True)
    if not [one for one in metadata.entry_points(group="wakeful") if one.name == "coordination"]:
        site.add("coordination", "", target="wakeful_plugins.coordination")
    return CommandLine(home / "data", dsn, {"PYTHONPATH": os.pathsep.join([str(site.path), *ROOTS])})


def made_root(cli: CommandLine, company: str = "acme") -> Path:
    """Return where a company's root lies, its parents made."""
    path = coordination_root(cli.data, company)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path
