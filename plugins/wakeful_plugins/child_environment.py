"""The environment of a run's command: an allow-list, literals, and wakeful's own names."""

from __future__ import annotations

from collections.abc import Mapping

from wakeful.errors import ExecutorError
from wakeful.executions import RunKey, RunSpec

PREFIX = "WAKEFUL_"


def child_environment(
    spec: RunSpec, key: RunKey, own: Mapping[str, str], *, input_path: str, result_path: str, coordination: str
) -> dict[str, str]:
    """Return every variable the command gets.

    Arguments:
        own: the executor's environment, of which ``spec.allow`` names the part to pass on. A WAKEFUL_ name
            is never passed on, the DSN above all.
        input_path, result_path, coordination: absolute paths told to the command.

    Raises ExecutorError for a literal that sets a WAKEFUL_ name, and for what no environment can hold.
    """
    environment = {name: own[name] for name in spec.allow if name in own and not name.startswith(PREFIX)}
    for name, value in spec.environment.items():
        if name.startswith(PREFIX):
            raise ExecutorError(
                f"the agent's environment sets {name}", hint="WAKEFUL_ names are wakeful's own: use another name"
            )
        environment[name] = value
    environment |= {
        "WAKEFUL_RUN": key.cookie,
        "WAKEFUL_COMPANY": key.company,
        "WAKEFUL_AGENT": spec.agent,
        "WAKEFUL_INPUT": input_path,
        "WAKEFUL_RESULT": result_path,
        "WAKEFUL_COORD": coordination,
        "WAKEFUL_INSTANCE": spec.instance or str(key.run),
        "WAKEFUL_TOKEN": spec.token,
    }
    if spec.issue is not None:
        environment["WAKEFUL_ISSUE"] = spec.issue
    for name, value in environment.items():
        _check(name, value)
    return environment


def check_argument(what: str, value: str) -> None:
    """Raise ExecutorError if ``value`` cannot be handed to a process; ``what`` names it."""
    if not isinstance(value, str):
        raise ExecutorError(f"{what} is not text but {type(value).__name__}", hint="write it as a string")
    if "\0" in value:
        raise ExecutorError(f"{what} holds a NUL character", hint="no argument or variable of a process can: remove it")
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ExecutorError(
            f"{what} holds half of a surrogate pair", hint="it stands for no character: remove it"
        ) from None


def _check(name: str, value: str) -> None:
    check_argument(f"the name {name!r} of an environment variable", name)
    if not name or "=" in name:
        raise ExecutorError(
            f"{name!r} cannot name an environment variable", hint="a name is not empty and holds no '='"
        )
    check_argument(f"the environment variable {name}", value)
