"""``wakeful card``."""

from __future__ import annotations

from typing import Any

import click

from wakeful.cli import pages, rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.parameters import json_value


@noun()
def card() -> None:
    """Ask, answer, withdraw or list cards: questions of agents, whose answers wake them."""


@card.command("create")
@click.argument("issue", metavar="ISSUE")
@click.argument("agent", metavar="AGENT")
@click.argument("question", type=json_value, metavar="JSON")
@click.option("--id", "card_id", metavar="ID", help="Your own id; else one is made.")
@click.option("--run", "run_id", metavar="RUN", help="The run that asks, if one does.")
@click.option("--kind", help="Your own word for how it is shown; else question.")
@click.option("--supersedes", metavar="CARD", help="A pending card of the issue that it takes the place of.")
@pass_invocation
def create(
    invocation: Invocation,
    issue: str,
    agent: str,
    question: Any,
    card_id: str | None,
    run_id: str | None,
    kind: str | None,
    supersedes: str | None,
) -> None:
    """Save a question of an agent. JSON may be @FILE, or @- for standard input."""
    from wakeful import explain, producers
    from wakeful.cli.parameters import fresh_id

    actor = invocation.config.actor
    chosen = card_id or fresh_id()
    with invocation.connection() as conn:
        company = invocation.company(conn)
        run = explain.find(conn, company, run_id, "run").id if run_id else None
        statement = producers.create_card(
            company, issue, agent, question, id=chosen, run=run, kind=kind, supersedes=supersedes, actor=actor
        )
        made = invocation.produce(conn, statement, company=company, card=chosen)
    invocation.say(f"card {chosen} is {made.state}{rendering.as_before(made)}")


@card.command("answer")
@click.argument("card_id", metavar="CARD")
@click.argument("answer", type=json_value, metavar="JSON", required=False)
@click.option("--accept", "status", flag_value="accepted", help="Yes.")
@click.option("--reject", "status", flag_value="rejected", help="No.")
@pass_invocation
def answer_(invocation: Invocation, card_id: str, answer: Any, status: str | None) -> None:
    """Answer a card: its agent is woken, in your name. The same answer again changes nothing."""
    from wakeful import producers

    if answer is None and status is None:
        raise click.UsageError("say what the answer is: JSON, --accept or --reject")
    with invocation.connection() as conn:
        company = invocation.company(conn)
        given = ... if answer is None else answer
        statement = producers.answer_card(company, card_id, given, status=status, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, card=card_id)
    how = "saved" if made.outcome == "inserted" else "exists already"
    invocation.say(f"{invocation.noun('wake')} {made.wake} {how}" + (f", run {made.run}" if made.run else ""))


@card.command("withdraw")
@click.argument("card_id", metavar="CARD")
@pass_invocation
def withdraw(invocation: Invocation, card_id: str) -> None:
    """Take a card back, with an answer that still waits for its run."""
    from wakeful import producers

    with invocation.connection() as conn:
        company = invocation.company(conn)
        statement = producers.withdraw_card(company, card_id, actor=invocation.config.actor)
        made = invocation.produce(conn, statement, company=company, card=card_id)
    invocation.say(f"card {card_id} is withdrawn{rendering.as_before(made)}")


@card.command("list")
@click.argument("issue", metavar="ISSUE")
@click.option("--limit", type=int, default=50, show_default=True, help="Rows at most, 1 to 1000.")
@click.option("--after", metavar="CARD", help="Go on after this one.")
@pass_invocation
def list_(invocation: Invocation, issue: str, limit: int, after: str | None) -> None:
    """List the cards of an issue, oldest first."""
    from wakeful import conversations, listings

    with invocation.connection() as conn:
        company = invocation.company(conn)
        listings.one(conn, "issues", company, issue)  # a mistyped id is told from an issue without cards
        page = conversations.cards(conn, company, issue, limit=limit, after=after)
    if invocation.json:
        rendering.emit_json({"rows": page.rows, "after": page.after})
        return
    headings = ["card", "state", invocation.noun("agent"), "question", "answer", "answered by", "created"]
    columns = ("id", "state", "agent", "question", "answer", "answered_by", "created_at")
    rendering.table(headings, [[row[name] for name in columns] for row in page.rows])
    pages.more(page.after)
