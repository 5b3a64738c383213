"""A host application that interrupts an issue in a transaction of its own and is killed, before its commit or after.

Arguments: the DSN; ``before`` or ``after``.
"""

from __future__ import annotations

import os
import signal
import sys

import psycopg

from wakeful import interrupt_issue, run

dsn, moment = sys.argv[1:]
conn = psycopg.connect(dsn)
made = run(conn, interrupt_issue("acme", "issue", actor="user:ann"))
print(made.outcome, flush=True)
if moment == "before":
    os.kill(os.getpid(), signal.SIGKILL)
conn.commit()
os.kill(os.getpid(), signal.SIGKILL)
