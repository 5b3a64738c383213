"""The life of members and projects beyond pause and resume."""

from __future__ import annotations

from wakeful.producers import arguments as check
from wakeful.producers.statement import Statement, call


def terminate_agent(company: str, agent: str, *, actor: str | None = None) -> Statement:
    """End an agent for good: what is saved for it is retired; tombstones stay."""
    return _of_agent("terminate_agent", company, agent, actor)


def archive_agent(company: str, agent: str, *, actor: str | None = None) -> Statement:
    """Put an agent away for good; as :func:`terminate_agent` for what is saved for it."""
    return _of_agent("archive_agent", company, agent, actor)


def await_approval(company: str, agent: str, *, actor: str | None = None) -> Statement:
    """Let an agent wait for a person's approval; what is saved for it waits too."""
    return _of_agent("await_approval", company, agent, actor)


def approve_agent(company: str, agent: str, *, actor: str | None = None) -> Statement:
    """Give the approval that an agent waits for."""
    return _of_agent("approve_agent", company, agent, actor)


def archive_project(company: str, project: str, *, actor: str | None = None) -> Statement:
    """Put a project away for good: what is saved in it is retired."""
    return call(
        "archive_project",
        check.identifier("company", company),
        check.identifier("project", project),
        check.actor(actor),
    )


def archive_company(company: str, *, actor: str | None = None) -> Statement:
    """Put a company away for good: what is saved in it is retired."""
    return call("archive_company", check.identifier("company", company), check.actor(actor))


def erase_company(company: str, *, actor: str | None = None) -> Statement:
    """Replace everything people wrote in an archived company, and its agents printed, by hashes. Operators only."""
    return call("erase_company", check.identifier("company", company), check.actor(actor))


def _of_agent(function: str, company: str, agent: str, actor: str | None) -> Statement:
    return call(function, check.identifier("company", company), check.identifier("agent", agent), check.actor(actor))
