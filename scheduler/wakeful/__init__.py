"""wakeful: a durable scheduler of deferred wakes for agent platforms.

Producers make statements (``wakeful.request_wake(...)``), :func:`run` executes one on a psycopg connection, and
``@hookimpl`` marks a plugin's hooks. Each name is imported when first used, so ``import wakeful`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pluggy

    from wakeful.effects import effect_key, token
    from wakeful.producers import (
        ProducerResult,
        Statement,
        add_agent,
        add_company,
        add_dependency,
        add_project,
        add_spend,
        answer_card,
        approve_agent,
        archive_agent,
        archive_company,
        archive_project,
        assign_issue,
        assign_review,
        await_approval,
        begin_chat_action,
        clear_account,
        close_account,
        close_lease,
        commit_status,
        create_card,
        create_issue,
        declare_host_dead,
        delete_comment,
        discard_comment,
        drop_event,
        edit_comment,
        erase_company,
        hold_issue,
        interrupt_issue,
        lift_panic,
        limit_company,
        open_chat_action,
        open_lease,
        open_recovery,
        panic_company,
        pause_agent,
        pause_company,
        pause_project,
        raise_budget,
        rearm_wake,
        release_hold,
        remove_dependency,
        reorder_comments,
        request_retry,
        request_wake,
        reset_circuit,
        resolve_recovery,
        restore_hold,
        resume_agent,
        resume_company,
        resume_project,
        retire_wake,
        run,
        save_comment,
        set_account,
        set_budget,
        set_issue_status,
        set_setting,
        settle_chat_action,
        signal_gate,
        stop_run,
        take_issue,
        terminate_agent,
        withdraw_card,
    )

    hookimpl = pluggy.HookimplMarker("wakeful")

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
    "effect_key",
    "erase_company",
    "hold_issue",
    "hookimpl",
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
    "token",
    "withdraw_card",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "hookimpl":
        import pluggy

        return pluggy.HookimplMarker("wakeful")
    if name in ("effect_key", "token"):
        from wakeful import effects

        return getattr(effects, name)
    from wakeful import producers

    return getattr(producers, name)
