"""An agent that uses its files: each argument is one thing to do, in order.

cache; spend=AMOUNT; silent=AMOUNT (spend, and no ring from then on); raw=AMOUNT (spend that no check has seen);
comment=TEXT; status=STATUS; other=TYPE (an event without a body); wait=FIFO; line=FILE (append its cookie);
result=JSON; fail=CODE; hold=FIFO (its own lease, until told); mutate=FIFO (a transaction, which stands still before
its file is replaced, until told); obey (until TERM, after which it goes on).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from wakeful_coordination import Coordination, Generation, Mutation
from wakeful_coordination.posix import PosixFilesystem

BODIES = {
    "spend": lambda text: {"amount": text},
    "comment": lambda text: {"text": text},
    "status": lambda text: {"status": text},
    "silent": lambda text: {"amount": text},
    "raw": lambda text: {"amount": float(text)},
    "other": lambda text: {},
}


def told(fifo: str) -> None:
    with Path(fifo).open() as gate:
        gate.readline()


class Standing(PosixFilesystem):
    """Stands still before a state file is replaced."""

    fifo = ""

    def rename(self, source: str, target: str, at: int) -> None:
        if target == "state.json":
            told(self.fifo)
        super().rename(source, target, at)


def obey() -> None:
    """Wait for TERM, and claim success all the same."""
    signal.sigwait({signal.SIGTERM})


def main(things: list[str]) -> int:
    own = Generation.parse(os.environ["WAKEFUL_INSTANCE"])
    disk = Standing()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM} if "obey" in things else set())
    with Coordination.open(os.environ["WAKEFUL_COORD"], create=False, files=disk) as root:
        for thing in things:
            what, _, text = thing.partition("=")
            if what == "cache":
                root.caches.write(own, b"what it knows")
            elif what in BODIES:
                kind = text if what == "other" else "spend" if what in ("raw", "silent") else what
                if what == "silent":
                    root.outbox.ring = lambda: None  # type: ignore[method-assign]
                print(root.publish(root.transaction(own, kind, BODIES[what](text))).txid, flush=True)
            elif what == "wait":
                told(text)
            elif what == "hold":
                with root.lease(own.instance):
                    told(text)
            elif what == "mutate":
                disk.fifo = text
                change = [Mutation(own.instance, "state.json", '{"half": "done"}')]
                with root.lease(own.instance):  # so that nobody else settles it meanwhile
                    print(root.transact(root.transaction(own, "spend", {"amount": "9"}, mutations=change)), flush=True)
            elif what == "obey":
                obey()
            elif what == "line":
                with Path(text).open("a") as lines:
                    lines.write(os.environ["WAKEFUL_RUN"] + "\n")
            elif what == "result":
                Path(os.environ["WAKEFUL_RESULT"]).write_text(text)
            elif what == "fail":
                return int(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
