"""Every command that a message, a help text or a page names can be given as it is written there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from wakeful.cli.invocation import Invocation
from wakeful.cli.main import root

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"""(?:`|: |\$ )wakeful ((?:[a-z][a-z-]*)(?: [^`'";,)\n]*)?)""")
# Of the example's plugin, which is not installed here.
ELSEWHERE = ("cron",)
# Named before they can be given: the end of a restore, and of a supervisor's suspension.
AHEAD = ("restored", "run continue")


def sources() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md"))
    yield from sorted((ROOT / "docs").glob("*.md"))
    for package in ("scheduler", "plugins", "coordination", "examples"):
        for kind in ("py", "sql", "md"):
            yield from sorted((ROOT / package).rglob(f"*.{kind}"))


def named() -> dict[str, str]:
    """What is named, and one place where."""
    found: dict[str, str] = {}
    for path in sources():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for match in NAMED.finditer(line):
                found.setdefault(match[1].strip(), f"{path.relative_to(ROOT)}:{number}")
    return found


def wrong(top: click.Group, context: click.Context, words: list[str]) -> str | None:
    """What keeps a person from giving these words; None: nothing does."""
    command: click.Command | None = top
    while words and isinstance(command, click.Group) and re.fullmatch("[a-z][a-z-]*", words[0]):
        word, *words = words
        command = command.get_command(context, word)
    if command is None:
        return f"there is no command {word}"
    options = {name for param in command.params for name in param.opts}
    unknown = [word for word in words if word.startswith("--") and word.rstrip(".…]") not in options | {"--help"}]
    return f"it has no {', '.join(unknown)}" if unknown else None


def test_every_named_command_exists_with_its_options() -> None:
    top = root()
    context = click.Context(top, obj=Invocation())
    Invocation().hooks().commands(top)
    ahead = [*ELSEWHERE, *AHEAD]
    met = named()
    assert len(met) > 100
    faults = {
        f"{at}: wakeful {words}": fault
        for words, at in met.items()
        if not any(words == one or words.startswith(f"{one} ") for one in ahead)
        and (fault := wrong(top, context, words.split())) is not None
    }
    assert faults == {}
