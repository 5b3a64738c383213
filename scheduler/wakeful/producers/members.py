"""Companies, projects and agents: adding, pausing, resuming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from types import EllipsisType
from typing import Any

from wakeful.errors import InvalidInput
from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call

_NO_TIME = timedelta()
_LEAST = timedelta(microseconds=1)


def add_company(company: str, *, name: str | None = None, actor: str | None = None) -> Statement:
    """Add a company (a tenant). Existing: it stays as it is."""
    return call("add_company", check.identifier("company", company), check.text("name", name), check.actor(actor))


def pause_company(company: str, *, reason: str | None = None, actor: str | None = None) -> Statement:
    """Admit nothing more for a company; what is saved waits."""
    return call("pause_company", check.identifier("company", company), check.text("reason", reason), check.actor(actor))


def resume_company(company: str, *, actor: str | None = None) -> Statement:
    """Lift a company's pause, and its panic."""
    return call("resume_company", check.identifier("company", company), check.actor(actor))


def panic_company(company: str, *, reason: str | None = None, actor: str | None = None) -> Statement:
    """Admit nothing more for a company, and ask every live run of it to stop."""
    return call("panic_company", check.identifier("company", company), check.text("reason", reason), check.actor(actor))


def lift_panic(company: str, *, actor: str | None = None) -> Statement:
    """Lift a company's panic; a pause by a person stays."""
    return call("lift_panic", check.identifier("company", company), check.actor(actor))


def add_project(company: str, project: str, *, name: str | None = None, actor: str | None = None) -> Statement:
    """Add a project. Existing: it stays as it is."""
    return call(
        "add_project",
        check.identifier("company", company),
        check.identifier("project", project),
        check.text("name", name),
        check.actor(actor),
    )


def pause_project(company: str, project: str, *, actor: str | None = None) -> Statement:
    """Pause a project by hand; a pause by its budget becomes a person's."""
    return call(
        "pause_project", check.identifier("company", company), check.identifier("project", project), check.actor(actor)
    )


def resume_project(company: str, project: str, *, actor: str | None = None) -> Statement:
    """Lift a project's pause, whatever it was for."""
    return call(
        "resume_project", check.identifier("company", company), check.identifier("project", project), check.actor(actor)
    )


def add_agent(
    company: str,
    agent: str,
    command: Sequence[str],
    *,
    name: str | None = None,
    cwd: str | None = None,
    env_allow: Sequence[str] | None = None,
    env_values: Mapping[str, str] | None = None,
    max_runtime: timedelta | EllipsisType | None = ...,
    silence_limit: timedelta | None = None,
    stop_grace: timedelta | None = None,
    max_attempts: int | None = None,
    estimate: Decimal | int | None = None,
    provider: str | None = None,
    account: str | None = None,
    max_concurrent_runs: int | None = None,
    labels: Sequence[str] | None = None,
    host: str | None = None,
    reports_to: str | None = None,
    executor: str | None = None,
    session_policy: Mapping[str, Any] | None = None,
    reader: Mapping[str, Any] | None = None,
    actor: str | None = None,
) -> Statement:
    """Add an agent with its run contract, or replace the contract of one that is there.

    Arguments:
        command: the program and its arguments; no shell reads them.
        cwd: where it runs; left out, in the run's own directory.
        env_allow: names of variables it inherits; left out, a short list (PATH, HOME, LANG ...).
        env_values: variables it gets.
        max_runtime: it is stopped after so long; None for no limit, left out for 1 hour.
        silence_limit: it is stopped when it wrote nothing for so long.
        stop_grace: between TERM and KILL; left out, 10 s.
        max_attempts: how often one run may be started; left out, 3.
        estimate: money a run is expected to cost, reserved at admission.
        provider, account: whose limits it shares with others.
        max_concurrent_runs: of this agent; left out, any number.
        labels: what a host must carry to run it; ``host``: the one host that may.
        reports_to: another agent's id, for people.
        executor: which executor starts it; left out, local processes.
        session_policy: ``mode`` reuse or fresh, ``rotate_runs`` and ``rotate_days`` after how many runs or days a
            session is left behind; left out, sessions are reused for ever.
        reader: the result reader (``kind``) that reads its output where it leaves no result.json, with its settings.
    """
    if not command or not command[0]:
        raise InvalidInput("a command has at least one word", hint="example: ['python3', 'agent.py']")
    return call(
        "add_agent",
        check.identifier("company", company),
        check.identifier("agent", agent),
        check.words("command", command),
        check.text("name", name),
        check.text("cwd", cwd),
        check.words("env_allow", env_allow),
        check.texts_by_name("env_values", env_values),
        check.duration("max_runtime", max_runtime, least=_LEAST),
        check.duration("silence_limit", ... if silence_limit is None else silence_limit, least=_LEAST),
        check.duration("stop_grace", ... if stop_grace is None else stop_grace, least=_NO_TIME),
        check.whole("max_attempts", max_attempts, 1),
        check.money("estimate", estimate),
        check.text("provider", provider),
        check.text("account", account),
        check.whole("max_concurrent_runs", max_concurrent_runs, 1),
        check.words("labels", labels),
        check.text("host", host),
        check.text("reports_to", reports_to),
        check.text("executor", executor),
        check.session_policy(session_policy),
        check.reader(reader),
        check.actor(actor),
    )


def pause_agent(company: str, agent: str, *, actor: str | None = None) -> Statement:
    """Pause an agent by hand; its saved wakes wait."""
    return call(
        "pause_agent", check.identifier("company", company), check.identifier("agent", agent), check.actor(actor)
    )


def resume_agent(company: str, agent: str, *, actor: str | None = None) -> Statement:
    """Lift an agent's pause."""
    return call(
        "resume_agent", check.identifier("company", company), check.identifier("agent", agent), check.actor(actor)
    )
