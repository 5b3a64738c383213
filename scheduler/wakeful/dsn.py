"""Connection strings: checked, and shown without their secrets."""

from __future__ import annotations

import re

HIDDEN = "***"

# What a person needs to know which server is meant. Everything else may identify or authenticate somebody.
_SHOWN = {
    "host": re.compile(r"[A-Za-z0-9_.,:/%-]*"),
    "hostaddr": re.compile(r"[0-9a-fA-F.,:%]*"),
    "port": re.compile(r"[0-9,]*"),
    "dbname": re.compile(r"[A-Za-z0-9_.$ -]*"),
    "sslmode": re.compile(r"[a-z-]*"),
    "connect_timeout": re.compile(r"[0-9]*"),
}


def checked(text: str) -> str:
    """Return ``text`` if libpq can read it as a connection string.

    Raises ValueError, whose message never repeats any part of the text.
    """
    if _parts(text) is None or not text.strip():
        raise ValueError("not a connection string")
    return text


def hidden(text: str) -> str:
    """Return ``text`` as key=value pairs with user, password and every option of no interest to a reader hidden.

    A string that libpq reads otherwise than its author meant (an unescaped ``@``, ``/`` or blank in a
    password) could carry a secret in a harmless place, so one suspicious part hides the whole.
    """
    parts = _parts(text)
    if parts is None:
        return HIDDEN
    if not all(pattern.fullmatch(parts.get(key, "")) for key, pattern in _SHOWN.items()):
        return HIDDEN
    shown = {key: parts[key] for key in _SHOWN if key in parts} | {key: HIDDEN for key in parts if key not in _SHOWN}
    return " ".join(
        f"{key}='{value}'" if " " in value or not value else f"{key}={value}" for key, value in shown.items()
    )


def _parts(text: str) -> dict[str, str] | None:
    from psycopg import ProgrammingError  # imported late: only a session with a DSN pays for it
    from psycopg.conninfo import conninfo_to_dict

    if "\0" in text:
        return None  # libpq would stop reading there
    try:
        return {key: str(value) for key, value in conninfo_to_dict(text).items()}
    except (ProgrammingError, UnicodeError):
        return None
