"""Where events go: "console" to standard error, "null" nowhere, and what a program puts into the table."""

from __future__ import annotations

import logging

_log_handlers: dict[str, logging.Handler] = {
    "console": logging.StreamHandler(), "dynamic_rendezvous": logging.NullHandler(), "null": logging.NullHandler(),
}  # fmt: skip


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """The handler of this name; KeyError if there is none."""
    return _log_handlers[destination]
