"""An agent that thinks for a while and then gives the answer it was handed.

It shows all that a program needs in order to be an agent: read the work from the file that WAKEFUL_INPUT
names, print progress, leave an artifact and a result, and exit. The wake's payload:

    {"answer": "42", "seconds": 2}

``answer`` is required; ``seconds`` (default 2) is how long the work takes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

STEP = 0.25  # seconds of thinking between two lines of progress
NO_ANSWER = 3
NO_WORK = 4


def main() -> int:
    """Do the work; return the exit status."""
    try:
        work: dict[str, Any] = json.loads(Path(os.environ["WAKEFUL_INPUT"]).read_text(encoding="utf-8"))
    except KeyError:
        print("answering agent: WAKEFUL_INPUT is not set; let wakeful start this program", file=sys.stderr)
        return NO_WORK
    except (OSError, ValueError) as error:
        print(f"answering agent: cannot read {os.environ['WAKEFUL_INPUT']}: {error}", file=sys.stderr)
        return NO_WORK
    payload = work["wake"].get("payload") or {}
    if "answer" not in payload:
        print('answering agent: no answer: the wake\'s payload must hold one, as in {"answer": "42"}', file=sys.stderr)
        return NO_ANSWER

    issue = work.get("issue")
    print(f"attempt {work.get('attempt', 1)}: {issue['title'] if issue else 'a task without an issue'}", flush=True)
    for comment in work.get("comments") or []:
        print(f"{comment['author']} wrote: {comment['body']}", flush=True)
    think(float(payload.get("seconds", 2)))

    answer = Path("answer.txt").absolute()
    answer.write_text(f"{payload['answer']}\n", encoding="utf-8")
    finish(
        {
            "class": "ok",
            "message": f"The answer is {payload['answer']}.",
            "artifacts": [
                {
                    "name": answer.name,
                    "uri": answer.as_uri(),
                    "digest": f"sha256:{hashlib.sha256(answer.read_bytes()).hexdigest()}",
                }
            ],
        }
    )
    print(f"the answer is {payload['answer']}", flush=True)
    return 0


def think(seconds: float) -> None:
    """Work for ``seconds``, with a line of progress for each step."""
    begin = time.monotonic()
    step = 0
    while (left := begin + seconds - time.monotonic()) > 0:
        step += 1
        print(f"thinking, step {step}", flush=True)
        time.sleep(min(STEP, left))


def finish(result: dict[str, Any]) -> None:
    """Hand the result over whole: a reader never sees half of it."""
    path = Path(os.environ["WAKEFUL_RESULT"])
    draft = path.with_name(".result.json.draft")
    draft.write_text(json.dumps(result), encoding="utf-8")
    draft.rename(path)


if __name__ == "__main__":
    sys.exit(main())
