"""Settings: flags over environment over ``wakeful.toml`` over defaults, each value with its origin."""

from __future__ import annotations

import difflib
import hashlib
import os
import pwd
import re
import socket
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast

from wakeful import dsn as dsns
from wakeful.errors import ConfigError

FILE = "wakeful.toml"
DEFAULT = "default"
NOUNS = ("agent", "budget", "card", "chat", "comment", "company", "host", "issue", "project", "run", "wait", "wake")
_LONGEST = timedelta(days=30)
_UNITS = {"ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


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
        except (ValueError, OverflowError) as refusal:
            # The value itself may be a secret in the wrong place, so the message does not repeat it.
            raise ConfigError(f"{name} (from {origin}) is {_cause(refusal)}", hint=_remedy(name)) from None
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


def duration(given: object) -> timedelta:
    """Return the length of time meant by ``30``, ``"30s"``, ``"5m"``, ``"500ms"``, ``"2h"`` or ``"1d"``.

    A bare number is seconds. Raises ValueError for anything else, or for more than 30 days.
    """
    if isinstance(given, timedelta):
        length = given
    elif isinstance(given, (str, int, float)) and not isinstance(given, bool):
        match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h|d|)", str(given).strip())
        if match is None:
            raise ValueError("not a length of time")
        length = timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    else:
        raise ValueError("not a length of time")
    if not timedelta(0) <= length <= _LONGEST:
        raise ValueError("not between nothing and 30 days")
    return length


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
        "dsn": (_dsn, lambda: None),
        "listen_dsn": (_dsn, lambda: None),
        "data": (path, lambda: default_data(environ, uid)),
        "host": (_name, lambda: socket.gethostname() or "localhost"),
        "company": (_name, lambda: None),
        "postgres": (_one_of("wheel", "path"), lambda: "wheel"),
        "plugins_strict": (_switch, lambda: False),
        "plugins_disabled": (_names, tuple),
        "notify": (_one_of("on", "poll"), lambda: "on"),
        "poll": (_positive, lambda: timedelta(seconds=5)),
        "shutdown_grace": (lambda given, _: duration(given), lambda: timedelta(seconds=30)),
        "stop_children": (_one_of("leave", "kill"), lambda: "leave"),
        "actor": (_name, lambda: f"user:{_login(uid)}"),
        "slots": (_count, lambda: 32),
        "nouns": (_nouns, lambda: MappingProxyType({})),
    }


def _remedy(name: str) -> str:
    remedies = {
        "dsn": "write postgresql://user@host/database or host=… dbname=…, special characters percent-encoded",
        "data": "give a directory",
        "postgres": "use wheel or path",
        "plugins_strict": "use true or false",
        "plugins_disabled": "give plugin names, comma between them",
        "notify": "use on or poll",
        "poll": "write seconds, or 500ms, 30s, 5m, 2h; more than nothing, 30 days at most",
        "shutdown_grace": "write seconds, or 500ms, 30s, 5m, 2h; 30 days at most",
        "stop_children": "use leave or kill",
        "slots": "give a whole number from 1 to 10000",
        "nouns": f"map words of yours to {', '.join(NOUNS)}",
    }
    return remedies.get(name.removeprefix("listen_"), "give 1 to 200 printable characters, no blank at either end")


def _cause(refusal: Exception) -> str:
    return str(refusal) if isinstance(refusal, ValueError) else "out of range"


def _dsn(given: object, _: Path) -> str:
    return dsns.checked(given if isinstance(given, str) else "")


def _name(given: object, _: Path) -> str:
    if not isinstance(given, str) or given != given.strip() or not 0 < len(given) <= 200 or not given.isprintable():
        raise ValueError("not a name")
    return given


def _names(given: object, folder: Path) -> tuple[str, ...]:
    items = given.split(",") if isinstance(given, str) else given
    if not isinstance(items, (list, tuple)):
        raise ValueError("not a list of names")
    stripped = (item.strip() if isinstance(item, str) else item for item in items)
    return tuple(dict.fromkeys(_name(item, folder) for item in stripped if item != ""))


def _nouns(given: object, folder: Path) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise ValueError("not a table of words")
    for noun in given:
        if noun not in NOUNS:
            raise ValueError(f"naming {noun!r}, which is no noun of wakeful{_meant(noun, NOUNS)}")
    return MappingProxyType({noun: _name(word, folder) for noun, word in given.items()})


def _one_of(*choices: str) -> Callable[[object, Path], str]:
    def read(given: object, _: Path) -> str:
        if not isinstance(given, str) or given not in choices:
            raise ValueError("none of the choices")
        return given

    return read


def _switch(given: object, _: Path) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if str(given).lower() not in known:
        raise ValueError("neither true nor false")
    return known[str(given).lower()]


def _positive(given: object, _: Path) -> timedelta:
    if not (length := duration(given)):
        raise ValueError("no time at all")
    return length


def _count(given: object, _: Path) -> int:
    text = str(given).strip()
    if isinstance(given, bool) or not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= 10_000:
        raise ValueError("not a count")
    return int(text)


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
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint="check WAKEFUL_CONFIG and the file"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint="correct that line") from None
    except ValueError:
        raise ConfigError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from None


def _refuse_unknown(given: Iterable[str], known: Iterable[str], origin: str) -> None:
    names = sorted(known)
    for name in given:
        if name not in names:
            raise ConfigError(
                f"{name!r} (from {origin}) is no setting{_meant(name, names)}", hint=f"settings: {', '.join(names)}"
            )


def _meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(word).lower().replace("-", "_"), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


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
