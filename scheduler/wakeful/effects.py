"""The two handles for outside effects. Confusing them pays twice.

The *token* is for refusal: it changes with each generation, and an outside system that remembers the highest
refuses the stale one. The *effect key* is for idempotency: it stays the same across attempts, generations and
re-arms of one logical wake.
"""

from __future__ import annotations

from uuid import UUID


def token(epoch: int, run: UUID, generation: int) -> str:
    """Return the fencing token ``<epoch>.<run>.<generation>``."""
    return f"{epoch}.{run}.{generation}"


def effect_key(effect_root: UUID | str, name: str) -> str:
    """Return the idempotency key of one named outside effect of a logical wake.

    Arguments:
        effect_root: the first wake of the re-arm chain (``wake.effect_root`` in ``input.json``).
        name: which effect, in the agent's own words; 1 to 200 characters without a colon.

    Raises:
        InvalidInput: ``name`` is none of these.
        ValueError: ``effect_root`` is no UUID.
    """
    if not 1 <= len(name) <= 200 or ":" in name:
        from wakeful.errors import InvalidInput

        raise InvalidInput(f"{name!r:.250} is no name of an effect", hint="give 1 to 200 characters without a colon")
    return f"{UUID(str(effect_root))}:{name}"
