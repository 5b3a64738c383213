"""Migrates the database named by its argument, once a line arrives; says what it applied."""

import contextlib
import sys

from wakeful import connections, migrations

with contextlib.closing(connections.connect(sys.argv[1], purpose="migrate")) as conn:
    print("ready", flush=True)
    sys.stdin.readline()
    print(*[step.version for step in migrations.apply(conn)], flush=True)
