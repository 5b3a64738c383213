"""Producers: one typed function per database function, each returning a statement to execute where the host likes.

Every function returns a :class:`Statement`; nothing is sent before it is executed. Arguments that are left out keep
the database's defaults. All raise InvalidInput for values that the database could not accept.
"""

from wakeful.producers.instance import set_setting, signal_gate
from wakeful.producers.issues import assign_issue, create_issue, set_issue_status
from wakeful.producers.members import (
    add_agent,
    add_company,
    add_project,
    panic_company,
    pause_agent,
    pause_company,
    pause_project,
    resume_agent,
    resume_company,
    resume_project,
)
from wakeful.producers.money import add_spend, raise_budget, set_budget
from wakeful.producers.statement import ProducerResult, Statement, run
from wakeful.producers.wakes import rearm_wake, request_retry, request_wake, retire_wake, stop_run

__all__ = [
    "ProducerResult",
    "Statement",
    "add_agent",
    "add_company",
    "add_project",
    "add_spend",
    "assign_issue",
    "create_issue",
    "panic_company",
    "pause_agent",
    "pause_company",
    "pause_project",
    "raise_budget",
    "rearm_wake",
    "request_retry",
    "request_wake",
    "resume_agent",
    "resume_company",
    "resume_project",
    "retire_wake",
    "run",
    "set_budget",
    "set_issue_status",
    "set_setting",
    "signal_gate",
    "stop_run",
]
