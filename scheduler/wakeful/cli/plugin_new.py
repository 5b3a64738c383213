"""``wakeful plugin new``: the beginnings of a plugin, as a package whose conformance test passes."""

from __future__ import annotations

import contextlib
import keyword
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.errors import Conflict, InvalidInput

# Kinds of wakes and owners that wakeful has itself.
TAKEN = frozenset(
    {
        "card",
        "dispatch",
        "execution_wait",
        "interrupt",
        "native_status",
        "request",
        "saved_comments",
        "settlement",
        "supervisor",
        "task_retry",
    }
)
LONGEST = 40
# Where each template goes.
FILES = {
    "pyproject.toml": "pyproject.toml.in",
    "README.md": "README.md.in",
    "{module}.py": "module.py.in",
    "tests/conftest.py": "conftest.py.in",
    "tests/test_conformance.py": "test_conformance.py.in",
}


@noun()
def plugin() -> None:
    """Write plugins. `wakeful plugins` shows those that are installed."""


@plugin.command("new")
@click.argument("name", metavar="NAME")
@click.option(
    "--into", type=click.Path(path_type=Path), default=Path(), metavar="DIR", help="Where to put it; else here."
)
@pass_invocation
def new(invocation: Invocation, name: str, into: Path) -> None:
    """Write the package wakeful-NAME: a plugin that judges wakes of kind NAME, with a conformance test that passes.

    NAME is lower case, with hyphens between words.
    """
    names = named(name)
    made = into / names.distribution
    files = rendered(names)
    write(files, made)
    invocation.answer(
        {"name": names.kind, "distribution": names.distribution, "directory": made.absolute(), "files": sorted(files)},
        f"{made} is written; next: cd {shlex.quote(str(made))} && pip install -e '.[test]' && pytest",
    )


@dataclass(frozen=True, slots=True)
class Names:
    """What one plugin is called: on the package index, in imports, and by its wakes."""

    distribution: str
    module: str
    kind: str


def named(name: str) -> Names:
    """Return what a plugin of this name is called.

    Raises:
        InvalidInput: it cannot be a name, or wakeful or an installed plugin has it.
    """
    from wakeful.plugin_loading import installed

    if not re.fullmatch("[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or len(name) > LONGEST:
        raise InvalidInput(f"{name!r} cannot name a plugin", hint="lower case, hyphens between words: night-shift")
    kind = name.replace("-", "_")
    if name.startswith("wakeful-"):
        raise InvalidInput(f"{name!r} names wakeful twice", hint=f"try: {name.removeprefix('wakeful-')}")
    if kind in TAKEN or keyword.iskeyword(kind):
        raise InvalidInput(f"{name!r} is a name of wakeful's own, or of Python's", hint="choose another one")
    if any(candidate.status.name == kind for candidate in installed(None)):
        raise InvalidInput(f"a plugin {kind!r} is installed here already", hint="see: wakeful plugins")
    return Names(f"wakeful-{name}", f"wakeful_{kind}", kind)


def rendered(names: Names) -> dict[str, str]:
    """Return the text of each file of a package, by its path."""
    from importlib import metadata, resources
    from string import Template

    words = {
        "distribution": names.distribution,
        "module": names.module,
        "kind": names.kind,
        "version": metadata.version("wakeful"),
    }
    templates = resources.files("wakeful.cli") / "plugin_template"
    return {
        path.format(module=names.module): Template((templates / source).read_text(encoding="utf-8")).substitute(words)
        for path, source in FILES.items()
    }


def write(files: Mapping[str, str], to: Path) -> None:
    """Write a directory as a whole: a kill or a full disk on the way leaves none of that name.

    Raises:
        InvalidInput: there is no directory to put it in.
        Conflict: there is something of that name already.
        OSError: it cannot be written.
    """
    if not to.parent.is_dir():
        raise InvalidInput(f"{to.parent} is no directory")
    if to.exists() or to.is_symlink():
        raise Conflict(f"{to} exists already", hint="move it away, or choose another name")
    draft = Path(tempfile.mkdtemp(prefix=f".{to.name}-", dir=to.parent))
    try:
        for path, text in files.items():
            (draft / path).parent.mkdir(exist_ok=True)
            (draft / path).write_text(text, encoding="utf-8")
        umask = os.umask(0)
        os.umask(umask)
        draft.chmod(0o777 & ~umask)
        os.rename(draft, to)  # onto an empty directory that came meanwhile it succeeds, onto a full one it fails
    except BaseException:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft)
        raise
