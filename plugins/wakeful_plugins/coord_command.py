"""``wakeful coord``: what stands in the coordination roots of this host, and what an operator may do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from wakeful.cli import rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation

_MARKS = {"ok": "ok  ", "warning": "warn", "failed": "FAIL"}

named: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--root", "given", metavar="DIR", help="Which root; else WAKEFUL_COORD, else the company's, or the only one."
)


@noun()
def coord() -> None:
    """Look after agents' files: what is live, held, pending or in doubt, and what to do about it.

    A root belongs to one company on one host. Works with the database down, all but relay and drop.
    """


@coord.command("doctor")
@named
@pass_invocation
def doctor(invocation: Invocation, given: str | None) -> int:
    """Examine every root meant: sessions, transactions, leases, unfinished cleanups. Takes no lease.

    One line a finding, with its remedy. Exit code 1 when something is in doubt or damaged; a warning stops nothing.
    """
    from wakeful.errors import WakefulError
    from wakeful_plugins import coordination_root as place
    from wakeful_plugins.root_examination import OLDER, Finding, examine

    shown = []
    failed = False
    for path in place.roots(invocation.config, given):
        try:
            if place.holds_older_files(path):
                findings = [Finding("warning", "root", "no root yet: files of an earlier layout stand there", OLDER)]
            else:
                with place.opened(path) as root:
                    findings = [Finding("ok", "root", "can be opened"), *examine(root)]
        except WakefulError as error:
            findings = [Finding("failed", "root", error.message, error.hint)]
        failed = failed or any(one.verdict == "failed" for one in findings)
        shown.append({"root": path, "findings": findings})
        if not invocation.json:
            click.echo(rendering.printable(str(path)))
            for one in findings:
                remedy = f"; {one.remedy}" if one.remedy else ""
                click.echo(rendering.printable(f"{_MARKS[one.verdict]}  {one.subject}: {one.found}{remedy}"))
    if invocation.json:
        rendering.emit_json({"ok": not failed, "roots": shown})
    elif not shown:
        click.echo(rendering.printable(f"there is no coordination root below {invocation.config.data}"))
    return 1 if failed else 0


@coord.command("show")
@click.argument("name", metavar="[INSTANCE|TXID]", required=False)
@named
@pass_invocation
def show(invocation: Invocation, name: str | None, given: str | None) -> None:
    """Show one instance or transaction; without either, every instance and what is pending or set aside."""
    from wakeful_plugins import coordination_root as place
    from wakeful_plugins import root_view

    with place.opened(place.one_root(invocation.config, given)) as root:
        if name is None:
            everything = root_view.everything(root)
            if invocation.json:
                rendering.emit_json(everything)
                return
            rendering.table(["instance", "generation", "state"], everything["instances"])
            rendering.table(["transaction", "place", "type", "about"], everything["transactions"])
            return
        record = root_view.one(root, name)
    if invocation.json:
        rendering.emit_json(record)
    else:
        rendering.record(list(record.items()))


@coord.command("recover")
@click.option("--dead", "dead", metavar="SESSION", multiple=True, help="A session whose process you know is gone.")
@named
@pass_invocation
def recover(invocation: Invocation, dead: tuple[str, ...], given: str | None) -> int:
    """Bring every pending transaction to its end, and remove what dead processes left. May be repeated.

    Exit code 1 when some must be looked at by a person.
    """
    from wakeful_plugins import coordination_root as place

    with place.opened(place.one_root(invocation.config, given), dead_sessions=dead) as root:
        done = root.recover()
    return _told(invocation, done)


@coord.command("quarantine")
@click.argument("txid")
@click.option("--reason", required=True, help="Why; kept beside the transaction.")
@named
@pass_invocation
def quarantine(invocation: Invocation, txid: str, reason: str, given: str | None) -> None:
    """Set a pending transaction aside, unapplied. One that is committed already is refused."""
    from wakeful_plugins import coordination_root as place

    with place.opened(place.one_root(invocation.config, given)) as root:
        aside = root.quarantine.order(txid, reason)
    invocation.answer({"txid": txid, "reason": aside.reason}, f"transaction {txid} is set aside: {aside.reason}")


@coord.command("retry")
@click.argument("txid")
@named
@pass_invocation
def retry(invocation: Invocation, txid: str, given: str | None) -> None:
    """Make a transaction that was set aside pending again, if its generation still stands."""
    from wakeful_plugins import coordination_root as place

    with place.opened(place.one_root(invocation.config, given)) as root:
        root.quarantine.retry(txid)
    invocation.answer({"txid": txid, "state": "pending"}, f"transaction {txid} is pending again")


@coord.command("drop")
@click.argument("txid", metavar="EVENT")
@click.option("--reason", required=True, help="Why; kept in the company's audit.")
@click.option("--root", "given", metavar="DIR", help="Which root; else WAKEFUL_COORD, else the company's on this host.")
@pass_invocation
def drop(invocation: Invocation, txid: str, reason: str, given: str | None) -> None:
    """Let an event go that the database does not take: it is never recorded, and the audit says who dropped it.

    Its receipt stays. One that was set aside is no longer pending, and needs no dropping.
    """
    from wakeful_plugins import coordination_root as place
    from wakeful_plugins import event_relay

    with invocation.connection() as conn:
        company = invocation.company(conn)
        path = place.named_root(given) or place.company_root(invocation.config, company)
        with place.opened(path) as root:
            aside = event_relay.drop(root, conn, company, txid, reason, actor=invocation.config.actor)
    if aside is not None:
        invocation.answer({"event": txid, "quarantined": aside}, f"event {txid} was set aside instead: {aside}")
        return
    invocation.answer({"event": txid, "reason": reason}, f"event {txid} is dropped")


@coord.command("repair")
@click.argument("instance")
@named
@pass_invocation
def repair(invocation: Invocation, instance: str, given: str | None) -> None:
    """Put an instance's lease right and finish its cleanups. Its processes must be stopped: that is your word."""
    from wakeful_plugins import coordination_root as place

    with place.opened(place.one_root(invocation.config, given)) as root:
        done = root.repair.instance(instance)
    answer = {"instance": instance, "lease": done.lease, "cleanups": len(done.cleaned)}
    words = "its lease was put right" if done.lease else "its lease was right"
    invocation.answer(answer, f"instance {instance}: {words}; cleanups finished: {len(done.cleaned)}")


@coord.command("relay")
@click.option("--late", is_flag=True, help="Also record spend of runs that are over, which their end did not count.")
@click.option("--root", "given", metavar="DIR", help="Which root; else WAKEFUL_COORD, else the company's on this host.")
@pass_invocation
def relay(invocation: Invocation, late: bool, given: str | None) -> None:
    """Deliver pending events to the database, each once: one pass. What it cannot take yet stays, and is named."""
    from wakeful_plugins import coordination_root as place
    from wakeful_plugins import event_relay

    with invocation.connection() as conn:
        company = invocation.company(conn)
        chosen = place.named_root(given)
        path = chosen or place.company_root(invocation.config, company)
        if chosen is None and not path.exists():  # no run of the company was ever here
            invocation.answer({"delivered": [], "quarantined": [], "left": []}, "delivered: 0")
            return
        with place.opened(path) as root:
            done = event_relay.relay_once(root, conn, company, late=late)
    if invocation.json:
        rendering.emit_json({"delivered": done.committed, "quarantined": done.quarantined, "left": _left(done)})
        return
    invocation.say(f"delivered: {len(done.committed)}; set aside: {len(done.quarantined)}; left: {len(done.left)}")
    for txid, reason in done.left:
        invocation.say(f"left {txid}: {reason}")


def _told(invocation: Invocation, done: Any) -> int:
    if invocation.json:
        answer = {"committed": done.committed, "quarantined": done.quarantined, "sessions": done.sessions}
        rendering.emit_json({**answer, "left": _left(done)})
    else:
        invocation.say(
            f"applied: {len(done.committed)}; set aside: {len(done.quarantined)}; "
            f"dead sessions removed: {len(done.sessions)}; left: {len(done.left)}"
        )
        for txid, reason in done.left:
            invocation.say(f"left {txid}: {reason}")
    return 1 if done.left else 0


def _left(done: Any) -> list[dict[str, str]]:
    return [{"txid": txid, "reason": reason} for txid, reason in done.left]
