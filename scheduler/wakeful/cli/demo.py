"""``wakeful demo``: the main job, end to end, on real processes and a real database, in under a minute."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from wakeful.cli.commands import command
from wakeful.cli.invocation import pass_invocation

if TYPE_CHECKING:
    from collections.abc import Callable

    from wakeful.cli.invocation import Invocation


@command()
@pass_invocation
def demo(invocation: Invocation) -> int:
    """Show the main job: saved, silent, woken once, adopted after a kill.

    Uses a database of its own, on the named server or an embedded one, and drops it. With --json:
    one object, every number read back from rows, server statistics and files. Exit code 0 only if all holds.
    """
    from wakeful.cli import rendering
    from wakeful.cli.demo_story import perform, stage

    say = (lambda kind, words: None) if invocation.json else _narrator()
    with stage(invocation.config, say) as play:
        figures = perform(play)
    if invocation.json:
        rendering.emit_json({name: value for name, value in figures.items() if name != "timeline"})
    else:
        _sum_up(figures)
    return 0 if figures["ok"] else 1


def _narrator() -> Callable[[str, str], None]:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    begun = time.monotonic()

    def say(kind: str, words: str) -> None:
        at = f"{time.monotonic() - begun:5.1f} s  "
        if kind == "scene":
            console.print()
            console.print(Text(at + words, style="bold"))
        elif kind == "command":
            console.print(Text("         $ " + words, style="cyan"))
        else:
            console.print(Text("         → " + words, style="green"))

    return say


def _sum_up(figures: dict[str, object]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title="Read back from rows, server statistics and files", title_justify="left", show_header=False)
    for name, value in figures.items():
        if name not in ("timeline", "stdout_tail", "ok"):
            table.add_row(
                name.replace("_", " "), ", ".join(map(str, value.values())) if isinstance(value, dict) else str(value)
            )
    console.print()
    console.print(table)
    console.print("What the agent printed, as saved:", style="bold")
    console.print(str(figures["stdout_tail"]).rstrip(), markup=False)
    console.print("All of it holds." if figures["ok"] else "Something does not hold.", style="bold")
