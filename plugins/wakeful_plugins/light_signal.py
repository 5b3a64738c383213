"""The part of the signal module that a runner needs, without the enums around it.

They cost 5 ms at every start of a runner, a fifth of what it may take. Numbers and functions are the same.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import would cost even more

if TYPE_CHECKING:
    from signal import *  # noqa: F403 - all of it, for the type checker
else:
    from _signal import *  # noqa: F403 - whatever this system has of it
