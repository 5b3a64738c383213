"""How a failure reaches a person: one line with cause, remedy and exit code; a trace only when asked for."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import traceback

import click

from wakeful.cli.rendering import printable
from wakeful.errors import InvalidInput, WakefulError

INTERRUPTED = 130
# What a write without a file's name fails with when it is the output that cannot be written.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def tell(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Print ``error`` to standard error and return the exit code it asks for."""
    if debug:
        traceback.print_exception(error)
    known = described(error)
    if as_json:
        line = json.dumps(known.as_json(), ensure_ascii=False)
    else:
        hint = f"; {known.hint}" if known.hint else ""
        line = f"wakeful: {_one_line(known.message)}{_one_line(hint)} (exit {known.code})"
    with contextlib.suppress(OSError):  # standard error may be gone, too
        click.echo(line, err=True)
    return known.code


def described(error: BaseException) -> WakefulError:
    """Return ``error`` as one of wakeful's own."""
    if isinstance(error, WakefulError):
        return error
    if isinstance(error, click.UsageError):
        return InvalidInput(error.format_message().rstrip("."), hint=_usage_hint(error))
    if isinstance(error, click.ClickException):
        return WakefulError(error.format_message())
    if isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE:
        return WakefulError(f"the output cannot be written: {os.strerror(error.errno)}")
    if isinstance(error, OSError):
        what = f": {error.filename}" if error.filename else ""
        owner = "run it as the user whose it is" if what and isinstance(error, PermissionError) else None
        return WakefulError(f"{error.strerror or error}{what}", hint=owner)
    # The text of a strange error may hold anything, so only --debug shows it.
    return WakefulError(
        f"an error in wakeful itself: {type(error).__name__}",
        hint="repeat it with --debug, and report what that prints",
    )


def close_output() -> None:
    """Flush standard output. One that cannot be written is given up, so that Python does not try again at its end.

    Raises:
        OSError: it could not be written; BrokenPipeError when nobody reads it any more.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _one_line(words: str) -> str:
    return printable(" ".join(words.split()))


def _usage_hint(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "wakeful"
    return f"see: {path} --help"
