"""Producers: one typed function per database function, each returning a statement to execute where the host likes.

Every function returns a :class:`Statement`; nothing is sent before it is executed. Arguments that are left out keep
the database's defaults. All raise InvalidInput for values that the database could not accept.
"""

from wakeful.producers.cards import answer_card, create_card, withdraw_card
from wakeful.producers.chat import begin_chat_action, open_chat_action, settle_chat_action
from wakeful.producers.comments import (
    delete_comment,
    discard_comment,
    edit_comment,
    reorder_comments,
    save_comment,
    take_issue,
)
from wakeful.producers.dependencies import add_dependency, remove_dependency
from wakeful.producers.events import drop_event
from wakeful.producers.holds import hold_issue, release_hold, restore_hold
from wakeful.producers.instance import declare_host_dead, set_setting, signal_gate
from wakeful.producers.interrupts import interrupt_issue
from wakeful.producers.issues import assign_issue, create_issue, set_issue_status
from wakeful.producers.limits import clear_account, close_account, limit_company, reset_circuit, set_account
from wakeful.producers.members import (
    add_agent,
    add_company,
    add_project,
    lift_panic,
    panic_company,
    pause_agent,
    pause_company,
    pause_project,
    resume_agent,
    resume_company,
    resume_project,
)
from wakeful.producers.membership import (
    approve_agent,
    archive_agent,
    archive_company,
    archive_project,
    await_approval,
    erase_company,
    terminate_agent,
)
from wakeful.producers.money import add_spend, raise_budget, set_budget
from wakeful.producers.recovery import close_lease, open_lease, open_recovery, resolve_recovery
from wakeful.producers.statement import ProducerResult, Statement, run
from wakeful.producers.statuses import assign_review, commit_status
from wakeful.producers.wakes import rearm_wake, request_retry, request_wake, retire_wake, stop_run

__all__ = [
    "ProducerResult",
    "Statement",
    "add_agent",
    "add_company",
    "add_dependency",
    "add_project",
    "add_spend",
    "answer_card",
    "approve_agent",
    "archive_agent",
    "archive_company",
    "archive_project",
    "assign_issue",
    "assign_review",
    "await_approval",
    "begin_chat_action",
    "clear_account",
    "close_account",
    "close_lease",
    "commit_status",
    "create_card",
    "create_issue",
    "declare_host_dead",
    "delete_comment",
    "discard_comment",
    "drop_event",
    "edit_comment",
    "erase_company",
    "hold_issue",
    "interrupt_issue",
    "lift_panic",
    "limit_company",
    "open_chat_action",
    "open_lease",
    "open_recovery",
    "panic_company",
    "pause_agent",
    "pause_company",
    "pause_project",
    "raise_budget",
    "rearm_wake",
    "release_hold",
    "remove_dependency",
    "reorder_comments",
    "request_retry",
    "request_wake",
    "reset_circuit",
    "resolve_recovery",
    "restore_hold",
    "resume_agent",
    "resume_company",
    "resume_project",
    "retire_wake",
    "run",
    "save_comment",
    "set_account",
    "set_budget",
    "set_issue_status",
    "set_setting",
    "settle_chat_action",
    "signal_gate",
    "stop_run",
    "take_issue",
    "terminate_agent",
    "withdraw_card",
]
