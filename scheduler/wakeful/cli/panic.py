"""``wakeful panic``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from wakeful.cli import rendering
from wakeful.cli.commands import command
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.cli.parameters import length

if TYPE_CHECKING:
    from psycopg import Connection

    from wakeful.connections import Session
    from wakeful.panics import LiveRuns

_BEAT = 0.25


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a panic did: trees that are gone, by what proves it, with their processes; and what still lives, by host.

    ``unowned`` says that no scheduler is at work, who alone could end what lives; None: one is.
    """

    company: str | None
    companies: int
    trees: int
    processes: int
    ended: Mapping[str, int]
    live: int
    survivors: int
    uncertain: int
    unanswered: tuple[str, ...]
    waited: timedelta
    unowned: str | None


@command()
@click.argument("one", metavar="COMPANY", required=False)
@click.option("--reason", help="Why, for whoever asks later.")
@click.option(
    "--wait", type=length, default="30s", show_default=True, metavar="TIME", help="How long to wait for the ends."
)
@pass_invocation
def panic(invocation: Invocation, one: str | None, reason: str | None, wait: timedelta) -> int:
    """Admit nothing more and stop every live run, of one company or of all; then report what still lives.

    Without COMPANY (or --company) it is the whole instance, whatever WAKEFUL_COMPANY says. `wakeful resume` lifts it.
    Exit code 1 when something still lives at the end.
    """
    named = invocation.flags.get("company")
    whose = one or (str(named) if named is not None else None)
    with invocation.session() as session:
        begun = time.monotonic()
        _stop(session, invocation, whose, reason)
        live = _live(session, whose)
        seen: LiveRuns | None = None
        while live.total and time.monotonic() - begun < wait.total_seconds():
            if live != seen and not invocation.json:
                click.echo(f"{live.total} still live, {live.uncertain} of them uncertain")
            seen = live
            time.sleep(_BEAT)
            if live.running:  # claimed while the panic was being committed
                _stop(session, invocation, whose, reason)
            live = _live(session, whose)
        outcome = _outcome(session, whose, timedelta(seconds=time.monotonic() - begun))
    _report(invocation, outcome)
    return 1 if outcome.live else 0


def _stop(session: Session, invocation: Invocation, company: str | None, reason: str | None) -> None:
    from wakeful import producers

    actor = invocation.config.actor
    with session.autocommit() as conn:
        if company is None:
            producers.run(conn, producers.set_setting("panic", True, actor=actor))
        for one in _companies(conn) if company is None else [company]:
            producers.run(conn, producers.panic_company(one, reason=reason, actor=actor))


def _companies(conn: Connection[Any]) -> list[str]:
    from wakeful import listings

    found: list[str] = []
    after = None
    while True:
        page = listings.page(conn, "companies", limit=listings.LONGEST_PAGE, after=after)
        found += [row["company"] for row in page.rows]
        if page.after is None:
            return found
        after = page.after


def _live(session: Session, company: str | None) -> LiveRuns:
    from wakeful import panics

    with session.autocommit() as conn:
        return panics.live_runs(conn, company)


def _outcome(session: Session, company: str | None, waited: timedelta) -> Outcome:
    from wakeful import explain, panics

    with session.autocommit() as conn:
        proof = panics.prove(conn, company)
        unowned = explain.brakes(conn).get("unowned")
        companies = 1 if company is not None else len(_companies(conn))
    return Outcome(
        company=company,
        companies=companies,
        trees=proof.trees,
        processes=proof.processes,
        ended=proof.ended,
        live=proof.survivors + proof.uncertain,
        survivors=proof.survivors,
        uncertain=proof.uncertain,
        unanswered=proof.unanswered,
        waited=waited,
        unowned=unowned,
    )


def _report(invocation: Invocation, outcome: Outcome) -> None:
    if invocation.json:
        rendering.emit_json(outcome)
        return
    whose = outcome.company or f"the whole instance ({outcome.companies})"
    ended = ", ".join(f"{count} {evidence}" for evidence, count in outcome.ended.items()) or "none"
    click.echo(rendering.printable(f"panic: {whose}: nothing is admitted until `wakeful resume`"))
    click.echo(
        rendering.printable(
            f"trees: {outcome.trees}, gone: {ended}; processes ended: {outcome.processes};"
            f" survivors: {outcome.survivors}; uncertain: {outcome.uncertain}"
        )
    )
    if outcome.live:
        click.echo(
            f"{outcome.live} still live after {rendering.length(outcome.waited)}, {outcome.uncertain} of them uncertain"
        )
    if outcome.live and outcome.unowned:
        click.echo(outcome.unowned)
    for host in outcome.unanswered:
        click.echo(rendering.printable(f"no scheduler answers on host {host}: start `wakeful up` there"))
