"""``wakeful logs``."""

from __future__ import annotations

import codecs
import contextlib
import time
from typing import TYPE_CHECKING

import click

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation

if TYPE_CHECKING:
    from uuid import UUID

    from wakeful.connections import Session
    from wakeful.executions import Executor
    from wakeful.outputs import SavedOutput, Stream

_BEAT = 0.1
# How often a follower asks the database about a run whose files say nothing new.
_ASK = 2.0


@command()
@click.argument("run_id", metavar="RUN")
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), default="stdout", show_default=True, help="Which.")
@click.option("--from", "offset", type=click.IntRange(min=0), default=0, metavar="BYTE", help="Where to begin.")
@click.option("--follow", "-f", is_flag=True, help="Go on as the run prints, until it ends.")
@pass_invocation
def logs(invocation: Invocation, run_id: str, stream: Stream, offset: int, follow: bool) -> None:
    """Print what a run printed, byte for byte: from its files if they are on this host, else the saved tail.

    With --json: one object a piece, with the byte offset of its text and that of what comes next.
    """
    from wakeful import explain

    with invocation.session() as session, contextlib.ExitStack() as stack:
        with session.autocommit() as conn:
            found = explain.find(conn, invocation.optional_company(conn), run_id, "run")
        executors = {executor.name: executor for executor in invocation.hooks().executors(invocation.config)}
        for executor in executors.values():
            stack.callback(executor.close)
        reading = _Reading(invocation, session, executors, found.company, found.id, stream)
        reading.read(offset, follow=follow)


class _Reading:
    """One stream of one run being read, across its generations."""

    def __init__(
        self,
        invocation: Invocation,
        session: Session,
        executors: dict[str, Executor],
        company: str,
        run: UUID,
        stream: Stream,
    ) -> None:
        self._invocation = invocation
        self._session = session
        self._executors = executors
        self._company = company
        self._run = run
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, offset: int, *, follow: bool) -> None:
        """Print what there is from a byte offset; if asked, go on until the run has ended."""
        from wakeful import outputs

        saved = self._saved()
        while True:
            executor = self._executors.get(saved.executor)
            if executor is not None and outputs.are_here(executor, saved.key, self._stream):
                fresh = self._print_files(executor, saved, offset, follow=follow)
                if fresh is None:
                    return
                rendering.note(f"wakeful: run {self._run} goes on as generation {fresh.key.generation}")
                saved, offset = fresh, 0
            elif follow and not saved.ended and saved.host in (None, self._invocation.config.host):
                time.sleep(_BEAT)  # it has not started yet
                saved = self._saved()
            else:
                self._print_tail(saved, offset)
                return

    def _print_files(self, executor: Executor, saved: SavedOutput, offset: int, *, follow: bool) -> SavedOutput | None:
        """Print one generation's files; return what the database says once another generation has begun."""
        from wakeful import outputs

        heard = time.monotonic()
        fresh = saved
        while True:
            # Asked before the files are read, so that nothing printed in between is missed.
            over = not follow or fresh.ended or fresh.key != saved.key or outputs.are_complete(executor, saved.key)
            for piece in outputs.pieces(executor, saved.key, self._stream, offset):
                self._print(saved, piece.offset, piece.data)
                offset = piece.offset + len(piece.data)
                heard = time.monotonic()
            if over:
                self._print(saved, offset, b"", final=True)
                return fresh if fresh.key != saved.key and follow else None
            time.sleep(_BEAT)
            if time.monotonic() - heard >= _ASK:
                heard, fresh = time.monotonic(), self._saved()

    def _print(self, saved: SavedOutput, offset: int, data: bytes, *, final: bool = False) -> None:
        if not self._invocation.json:
            if data:
                click.echo(data, nl=False)
            return
        words = self._decoder.decode(data, final)
        if words:
            rendering.emit_json(
                {
                    "run": self._run,
                    "generation": saved.key.generation,
                    "stream": self._stream,
                    "source": "files",
                    "offset": offset,
                    "next": offset + len(data),
                    "text": words,
                }
            )

    def _print_tail(self, saved: SavedOutput, offset: int) -> None:
        host = saved.host or "no host yet"
        if self._invocation.json:
            rendering.emit_json(
                {
                    "run": self._run,
                    "generation": saved.key.generation,
                    "stream": self._stream,
                    "source": "tail",
                    "host": saved.host,
                    "bytes": saved.bytes,
                    "altered": saved.altered,
                    "truncated": saved.truncated,
                    "text": saved.tail or "",
                }
            )
            return
        if saved.tail:
            click.echo(saved.tail, nl=False)
        kept = len((saved.tail or "").encode())
        if saved.host is None:
            rendering.note(f"wakeful: run {self._run} is {saved.state} and has printed nothing")
        elif not saved.ended:
            rendering.note(f"wakeful: run {self._run} is {saved.state}; its output is on host {host}")
        elif (saved.bytes or 0) > kept or offset:
            rendering.note(f"wakeful: these are the last {kept} of {saved.bytes} bytes; the files are on host {host}")

    def _saved(self) -> SavedOutput:
        from wakeful import outputs

        with self._session.autocommit() as conn:
            return outputs.saved(conn, self._company, self._run, self._stream)
