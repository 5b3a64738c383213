"""File-backed coordination of agents' sessions on one host: exclusive, generation-bound, crash-safe."""

from wakeful_coordination.authority import Committed
from wakeful_coordination.coordination import Coordination
from wakeful_coordination.ending import AgentEnd, Ended
from wakeful_coordination.errors import CoordinationError
from wakeful_coordination.event import Event
from wakeful_coordination.generation import Generation
from wakeful_coordination.held_cache import Cleaned
from wakeful_coordination.outbox import Prepared
from wakeful_coordination.quarantine import Quarantined
from wakeful_coordination.terminal import Terminal
from wakeful_coordination.transaction import Mutation, Transaction

__all__ = [
    "AgentEnd",
    "Cleaned",
    "Committed",
    "Coordination",
    "CoordinationError",
    "Ended",
    "Event",
    "Generation",
    "Mutation",
    "Prepared",
    "Quarantined",
    "Terminal",
    "Transaction",
]
