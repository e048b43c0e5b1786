"""torch.distributed.elastic.events: what launchers tell of themselves, by Python's logging (`--event-log-handler`)."""

from __future__ import annotations

import inspect
import logging
import os
import socket
import traceback

from flambeau.distributed.elastic.events.api import Event, EventMetadataValue, EventSource, NodeState, RdzvEvent
from flambeau.distributed.elastic.events.handlers import get_logging_handler

_loggers: dict[str, logging.Logger] = {}

__all__ = [
    "Event", "EventMetadataValue", "EventSource", "NodeState", "RdzvEvent", "construct_and_record_rdzv_event", "get_logging_handler", "record",
    "record_rdzv_event",
]  # fmt: skip


def _get_or_create_logger(destination: str = "null") -> logging.Logger:
    if destination not in _loggers:
        made = logging.getLogger(f"torchelastic-events-{destination}")
        made.setLevel(os.environ.get("LOGLEVEL", "INFO"))
        made.propagate = False
        made.addHandler(get_logging_handler(destination))
        _loggers[destination] = made
    return _loggers[destination]


def record(event: Event, destination: str = "null") -> None:
    """Tell an event."""
    _get_or_create_logger(destination).info(event.serialize())


def record_rdzv_event(event: RdzvEvent) -> None:
    """Tell what has happened while machines met."""
    _get_or_create_logger("dynamic_rendezvous").info(event.serialize())


def construct_and_record_rdzv_event(
    run_id: str, message: str, node_state: NodeState, name: str = "", hostname: str = "", pid: int | None = None, master_endpoint: str = "",
    local_id: int | None = None, rank: int | None = None,
) -> None:  # fmt: skip
    """Tell it with what is known here: the caller, the host, the process, and the error that is being handled where the machine has failed."""
    if isinstance(get_logging_handler("dynamic_rendezvous"), logging.NullHandler):
        return  # nobody listens
    if not name:
        caller = inspect.stack(0)[1]
        name = f"{os.path.basename(caller.filename)}:{caller.function}"
    trace = traceback.format_exc() if node_state == NodeState.FAILED else ""
    record_rdzv_event(
        RdzvEvent(name, run_id, message, hostname or socket.getfqdn(), os.getpid() if pid is None else pid, node_state, master_endpoint, rank, local_id, trace)
    )
