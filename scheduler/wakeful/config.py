"""Settings: flags over environment over ``wakeful.toml`` over defaults, each value with its origin."""

from __future__ import annotations

import hashlib
import os
import pwd
import socket
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast

from wakeful import config_values as values_of
from wakeful import dsn as dsns
from wakeful.errors import ConfigError

FILE = "wakeful.toml"
DEFAULT = "default"
ROOM = 1 << 20  # bytes that a file of settings may have


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The effective settings; ``origins`` says for each field where its value came from."""

    dsn: str | None = field(repr=False)
    listen_dsn: str | None = field(repr=False)
    data: Path
    host: str
    company: str | None
    postgres: Literal["wheel", "path"]
    plugins_strict: bool
    plugins_disabled: tuple[str, ...]
    notify: Literal["on", "poll"]
    poll: timedelta
    shutdown_grace: timedelta
    stop_children: Literal["leave", "kill"]
    actor: str
    slots: int
    nouns: Mapping[str, str]
    origins: Mapping[str, str]


def load(flags: Mapping[str, object], environ: Mapping[str, str], cwd: Path) -> Config:
    """Return the effective settings.

    ``flags`` maps setting names (and ``config``, a file to read) to values, None meaning not given; an empty
    environment variable counts as not set. Relative paths are taken from ``cwd``, those in a file from its folder.
    Raises ConfigError naming the setting, where its value came from, and what would do instead.
    """
    cwd = cwd.absolute()
    readers = _readers(environ)
    _refuse_unknown(flags, [*readers, "config"], "flag")
    path = _file(flags, environ, cwd)
    lines = {} if path is None else _read(path)
    _refuse_unknown(lines, readers, str(path))
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    for name, (read, default) in readers.items():
        given, origin, folder = lines.get(name), str(path), path.parent if path else cwd
        if variable := environ.get(f"WAKEFUL_{name.upper()}"):
            given, origin, folder = variable, f"environment WAKEFUL_{name.upper()}", cwd
        if flags.get(name) is not None:
            given, origin, folder = flags[name], f"flag --{'as' if name == 'actor' else name.replace('_', '-')}", cwd
        if given is None:
            values[name], origins[name] = default(), DEFAULT
            continue
        try:
            values[name], origins[name] = read(given, folder), origin
        except ValueError as refusal:
            raise ConfigError(f"{name} (from {origin}) is {refusal}", hint=values_of.remedy(name)) from None
    return Config(**values, origins=MappingProxyType(origins))  # type: ignore[arg-type]  # readers give the fields' types


def shown(config: Config) -> list[tuple[str, str, str]]:
    """Return (setting, value, origin) for people, secrets hidden; a setting without a value reads ``(none)``."""
    rows = []
    for name, origin in config.origins.items():
        value = getattr(config, name)
        if name in ("dsn", "listen_dsn") and value is not None:
            value = dsns.hidden(value)
        rows.append((name, _as_text(value), origin))
    return rows


def default_data(environ: Mapping[str, str], uid: int) -> Path:
    """Return the data directory of the account ``uid`` (an effective user id) in the environment ``environ``.

    Root's database runs as another account, which cannot enter root's home: the same place, named by its hash,
    lies under /var/lib.
    """
    base = environ.get("XDG_DATA_HOME", "")
    home = Path(base) if os.path.isabs(base) else _home(environ, uid) / ".local/share"
    mine = home / "wakeful"
    if uid != 0:
        return mine
    return Path("/var/lib/wakeful") / hashlib.sha256(os.fsencode(mine)).hexdigest()[:16]


Reader = tuple[Callable[[object, Path], object], Callable[[], object]]


def _readers(environ: Mapping[str, str]) -> dict[str, Reader]:
    uid = os.geteuid()

    def path(given: object, folder: Path) -> Path:
        text = os.fspath(given) if isinstance(given, (str, Path)) else ""
        if not text.strip() or "\0" in text:
            raise ValueError("not a path")
        if text == "~" or text.startswith("~/"):
            return _home(environ, uid) / text[2:]
        return Path(os.path.normpath(folder / text))

    return {
        "dsn": (values_of.dsn, lambda: None),
        "listen_dsn": (values_of.dsn, lambda: None),
        "data": (path, lambda: default_data(environ, uid)),
        "host": (values_of.name, lambda: socket.gethostname() or "localhost"),
        "company": (values_of.name, lambda: None),
        "postgres": (values_of.one_of("wheel", "path"), lambda: "wheel"),
        "plugins_strict": (values_of.switch, lambda: False),
        "plugins_disabled": (values_of.names, tuple),
        "notify": (values_of.one_of("on", "poll"), lambda: "on"),
        "poll": (values_of.positive, lambda: timedelta(seconds=5)),
        "shutdown_grace": (lambda given, _: values_of.duration(given), lambda: timedelta(seconds=30)),
        "stop_children": (values_of.one_of("leave", "kill"), lambda: "leave"),
        "actor": (values_of.name, lambda: f"user:{_login(uid)}"),
        "slots": (values_of.count, lambda: 32),
        "nouns": (values_of.nouns, lambda: MappingProxyType({})),
    }


def _file(flags: Mapping[str, object], environ: Mapping[str, str], cwd: Path) -> Path | None:
    named = flags.get("config") or environ.get("WAKEFUL_CONFIG")
    if named:
        return cwd / str(named)
    for folder in (cwd, *cwd.parents):
        path = folder / FILE
        try:
            owner, mode = path.stat().st_uid, folder.stat().st_mode
        except OSError:
            continue
        if owner not in (0, os.geteuid()) and mode & stat.S_IWOTH:
            # Anybody may put a file into /tmp; one with a foreign DSN must not steer this process.
            raise ConfigError(
                f"{path} lies in a folder open to everybody and belongs to another account",
                hint="name it in WAKEFUL_CONFIG if you trust it, or start from another folder",
            )
        return path
    return None


def _read(path: Path) -> dict[str, object]:
    try:
        text = _plain(path)
        return tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="check the path and its rights") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="correct that line") from None
    except ValueError:
        raise ConfigError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from None


def _plain(path: Path) -> bytes:
    # A FIFO would never open, and /dev/zero never end.
    kind = path.stat().st_mode
    if not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
        raise ConfigError(f"{path} is no plain file", hint="name a file with lines such as: slots = 4")
    with path.open("rb") as file:
        text = file.read(ROOM + 1)
    if len(text) > ROOM:
        raise ConfigError(f"{path} has more than {ROOM >> 20} MiB", hint="settings need a few lines; check the path")
    return text


def _refuse_unknown(given: Iterable[str], known: Iterable[str], origin: str) -> None:
    names = sorted(known)
    for name in given:
        if name not in names:
            question = values_of.meant(name, names)
            raise ConfigError(f"{name!r} (from {origin}) is no setting{question}", hint=f"settings: {', '.join(names)}")


def _home(environ: Mapping[str, str], uid: int) -> Path:
    if os.path.isabs(environ.get("HOME", "")):
        return Path(environ["HOME"])
    try:
        return Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        raise ConfigError("this account has no home directory", hint="set WAKEFUL_DATA to a directory") from None


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid{uid}"


def _as_text(value: object) -> str:
    match value:
        case None:
            return "(none)"
        case bool():
            return "true" if value else "false"
        case timedelta():
            return f"{value.total_seconds():g}s"
        case tuple():
            return ",".join(cast("tuple[str, ...]", value))
        case Mapping():
            return ", ".join(f"{noun}={word}" for noun, word in value.items())
        case _:
            return str(value)
