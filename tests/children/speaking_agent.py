"""An agent that uses its files: each argument is one thing to do, in order.

cache; spend=AMOUNT; comment=TEXT; status=STATUS; other=TYPE (an event without a body); raw=AMOUNT (spend that no check
has seen); wait=FIFO; line=FILE (append its cookie); result=JSON; fail=CODE.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from wakeful_coordination import Coordination, Generation

BODIES = {
    "spend": lambda text: {"amount": text},
    "comment": lambda text: {"text": text},
    "status": lambda text: {"status": text},
    "raw": lambda text: {"amount": float(text)},
    "other": lambda text: {},
}


def main(things: list[str]) -> int:
    own = Generation.parse(os.environ["WAKEFUL_INSTANCE"])
    with Coordination.open(os.environ["WAKEFUL_COORD"], create=False) as root:
        for thing in things:
            what, _, text = thing.partition("=")
            if what == "cache":
                root.caches.write(own, b"what it knows")
            elif what in BODIES:
                kind = text if what == "other" else "spend" if what == "raw" else what
                print(root.publish(root.transaction(own, kind, BODIES[what](text))).txid, flush=True)
            elif what == "wait":
                with Path(text).open() as gate:
                    gate.readline()
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
