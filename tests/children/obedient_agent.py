"""An agent that does what its wake's payload says, and prints the session it was given as its first line.

    {"print": [lines], "result": {...}, "exit": 3, "signal": 9, "block": true}

Before anything else ``first`` may replace the payload for attempt 1. ``block`` waits, once all else is done, until a
signal ends the program. ``vanish`` kills the runner and then the program, which leaves no exit record.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

work = json.loads(Path(os.environ["WAKEFUL_INPUT"]).read_text(encoding="utf-8"))
orders = work["wake"]["payload"]
if work["attempt"] == 1 and "first" in orders:
    orders = orders["first"]
print(json.dumps({"given": work["session"]}))
for line in orders.get("print", []):
    print(line if isinstance(line, str) else json.dumps(line))
sys.stdout.flush()
if "result" in orders:
    path = Path(os.environ["WAKEFUL_RESULT"])
    draft = path.with_name(".draft")
    draft.write_text(json.dumps(orders["result"]), encoding="utf-8")
    draft.rename(path)
if orders.get("block"):
    print(json.dumps({"blocked": True}), flush=True)
    signal.pause()
if orders.get("vanish"):
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
if "signal" in orders:
    os.kill(os.getpid(), orders["signal"])
sys.exit(orders.get("exit", 0))
