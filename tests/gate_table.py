"""Every gate once: how it is closed and by which producer it opens. For the tests over all gates and all pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from psycopg import Connection

Act = Callable[[Connection[Any], str], None]

LIVE_RUN = "INSERT INTO wakeful.run (company, agent, issue, labels) VALUES (%(c)s, {agent}, {issue}, '{{nowhere}}')"
STOP_LIVE_RUN = (
    "SELECT wakeful.stop_run(%(c)s, id) FROM wakeful.run WHERE company = %(c)s AND agent = {agent} AND wake IS NULL"
)
CODER = (
    "SELECT wakeful.add_agent(%(c)s, 'coder', ARRAY['true'], provider => 'acme-ai', account => 'main', estimate => 1,"
    " executor => 'nowhere')"
)
OPEN_CIRCUIT = (
    "INSERT INTO wakeful.circuit (company, agent, opened_at, signature)"
    " VALUES (%(c)s, 'coder', wakeful.now(), 'failed')"
    " ON CONFLICT (company, agent) DO UPDATE SET opened_at = excluded.opened_at, signature = excluded.signature"
)
RESOLVE = (
    "SELECT wakeful.resolve_recovery(%(c)s, id) FROM wakeful.recovery_action WHERE company = %(c)s AND state = 'open'"
)
UNASSIGN = "SELECT wakeful.assign_issue(%(c)s, 'I-1', NULL)"
UNBLOCK = "SELECT wakeful.set_issue_status(%(c)s, 'I-2', 'done')"
LIMIT = "SELECT wakeful.close_account(%(c)s, 'acme-ai/main', wakeful.now() + interval '5 hours', 'rate limit')"

SETUP = (
    "SELECT wakeful.add_company(%(c)s)",
    "SELECT wakeful.add_project(%(c)s, 'site')",
    CODER,
    "SELECT wakeful.add_agent(%(c)s, 'other', ARRAY['true'], executor => 'nowhere')",
    "SELECT wakeful.add_agent(%(c)s, 'third', ARRAY['true'], executor => 'nowhere')",
    "SELECT wakeful.create_issue(%(c)s, 'ROOT', project => 'site')",
    "SELECT wakeful.create_issue(%(c)s, 'I-1', project => 'site', parent => 'ROOT')",
    "SELECT wakeful.create_issue(%(c)s, 'I-2', project => 'site')",
)


def sql(*statements: str) -> Act:
    """Return an act that executes statements for a company, ``%(c)s``."""

    def act(conn: Connection[Any], company: str) -> None:
        for statement in statements:
            conn.execute(statement, {"c": company})

    return act


@dataclass(frozen=True)
class GateCase:
    """One gate: closed before the wake is saved, opened by its own producer."""

    name: str
    gate: str
    key: str
    reason: str
    close: Act
    open: Act


def _budget(scope: str) -> tuple[Act, Act]:
    return (
        sql(f"SELECT wakeful.set_budget(%(c)s, '{scope}', 0)"),
        sql(f"SELECT wakeful.raise_budget(%(c)s, '{scope}', 100)"),
    )


GATES = (
    GateCase(
        "company paused",
        "company",
        "{c}",
        "company.paused",
        sql("SELECT wakeful.pause_company(%(c)s)"),
        sql("SELECT wakeful.resume_company(%(c)s)"),
    ),
    GateCase(
        "panic",
        "company",
        "{c}",
        "company.panic",
        sql("SELECT wakeful.panic_company(%(c)s)"),
        sql("SELECT wakeful.resume_company(%(c)s)"),
    ),
    GateCase("company budget", "budget", "company", "budget.exhausted", *_budget("company")),
    GateCase(
        "agent paused",
        "agent",
        "coder",
        "agent.paused_manual",
        sql("SELECT wakeful.pause_agent(%(c)s, 'coder')"),
        sql("SELECT wakeful.resume_agent(%(c)s, 'coder')"),
    ),
    GateCase(
        "agent not approved",
        "agent",
        "coder",
        "agent.pending_approval",
        sql("SELECT wakeful.await_approval(%(c)s, 'coder')"),
        sql("SELECT wakeful.approve_agent(%(c)s, 'coder')"),
    ),
    GateCase("agent budget", "budget", "agent:coder", "budget.exhausted", *_budget("agent:coder")),
    GateCase(
        "circuit",
        "circuit",
        "coder",
        "circuit.open",
        sql(OPEN_CIRCUIT),
        sql("SELECT wakeful.reset_circuit(%(c)s, 'coder')"),
    ),
    GateCase("project budget", "budget", "project:site", "budget.exhausted", *_budget("project:site")),
    GateCase(
        "project paused",
        "project",
        "site",
        "project.paused_manual",
        sql("SELECT wakeful.pause_project(%(c)s, 'site')"),
        sql("SELECT wakeful.resume_project(%(c)s, 'site')"),
    ),
    GateCase(
        "hold",
        "hold",
        "ROOT",
        "hold.pause",
        sql("SELECT wakeful.hold_issue(%(c)s, 'ROOT')"),
        sql("SELECT wakeful.release_hold(%(c)s, 'ROOT')"),
    ),
    GateCase(
        "cancel hold",
        "hold",
        "ROOT",
        "hold.cancel",
        sql("SELECT wakeful.hold_issue(%(c)s, 'ROOT', 'cancel')"),
        sql("SELECT wakeful.restore_hold(%(c)s, 'ROOT')"),
    ),
    GateCase(
        "recovery",
        "recovery",
        "*",
        "recovery.open",
        sql("SELECT wakeful.open_recovery(%(c)s, 'I-1', 'odd')"),
        sql(RESOLVE),
    ),
    GateCase(
        "assignee",
        "issue",
        "I-1",
        "issue.assignee",
        sql("SELECT wakeful.assign_issue(%(c)s, 'I-1', 'user:ann')"),
        sql(UNASSIGN),
    ),
    GateCase(
        "dependency",
        "dependency",
        "I-1",
        "dependency.open",
        sql("SELECT wakeful.add_dependency(%(c)s, 'I-1', 'I-2')"),
        sql(UNBLOCK),
    ),
    GateCase(
        "live run",
        "execution",
        "I-1",
        "execution.live_run",
        sql(LIVE_RUN.format(agent="'other'", issue="'I-1'")),
        sql(STOP_LIVE_RUN.format(agent="'other'")),
    ),
    GateCase(
        "environment lease",
        "execution",
        "I-1",
        "execution.environment",
        sql("SELECT wakeful.open_lease(%(c)s, 'sandbox-1', 'I-1')"),
        sql("SELECT wakeful.close_lease(%(c)s, 'sandbox-1')"),
    ),
    GateCase(
        "provider",
        "provider",
        "acme-ai/main",
        "provider.limited",
        sql(LIMIT),
        sql("SELECT wakeful.clear_account(%(c)s, 'acme-ai/main')"),
    ),
    GateCase(
        "agent concurrency",
        "concurrency",
        "agent:coder",
        "concurrency.agent",
        sql(
            CODER.replace("'nowhere')", "'nowhere', max_concurrent_runs => 1)"),
            LIVE_RUN.format(agent="'coder'", issue="NULL"),
        ),
        sql(STOP_LIVE_RUN.format(agent="'coder'")),
    ),
    GateCase(
        "company concurrency",
        "concurrency",
        "company",
        "concurrency.company",
        sql(LIVE_RUN.format(agent="'third'", issue="NULL"), "SELECT wakeful.limit_company(%(c)s, 1)"),
        sql("SELECT wakeful.limit_company(%(c)s)"),
    ),
    GateCase(
        "the host's own",
        "quota",
        "daily",
        "quota.used",
        sql("INSERT INTO public.closed_quota VALUES (%(c)s)"),
        sql(
            "DELETE FROM public.closed_quota WHERE company = %(c)s",
            "SELECT wakeful.signal_gate(%(c)s, 'quota', 'daily')",
        ),
    ),
)
