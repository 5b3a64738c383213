"""What an fsync is for: where, and which names or bytes it makes durable."""

from __future__ import annotations

#: The root in the model.
ROOT = "/root"

#: "file" or "directory", the kind of place, and the kinds of names concerned.
Flush = tuple[str, str, tuple[str, ...]]


def kind_of_place(path: str) -> str:
    """Return what a directory is for, without the ids in its path."""
    parts = path.removeprefix(ROOT).strip("/").split("/")
    if parts[0] == "outbox":
        return "/".join(parts[:2])
    return "instance" if parts[0] == "instances" and len(parts) == 3 else parts[0]


def kind_of(name: str) -> str:
    """Return what a name is for, without the ids in it."""
    if name.startswith(".tmp-"):
        rest = name.removeprefix(".tmp-")
        return f"new {kind_of(rest)}"
    if name in ("cache", "lease", "lease.keep", "pending", "generation.json", "recovered.json", "root.json"):
        return name
    for prefix in ("terminal", "held", "retained", "state", "end"):
        if name.startswith(prefix):
            return prefix
    return "reason" if name.endswith(".reason") else "record"


def purpose(flush: Flush) -> str | None:
    """Return which promise an fsync keeps; None for those that keep none.

    Not required: recovered.json (without it recovery runs again), the reason beside a quarantined record
    (it is for people), a retained cache (it would be found held, and retained again), and a directory in which
    nothing has changed.
    """
    kind, place, names = flush
    new = {name for name in names if not name.startswith("new ")}
    if kind == "file":
        content = names[0].removeprefix("new ") if names else ""
        return None if content in ("recovered.json", "reason", "root.json") else f"{place} {content} bytes"
    if place in ("", "root", "instances") or not names:
        return "instance name" if place == "instances" else None
    for name in ("record", "terminal", "generation.json", "state", "lease", "retained", "end"):
        if name in new:
            return None if name == "retained" else f"{place} {name} name"
    if new == {"cache", "held"}:
        return "cache set aside"
    return {frozenset({"held"}): "cache deleted", frozenset({"cache"}): "cache put back"}.get(frozenset(new))
