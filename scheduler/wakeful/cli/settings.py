"""``wakeful settings``: what holds for the whole instance, all companies and hosts."""

from __future__ import annotations

import click

from wakeful.cli import rendering
from wakeful.cli.commands import noun
from wakeful.cli.invocation import Invocation, pass_invocation
from wakeful.errors import InvalidInput

# Every setting with its default and what it does.
KNOWN: tuple[tuple[str, bool | int, str], ...] = (
    ("circuit_ends", 5, "equal ends in a row that open an agent's circuit: nothing of it runs"),
    ("create_companies", False, "the first mention of a company creates it"),
    ("dedup_days", 7, "days for which an idempotency key answers with its wake"),
    ("draining", False, "save, but admit nothing"),
    ("owners_enabled", True, "owners look at wakes"),
    ("panic", False, "nothing runs (see wakeful panic)"),
    ("ramp_doubles", 10, "seconds after which a reopened account's start rate doubles, again and again"),
    ("ramp_starts", 1, "starts per second of a provider's account that has just reopened"),
    ("retention_days", 30, "days for which ended wakes and runs are kept"),
    ("scheduler_enabled", True, "schedulers work at all"),
)


@noun(invoke_without_command=True)
@click.pass_context
def settings(context: click.Context) -> None:
    """Show or change the settings of the whole instance. Alone, it lists them."""
    if context.invoked_subcommand is None:
        context.invoke(list_)


@settings.command("list")
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List all settings, also those that were never changed."""
    from wakeful import listings

    with invocation.connection() as conn:
        if invocation.config.company is not None:
            invocation.company(conn)  # a viewer's login sees settings only from within a company
        changed = {row["name"]: row for row in listings.page(conn, "settings", limit=listings.LONGEST_PAGE).rows}
    rows = [
        {
            "name": name,
            "value": changed[name]["value"] if name in changed else default,
            "default": default,
            "changed_at": changed[name]["changed_at"] if name in changed else None,
            "changed_by": changed[name]["changed_by"] if name in changed else None,
            "meaning": meaning,
        }
        for name, default, meaning in KNOWN
    ]
    if invocation.json:
        rendering.emit_json({"rows": rows, "after": None})
        return
    cells = [
        [row["name"], rendering.json_text(row["value"]), row["changed_at"], row["changed_by"], row["meaning"]]
        for row in rows
    ]
    rendering.table(["setting", "value", "changed", "by", "meaning"], cells)


@settings.command("set")
@click.argument("name", metavar="NAME")
@click.argument("value", metavar="VALUE")
@pass_invocation
def set_(invocation: Invocation, name: str, value: str) -> None:
    """Change one setting: true or false, or a whole number."""
    from wakeful import producers

    with invocation.connection() as conn:
        statement = producers.set_setting(name, _value(name, value), actor=invocation.config.actor)
        made = invocation.produce(conn, statement, setting=name)
    invocation.say(f"{name} = {made.state}: {made.outcome}")


def _value(name: str, given: str) -> bool | int:
    known = {setting: default for setting, default, _ in KNOWN}
    if name not in known:
        raise InvalidInput(f"there is no setting {name!r}", hint=f"known: {', '.join(known)}")
    if isinstance(known[name], bool):
        if given not in ("true", "false"):
            raise InvalidInput(f"{name} is true or false, not {given!r}")
        return given == "true"
    if not given.isascii() or not given.isdigit() or len(given) > 5:
        raise InvalidInput(f"{name} is a whole number from 1 to 99999, not {given!r}")
    return int(given)
