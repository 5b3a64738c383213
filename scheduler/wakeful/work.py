"""What a claimed run is given: its row, read whole, as a RunSpec with ``input.json`` v1."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from wakeful import store
from wakeful.effects import token
from wakeful.executions import RunKey, RunSpec


@dataclass(frozen=True, slots=True)
class Work:
    """One claimed run, ready for its executor.

    Arguments:
        executor: the name of the executor it was claimed for.
        spec: what it is given.
        stopping: it was asked to stop meanwhile, so that it must not start.
        unusable: why it can never be started: what it would be given cannot be read.
    """

    executor: str
    spec: RunSpec
    stopping: bool
    unusable: str | None = None


def read(conn: Connection[Any], company: str, keys: Sequence[RunKey]) -> dict[RunKey, Work]:
    """Return the work of claimed runs of one company, without those whose generation is overtaken.

    Their payloads are in memory together, so ``keys`` should be few.
    """
    columns = {"runs": [key.run for key in keys], "generations": [key.generation for key in keys]}
    rows = store.run(conn, "dispatch.work", {"company": company, **columns})
    return {RunKey(company, row.run, row.generation): _work(row) for row in rows}


def _work(row: Any) -> Work:
    payload, literals, unusable = None, {}, None
    comments: list[Any] = []
    cards: list[Any] = []
    try:
        payload, literals = json.loads(row.payload or "null"), json.loads(row.env_values)
        comments, cards = json.loads(row.comments or "[]"), json.loads(row.cards or "[]")
    except (ValueError, RecursionError) as error:
        unusable = f"its payload, its comments or cards, or its agent's environment, cannot be read: {error}"
    spec = RunSpec(
        command=tuple(row.command),
        input=_input(row, payload, comments, cards),
        agent=row.agent,
        issue=row.issue,
        cwd=row.cwd,
        allow=tuple(row.env_allow),
        environment={str(name): str(value) for name, value in literals.items()},
        token=token(row.epoch, row.run, row.generation),
        max_runtime=row.max_runtime,
        silence_limit=row.silence_limit,
        stop_grace=row.stop_grace,
    )
    return Work(row.executor, spec, row.run_state == "stopping", unusable)


def _input(row: Any, payload: Any, comments: list[Any], cards: list[Any]) -> dict[str, Any]:
    wake = None
    if row.wake is not None:
        wake = {
            "id": str(row.wake),
            "kind": row.wake_kind,
            "reason": row.wake_source,
            "payload": payload,
            "effect_root": str(row.effect_root),
            "requested_at": row.requested_at.isoformat(),
        }
    retried = None
    if row.retry_of is not None:
        retried = {
            "run": str(row.retry_of),
            "state": row.retried_state,
            "class": row.retried_class,
            "exit_code": row.retried_exit_code,
            "message": row.retried_message,
            "result": row.retried_result,
        }
    return {
        "v": 1,
        "company": row.company,
        "agent": row.agent,
        "issue": None if row.issue is None else {"id": row.issue, "title": row.title, "body": row.body},
        "run": str(row.run),
        "generation": row.generation,
        "attempt": row.attempt,
        "wake": wake,
        "retry_of": retried,
        "authority": row.authority,
        "comments": comments,
        "cards": cards,
        "session": row.session,
        "deadline": None if row.max_runtime is None else row.deadline.isoformat(),
    }
