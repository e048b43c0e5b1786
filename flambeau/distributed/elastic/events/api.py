"""What is told: an event of a launcher or a worker, and one of a rendezvous."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

EventMetadataValue = str | int | float | bool | None


class EventSource(str, Enum):  # noqa: UP042  # its text is NodeState.RUNNING
    """Who tells."""

    AGENT = "AGENT"
    WORKER = "WORKER"


@dataclass
class Event:
    """Something that has happened to a launcher or a worker."""

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, EventMetadataValue] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | Event) -> Event:
        """An event of its JSON."""
        if isinstance(data, Event):
            return data
        found: dict[str, Any] = json.loads(data)
        return Event(**{**found, "source": EventSource[found["source"]]})

    def serialize(self) -> str:
        """Its JSON."""
        return json.dumps(asdict(self))


class NodeState(str, Enum):  # noqa: UP042  # its text is NodeState.RUNNING
    """How far a machine is."""

    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass
class RdzvEvent:
    """Something that has happened while machines met."""

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str = ""
    rank: int | None = None
    local_id: int | None = None
    error_trace: str = ""

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | RdzvEvent) -> RdzvEvent:
        """An event of its JSON."""
        if isinstance(data, RdzvEvent):
            return data
        found: dict[str, Any] = json.loads(data)
        return RdzvEvent(**{**found, "node_state": NodeState[found["node_state"]]})

    def serialize(self) -> str:
        """Its JSON."""
        return json.dumps(asdict(self))
