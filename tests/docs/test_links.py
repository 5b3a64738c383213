"""What the pages for people refer to is there: files, headings, commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from wakeful.cli.invocation import Invocation
from wakeful.cli.main import root
from wakeful.listings import LISTINGS

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of ``page``."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match("https?:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path) if path else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in seen:
            continue
        seen.add(page)
        if page.is_dir():
            ahead += page.glob("*.md")
        elif page.suffix == ".md":
            found = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", prose(page))
            ahead += [(page.parent / path).resolve() for path in found if not re.match("https?:", path)]
    assert {page for page in PAGES if page.name != "CHANGELOG.md"} <= seen


def shown(page: Path) -> list[str]:
    """Every command line that ``page`` shows after a prompt."""
    return re.findall(r"^\s*\$ (?:\.venv/bin/)?wakeful (.+?)(?: +#.*)?$", page.read_text(encoding="utf-8"), re.M)


def parse(line: str) -> None:
    """Parse a command line to its end, and run nothing."""
    command: click.Command = root()
    words = shlex.split(line.removesuffix(" &"))
    first = words[0]
    context = click.Context(command)
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    states = command.make_context(line, words, parent=context, obj=Invocation()).params.get("states")
    if states:
        listing = LISTINGS[first]
        assert set(states.split(",")) <= {*listing.states, *(group for group, _ in listing.groups)}, line


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_shown_is_one(page: Path) -> None:
    for line in shown(page):
        parse(line)


def test_the_readme_shows_commands() -> None:
    assert len(shown(ROOT / "README.md")) > 5
