"""Where the files of a run lie: ``<data>/runs/<hash of company>/<run>/<generation>/``, each level 0700."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from wakeful.errors import ExecutorError
from wakeful.executions import RunKey
from wakeful_plugins.run_files import RunFiles

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def company_folder(company: str) -> str:
    """Return the folder name of a company: fixed length, any spelling, nothing to escape."""
    return hashlib.sha256(company.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def coordination_root(data: Path, company: str) -> Path:
    """Return where the coordination root of a company lies below the data root ``data``."""
    return data.absolute() / "coord" / company_folder(company)


class RunDirectories:
    """All run directories below ``data``, the data root of this host."""

    def __init__(self, data: Path) -> None:
        self._data = data.absolute()

    def path(self, key: RunKey) -> Path:
        """Return the directory of one execution."""
        return self._data.joinpath(*self._parts(key))

    def coordination(self, key: RunKey) -> Path:
        """Return the coordination root of the run's company on this host."""
        return coordination_root(self._data, key.company)

    def forget(self, company: str) -> None:
        """Delete the run directories and the coordination root of a company. Follows no link."""
        for folder in (self._data / "runs" / company_folder(company), coordination_root(self._data, company)):
            if folder.is_dir() and not folder.is_symlink():
                shutil.rmtree(folder, ignore_errors=True)

    def open(self, key: RunKey) -> RunFiles | None:
        """Return the run's files, or None if it has no directory. Raises ExecutorError if it is not ours alone."""
        try:
            return RunFiles(self._walk(self._parts(key), create=False))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refusal(self.path(key), error) from error

    def create(self, key: RunKey) -> RunFiles:
        """Return the run's files, making its directories durably where they are missing. Raises ExecutorError."""
        try:
            return RunFiles(self._walk(self._parts(key), create=True))
        except OSError as error:
            raise self._refusal(self.path(key), error) from error

    def create_beside(self, path: Path) -> None:
        """Make another private directory below the data root. Raises ExecutorError."""
        try:
            os.close(self._walk(path.relative_to(self._data).parts, create=True))
        except OSError as error:
            raise self._refusal(path, error) from error

    @staticmethod
    def _parts(key: RunKey) -> tuple[str, ...]:
        return ("runs", company_folder(key.company), str(key.run), str(key.generation))

    def _walk(self, parts: tuple[str, ...], *, create: bool) -> int:
        """Go down from the data root, following no link; return the last directory's descriptor."""
        if create:
            self._data.mkdir(mode=0o700, parents=True, exist_ok=True)
        here = os.open(self._data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # the root itself may be a link
        try:
            for name in parts:
                if create:
                    self._make(name, here)
                below = os.open(name, DIRECTORY, dir_fd=here)
                os.close(here)
                here = below
                found = os.fstat(here)
                if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                    raise PermissionError(1, "owned or writable by another user", name)
        except OSError:
            os.close(here)
            raise
        return here

    @staticmethod
    def _make(name: str, parent: int) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            return
        os.fsync(parent)

    @staticmethod
    def _refusal(path: Path, error: OSError) -> ExecutorError:
        return ExecutorError(
            f"the directory {path} cannot be used: {error.strerror} ({error.filename})",
            hint="it must be a plain directory of the user who runs wakeful, on a disk that has room",
        )
