"""wakeful: a durable scheduler of deferred wakes for agent platforms."""

import pluggy

hookimpl = pluggy.HookimplMarker("wakeful")

__all__ = ["hookimpl"]
