"""``wakeful comment``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.parameters import words

if TYPE_CHECKING:
    from wakeful.producers import ProducerResult, Statement

F = TypeVar("F", bound=Callable[..., Any])
SHOWN = 60  # characters of a comment in a table


def guarded(function: F) -> F:
    """Add ``--revision`` and ``--force``."""
    revision = click.option("--revision", type=int, help="Only if it is still at this revision; else the present one.")
    force = click.option("--force", is_flag=True, help="As an operator, though it is somebody else's.")
    return revision(force(function))


@noun()
def comment() -> None:
    """Save, change or list comments. What is saved on an issue waits until its agent can be given it."""


@comment.command("add")
@click.argument("issue", metavar="ISSUE")
@click.argument("body", type=words, metavar="TEXT")
@click.option("--author", metavar="WHO", help="user:ID, agent:ID or system:ID; else who acts.")
@click.option("--id", "comment_id", metavar="ID", help="Your own id; else one is made.")
@click.option("--agent", metavar="ID", help="Who is woken; else the issue's assignee.")
@click.option("--run", "run_id", metavar="RUN", help="The run that wrote it, if one did.")
@click.option("--key", help="Makes it idempotent without an id.")
@pass_invocation
def add(
    invocation: Invocation,
    issue: str,
    body: str,
    author: str | None,
    comment_id: str | None,
    agent: str | None,
    run_id: str | None,
    key: str | None,
) -> None:
    """Save a comment. TEXT may be @FILE, or @- for standard input."""
    from wakeful import explain, producers
    from wakeful.cli.parameters import fresh_id

    actor = invocation.config.actor
    # A key must find the comment of the first time, so its id is the database's to make.
    chosen = comment_id or (None if key else fresh_id())
    with invocation.connection() as conn:
        company = invocation.company(conn, known=False)
        run = explain.find(conn, company, run_id, "run").id if run_id else None
        statement = producers.save_comment(
            company, issue, body, author or actor, id=chosen, agent=agent, run=run, key=key, actor=actor
        )
        made = invocation.produce(conn, statement, company=company, issue=issue, comment=chosen)
    name = f"comment {chosen}" if chosen else "the comment"
    if made.wake is None:
        invocation.say(f"{name} is {made.state} on {invocation.noun('issue')} {issue}, and wakes nobody now")
    else:
        how = {"inserted": "waits in", "merged": "joined", "existing": "is in"}[made.outcome]
        invocation.say(f"{name} {how} {invocation.noun('wake')} {made.wake}" + _carried(made))


@comment.command("edit")
@click.argument("comment_id", metavar="COMMENT")
@click.argument("body", type=words, metavar="TEXT")
@guarded
@pass_invocation
def edit(invocation: Invocation, comment_id: str, body: str, revision: int | None, force: bool) -> None:
    """Edit a comment. While it waits, its run will be given the new words."""
    from wakeful import producers

    def statement(company: str, seen: int) -> Statement:
        return producers.edit_comment(company, comment_id, body, seen, force=force, actor=invocation.config.actor)

    _change(invocation, comment_id, revision, statement, "edited")


@comment.command("reorder")
@click.argument("queue", metavar="QUEUE")
@click.argument("comments", metavar="COMMENT…", nargs=-1, required=True)
@click.option("--revision", help="Only if the queue is still at this revision; else the present one.")
@click.option("--force", is_flag=True, help="As an operator, though it is somebody else's.")
@pass_invocation
def reorder(invocation: Invocation, queue: str, comments: tuple[str, ...], revision: str | None, force: bool) -> None:
    """Put the comments of a queue into another order: all of them, each once."""
    from wakeful import conversations, explain, producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        found = explain.find(conn, company, queue, "wake").id
        seen = revision or conversations.queue_revision(conn, company, found)
        statement = producers.reorder_comments(
            company, found, comments, seen, force=force, actor=invocation.config.actor
        )
        made = invocation.produce(conn, statement, company=company)
    invocation.say(f"queue {found}: {', '.join(comments)}{rendering.as_before(made)}")


@comment.command("discard")
@click.argument("comment_id", metavar="COMMENT")
@guarded
@pass_invocation
def discard(invocation: Invocation, comment_id: str, revision: int | None, force: bool) -> None:
    """Take a comment out of its queue; it stays on the issue. With the last one the wake ends, or its queued run."""
    from wakeful import producers

    def statement(company: str, seen: int) -> Statement:
        return producers.discard_comment(company, comment_id, seen, force=force, actor=invocation.config.actor)

    _change(invocation, comment_id, revision, statement, "taken out of its queue")


@comment.command("delete")
@click.argument("comment_id", metavar="COMMENT")
@guarded
@pass_invocation
def delete(invocation: Invocation, comment_id: str, revision: int | None, force: bool) -> None:
    """Delete a comment: it leaves its queue, and no run is given it any more."""
    from wakeful import producers

    def statement(company: str, seen: int) -> Statement:
        return producers.delete_comment(company, comment_id, seen, force=force, actor=invocation.config.actor)

    _change(invocation, comment_id, revision, statement, "deleted")


@comment.command("list")
@click.argument("issue", metavar="ISSUE")
@click.option("--queued", is_flag=True, help="What still waits to be given to a run, queue by queue.")
@click.option("--limit", type=int, default=50, show_default=True, help="Rows at most, 1 to 1000.")
@click.option("--after", metavar="COMMENT", help="Go on after this one.")
@pass_invocation
def list_(invocation: Invocation, issue: str, queued: bool, limit: int, after: str | None) -> None:
    """List the comments of an issue, oldest first; or its queues, with the revisions to compare by.

    Waiting: a run will be given it. Given: one was. Unassigned: it waits for the issue to have an agent. Saved: it
    stays on the issue, and no run is given it.
    """
    from wakeful import conversations, listings

    with invocation.connection() as conn:
        company = invocation.company(conn)
        listings.one(conn, "issues", company, issue)  # a mistyped id is told from an issue without words
        if queued:
            _show_queues(invocation, issue, conversations.queues(conn, company, issue))
            return
        page = conversations.comments(conn, company, issue, limit=limit, after=after)
    if invocation.json:
        rendering.emit_json({"rows": page.rows, "after": page.after})
        return
    headings = ["comment", "author", "state", "revision", "created", "text"]
    rendering.table(
        headings,
        [
            [row["id"], row["author"], _state(row), row["revision"], row["created_at"], _short(row["body"])]
            for row in page.rows
        ],
    )
    pages.more(page.after)


def _change(
    invocation: Invocation,
    comment_id: str,
    revision: int | None,
    statement: Callable[[str, int], Statement],
    done: str,
) -> None:
    from wakeful import conversations

    with invocation.connection() as conn:
        company = invocation.company(conn)
        seen = conversations.revision(conn, company, comment_id) if revision is None else revision
        made = invocation.produce(conn, statement(company, seen), company=company, comment=comment_id)
    if made.outcome == "existing":
        done = "as before"
    ended = f"; {invocation.noun('wake')} {made.wake} is {made.state}" if made.state == "cancelled" else ""
    invocation.say(f"comment {comment_id}: {done}{ended}")


def _show_queues(invocation: Invocation, issue: str, found: tuple[Mapping[str, Any], ...]) -> None:
    if invocation.json:
        rendering.emit_json({"queues": found})
        return
    if not found:
        click.echo(f"nothing waits on {invocation.noun('issue')} {rendering.printable(issue)}")
    for queue in found:
        carried = f", {invocation.noun('run')} {queue['run']}" if queue["run"] else ""
        click.echo(
            f"queue {queue['queue']} for {invocation.noun('agent')} {rendering.printable(queue['agent'])},"
            f" of {rendering.printable(queue['actor'])}: {queue['state']}{carried}, revision {queue['revision']}"
        )
        for one in queue["comments"]:
            words = rendering.printable(f"{one['id']} (revision {one['revision']}) {one['author']}")
            click.echo(f"  {words}: {_short(one['body'])}")


def _state(row: Mapping[str, Any]) -> str:
    if row["deleted_at"] is not None:
        return "deleted"
    if row["delivered"]:
        return "given"
    if row["awaits_assignee"]:
        return "unassigned"
    return "waiting" if row["queued"] else "saved"


def _short(body: str) -> str:
    line = body if len(body) <= SHOWN else body[: SHOWN - 1] + "…"
    return rendering.printable(line)


def _carried(made: ProducerResult) -> str:
    return f", run {made.run} is given it" if made.run else ""
