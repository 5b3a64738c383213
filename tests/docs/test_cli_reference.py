"""The reference of the command line says what the commands say."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from wakeful.cli.catalogue import CATALOGUE, Entry
from wakeful.cli.main import root

DOCS = Path(__file__).parents[2] / "docs"


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")


def found(entry: Entry) -> click.Command:
    top = root()
    command = top.get_command(click.Context(top), entry.name)
    assert command is not None
    return command


def test_the_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("cli_reference", DOCS / "cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.FILE.read_text(encoding="utf-8") == module.reference(), "run: python docs/cli_reference.py"


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_every_command_explains_itself(entry: Entry) -> None:
    command = found(entry)
    assert command.name == entry.name
    for path, one in commands(command, entry.name):
        assert one.help, path
        # Several flags may choose between values of one name; nothing else may share a name.
        choices = {p.name for p in one.params if isinstance(p, click.Option) and p.is_flag and not p.is_bool_flag}
        names = [*choices, *(param.name for param in one.params if param.name not in choices)]
        assert len(names) == len(set(names)), f"{path}: {names}"
        for param in one.params:
            assert not isinstance(param, click.Option) or param.help, f"{path}: {param.name}"


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_every_command_takes_the_common_options(entry: Entry) -> None:
    for path, one in commands(found(entry), entry.name):
        taken = {word for param in one.params for word in param.opts}
        assert {"--json", "--company", "--as", "--dsn", "--data", "--config", "--debug"} <= taken, path


def test_names_are_unique() -> None:
    names = [entry.name for entry in CATALOGUE]
    assert len(names) == len(set(names))
