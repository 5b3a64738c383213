"""What an operator should know of a coordination root: findings, each with what may be done about it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from wakeful_coordination import Coordination
    from wakeful_coordination.survey import Overview
    from wakeful_coordination.undelivered import Note

Verdict = Literal["ok", "warning", "failed"]
OLDER = "they hinder nothing; move them away once nobody needs them"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found; ``remedy`` says what an operator may do, if anything."""

    verdict: Verdict
    subject: str
    found: str
    remedy: str | None = None


def examine(root: Coordination) -> Iterator[Finding]:
    """Yield what is live, pending, set aside, held and in doubt. Takes no lease and changes nothing."""
    overview = root.survey.overview()
    yield from _sessions(root, overview)
    yield from _transactions(overview)
    yield from _instances(root)


def instances(path: Path) -> Iterator[Path]:
    """Yield the directories of all instances below a root, named by their ids. Never on a hot path."""
    for shelf in sorted((path / "instances").iterdir()):
        yield from sorted(shelf.iterdir())


def _sessions(root: Coordination, overview: Overview) -> Iterator[Finding]:
    from wakeful_coordination.session import Alive, Dead

    for sid, state in overview.sessions:
        if sid == root.root.sid:
            continue  # this command itself
        if isinstance(state, Alive):
            yield Finding("ok", f"session {sid}", f"alive: {state.who}")
        elif isinstance(state, Dead):
            yield Finding("ok", f"session {sid}", f"dead: {state.proof}", "wakeful coord recover removes its file")
        else:
            yield Finding(
                "failed",
                f"session {sid}",
                f"in doubt: {state.reason}",
                f"once you are sure that its process is gone: wakeful coord recover --dead {sid}",
            )


def _transactions(overview: Overview) -> Iterator[Finding]:
    for one in overview.pending:
        if one.note is not None:
            found = f"{one.type} of {', '.join(one.instances)} {_said(one.note)}"
            remedy = f"wakeful coord relay tries again; wakeful coord drop {one.txid} --reason TEXT lets it go"
            yield Finding("warning" if one.note.refused else "ok", f"pending {one.txid}", found, remedy)
        elif one.problem is None:
            whose = ", ".join(one.instances)
            remedy = "the scheduler of this host delivers it, or wakeful coord relay"
            yield Finding("ok", f"pending {one.txid}", f"{one.type} of {whose}", remedy)
        else:
            yield Finding(
                "warning", f"pending {one.txid}", one.problem, "wakeful coord recover sets aside what nobody can read"
            )
    for aside in overview.quarantined:
        remedy = f"if its generation still stands: wakeful coord retry {aside.txid}"
        yield Finding("warning", f"quarantined {aside.txid}", aside.reason, remedy)
    for stray in overview.strays:
        abandoned = stray.startswith(".tmp-")
        yield Finding(
            "ok" if abandoned else "warning",
            f"stray {stray}",
            "being written, or left by a writer that died" if abandoned else "no transaction",
            None if abandoned else "look at it; move it away",
        )
    for name in overview.foreign:
        yield Finding("warning", f"foreign {name}", "none of the root's files, perhaps of an earlier layout", OLDER)


def _said(note: Note) -> str:
    return f"is {'refused' if note.refused else 'not delivered yet'} since {note.at[:19]}: {note.reason}"


def _instances(root: Coordination) -> Iterator[Finding]:
    locked = set(re.findall(r" FLOCK .*:([0-9]+) ", Path("/proc/locks").read_text()))
    for home in instances(Path(root.root.path)):
        yield from _instance(root, home, locked)


def _instance(root: Coordination, home: Path, locked: set[str]) -> Iterator[Finding]:
    from wakeful_coordination import CoordinationError

    name = os.fsencode(home.name).decode(errors="backslashreplace")  # names may be any bytes; what is shown is text
    subject, repair = f"instance {name}", f"stop its processes, then: wakeful coord repair {name}"
    try:
        files = set(os.listdir(home))
        if "generation.json" not in files:
            return  # being made, or its maker died: nobody can work under it
        lease = os.stat(home / "lease", follow_symlinks=False)
    except OSError as error:
        yield Finding("failed", subject, f"its lease cannot be looked at: {error.strerror}", repair)
        return
    if lease.st_nlink < 2:
        yield Finding("failed", subject, "its lease was deleted or replaced", repair)
    if str(lease.st_ino) in locked:
        try:
            holders = root.survey.instance(name).holders
        except CoordinationError as error:
            yield Finding("failed", subject, error.message, error.hint)
            return
        if holders:
            pids = ", ".join(map(str, holders))
            yield Finding("ok", subject, f"held by pid {pids}", "wait, or end that process: its death frees the lease")
    elif "pending" in files or lease.st_size:
        yield Finding(
            "warning",
            subject,
            "a transaction at work was left unfinished",
            "wakeful coord recover brings it to its end",
        )
    if any(one.startswith("held-") for one in files):
        yield Finding("warning", subject, "a cleanup of its cache is unfinished", f"wakeful coord repair {name}")
    for one in sorted(files):
        if one.startswith("retained-"):
            yield Finding("warning", subject, f"evidence was kept: {one}", "look at it; delete it when you like")
