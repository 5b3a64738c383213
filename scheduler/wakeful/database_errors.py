"""What the database says, as the errors of :mod:`wakeful.errors`: cause and remedy in one line, no secrets.

Messages show neither password nor database login nor table name; the server's own error stays the ``__cause__``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import psycopg

from wakeful import dsn as dsns
from wakeful.errors import Conflict, DatabaseUnavailable, InvalidInput, NotFound, SchemaMismatch, WakefulError

_SCHEMA = ("3F000", "42P01", "42883", "42703", "42704")
_AGAIN = ("40001", "40P01", "55P03")
_READ_ONLY = "25006"
_CHECK_SERVER = "is the server running, and is WAKEFUL_DSN right? `wakeful doctor` says more"

# How libpq and the server word a refused connection; there is no SQLSTATE to go by. First match wins.
_CONNECT = (
    ("password authentication failed", "it refuses this login or its password", "check user and password"),
    ("no password supplied", "it wants a password", "put one into WAKEFUL_DSN, or into the file ~/.pgpass"),
    ("no pg_hba.conf entry", "it does not admit this login from here", "ask for an entry in its pg_hba.conf"),
    ("authentication failed", "it refuses this login", "check the login"),
    ("is not permitted to log in", "this login may not log in", "name another login"),
    ('role "', "it knows no such login", "check the login"),
    ('database "', "it has no such database", "create the database, or name another one"),
    ("too many", "it has no connection left", "close some, or raise its max_connections"),
    ("remaining connection slots", "it has no connection left", "close some, or raise its max_connections"),
    ("starting up", "it is just starting", "try again in a moment"),
    ("shutting down", "it is just shutting down", _CHECK_SERVER),
    ("recovery mode", "it is recovering from a crash", "try again in a moment"),
    ("session is read-only", "none of them can be written to", "is a failover under way? try again in a moment"),
    ("timeout", "no answer in time", _CHECK_SERVER),
    ("refused", "nobody listens there", _CHECK_SERVER),
    ("No such file", "nobody listens there", _CHECK_SERVER),
    ("translate host name", "the host's name is unknown", "check the host in WAKEFUL_DSN"),
    ("resolve host", "the host's name is unknown", "check the host in WAKEFUL_DSN"),
    ("Permission denied", "this account may not use its socket", "run as another account, or name another host"),
    ("SSL", "no encrypted connection could be agreed on", "check sslmode in WAKEFUL_DSN"),
)

# Checks that a value from outside can break, by the end of their names, and what they want.
_CHECKS = {
    "id_check": "an id has 1 to 200 characters",
    "money_check": "an amount of money is a number from 0 to 10^12",
    "moment_check": "a time lies in the years 2000 to 2100",
    "max_concurrent_runs_check": "the number of concurrent runs is at least 1",
    "max_attempts_check": "the number of attempts is at least 1",
    "max_runtime_check": "the longest runtime is more than 0",
    "silence_limit_check": "the longest silence is more than 0",
    "stop_grace_check": "the grace of a stop is not negative",
    "warn_percent_check": "a warning comes at 1 to 100 percent",
    "on_overrun_check": "an overrun is answered by finish or stop",
    "env_values_check": "environment values are a JSON object",
}
_SERVER = {
    "53100": ("the database server's disk is full", "free some space there"),
    "53200": ("the database server is out of memory", "look at the server"),
    "53300": ("the database server has no connection left", "close some, or raise its max_connections"),
    "57014": ("the database server cancelled the statement", "was it an administrator, or statement_timeout?"),
    _READ_ONLY: ("the database server can only be read", "is it a standby? name the writable one in WAKEFUL_DSN"),
    "42501": ("this database login may not do that", "grant it the role: GRANT wakeful_host TO <login>"),
}


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn psycopg's errors in the block into wakeful's; those that only a programming mistake explains pass.

    Raises:
        DatabaseUnavailable: the connection is lost, or the server cannot serve.
        SchemaMismatch: the schema is missing, or another one.
        InvalidInput, NotFound, Conflict: a producer's own answer (WK422, WK404, WK409), or a constraint's.
            A deadlock or serialization failure is a Conflict that :func:`is_transient` knows.
    """
    try:
        yield
    except psycopg.Error as error:
        ours = of(error)
        if ours is None:
            raise
        raise ours from error


def of(error: psycopg.Error) -> WakefulError | None:
    """Return what ``error`` means to a caller of wakeful; None for a programming mistake."""
    state = error.sqlstate or ""
    said = error.diag.message_primary or ""
    hint = error.diag.message_hint
    match state:
        case "WK422":
            return InvalidInput(said, hint=hint)
        case "WK404":
            return NotFound(said, hint=hint)
        case "WK409":
            return Conflict(said, hint=hint)
        case "23514" | "23502" | "23503":
            return InvalidInput(_broken_rule(error), hint=None)
        case "23505":
            return Conflict("somebody else has just made the same thing", hint="look at what is there")
    if state in _SCHEMA:
        return SchemaMismatch(
            "this database does not have the schema of this version of wakeful", hint="run: wakeful migrate"
        )
    if state in _AGAIN:
        return Conflict("other transactions were in the way", hint="try again")
    if state in _SERVER:
        message, remedy = _SERVER[state]
        return DatabaseUnavailable(message, hint=remedy)
    if state.startswith("22"):
        return InvalidInput(f"the database cannot store that value: {said}")
    if state.startswith(("08", "57P", "25P03", "53", "58")) or _is_lost(error):
        return DatabaseUnavailable("the connection to the database was lost", hint=_CHECK_SERVER)
    return None


def of_connect(error: psycopg.Error, dsn: str) -> DatabaseUnavailable:
    """Return the error of a connection to ``dsn`` that could not be made."""
    said = str(error)
    where = dsns.hidden(dsn)
    cause, hint = next(
        ((cause, hint) for words, cause, hint in _CONNECT if words in said), ("it cannot be reached", _CHECK_SERVER)
    )
    return DatabaseUnavailable(f"no connection to the database ({where}): {cause}", hint=hint)


def refuses_options(error: psycopg.Error) -> bool:
    """Tell whether a pooler refused the connection only because it was given session options."""
    return re.search(r"unsupported startup parameter[^\n]*\boptions\b", str(error)) is not None


def is_transient(error: BaseException) -> bool:
    """Tell whether doing the same bookkeeping again may succeed: no server, a deadlock, a serialization failure."""
    if isinstance(error, DatabaseUnavailable):
        return not isinstance(error, SchemaMismatch)
    state = _state(error)
    return state in _AGAIN or (isinstance(error, psycopg.Error) and isinstance(of(error), DatabaseUnavailable))


def is_read_only(error: BaseException) -> bool:
    """Tell whether the server turned out to be a standby, so that another must be looked for."""
    return _state(error) == _READ_ONLY


def _state(error: BaseException) -> str | None:
    for candidate in (error, error.__cause__):
        if isinstance(candidate, psycopg.Error):
            return candidate.sqlstate
    return None


def _is_lost(error: psycopg.Error) -> bool:
    # libpq's own errors carry no SQLSTATE.
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def _broken_rule(error: psycopg.Error) -> str:
    name = error.diag.constraint_name or ""
    for ending, rule in _CHECKS.items():
        if name.endswith(ending):
            return rule
    if error.sqlstate == "23503":
        return "something that this refers to does not exist"
    if error.sqlstate == "23502":
        return "a value is missing that must be given"
    return "a value is not among those allowed"
