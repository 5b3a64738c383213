"""Claims: what an unfinished transaction leaves in the lease files it was working under.

A lease file is empty, and its length is looked at on every acquisition. While a transaction changes an
instance the file names the session at work, so that whoever gets the lease next must first prove that
session dead. Claims are not flushed: a kill keeps them, a power cut ends every session.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from wakeful_coordination.errors import CoordinationError
from wakeful_coordination.root import Root
from wakeful_coordination.session import Dead, Doubt, Liveness, liveness

_LIMIT = 512


@dataclass(frozen=True, slots=True)
class Claim:
    """The session at work on an instance, and its boot."""

    sid: str
    boot_id: str


def stake(root: Root, fd: int, inode: int) -> None:
    """Write this process's claim into a held lease."""
    root.claims.add(inode)
    root.files.write(fd, json.dumps([root.sid, root.machine.boot_id]).encode() + b"\n")


def clear(root: Root, fd: int, inode: int) -> None:
    """Empty a held lease: nothing is unfinished there."""
    root.files.truncate(fd)
    root.claims.discard(inode)


def claimant(root: Root, fd: int) -> Liveness | None:
    """Say whether the session that claimed a lease is proven dead; None where the claim is this process's own."""
    data = root.files.read(fd, _LIMIT)
    if not data.endswith(b"\n"):
        # One short write is never seen half done by the next holder, however its writer was killed.
        return Dead("its claim was torn by a power cut")
    try:
        sid, boot_id = json.loads(data)
        claim = Claim(str(sid), str(boot_id))
        return None if claim.sid == root.sid else liveness(root, claim.sid, claim.boot_id)
    except (ValueError, TypeError, CoordinationError) as error:
        return Doubt(f"its claim cannot be read ({error})")
