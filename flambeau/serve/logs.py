"""Structured logs: one JSON object a line, with what happened and the request's id."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class JsonFormatter(logging.Formatter):
    """Records as JSON; `extra={"fields": {...}}` adds keys."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"), "level": record.levelname.lower(),
            "event": record.getMessage(), "process": record.process,
        }  # fmt: skip
        found.update(getattr(record, "fields", {}))
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


def start(stream: Any = None) -> logging.Handler:
    """Write the server's logs to a stream (stderr)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("flambeau.serve")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    return handler
