"""A process that uses the local executor as a scheduler does; tests kill it.

Arguments: data root, run id, command as JSON, action (``submit``, ``examine`` or ``stop``), name of the crash
point at which it kills itself (or ""). Prints the kind of each status it sees, one a line, and stays.
"""

import json
import sys
import threading
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from wakeful.executions import RunKey, RunSpec
from wakeful.testing import KillAt
from wakeful_plugins.local_executor import LocalExecutor

GRACE = timedelta(seconds=0.3)


def main() -> None:
    data, run, command, action, place = sys.argv[1:]
    key = RunKey("acme", UUID(run), 1)
    news = threading.Semaphore(0)
    executor = LocalExecutor(Path(data), poll=GRACE, drain=GRACE, crash=KillAt(place))
    executor.attach(news.release)
    if action == "submit":
        executor.submit(RunSpec(tuple(json.loads(command)), {"v": 1}, agent="coder", stop_grace=GRACE), key)
    elif action == "examine":
        print(executor.examine(key), flush=True)
    elif action == "stop":
        executor.stop(key, GRACE)
    while True:
        print(type(executor.poll([key])[0]).__name__, flush=True)
        news.acquire()


main()
