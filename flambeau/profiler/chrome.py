"""Events as a trace in Chrome's format (the Trace Event Format document of the Chromium project), which Perfetto reads too."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from typing import Any

from flambeau.profiler.events import FunctionEvent
from flambeau.runtime import whole_files

_CATEGORY = {"range": "user_annotation", "plan": "cpu_op", "kernel": "kernel", "compile": "compile", "communication": "cpu_op"}


def trace_events(events: Iterable[FunctionEvent]) -> list[dict[str, Any]]:
    """Complete events ("X", microseconds), and names ("M") of the process and its threads."""
    pid = os.getpid()
    found: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "flambeau"}}]
    threads: dict[int, None] = {}
    for e in events:
        threads[e.thread] = None
        arguments: dict[str, Any] = {"id": e.id}
        if e.note:
            arguments["ended with" if e.kind == "plan" else "made"] = e.note
        if e.recorded:
            arguments["recorded calls"] = dict(e.recorded)
        if e.kind == "kernel":
            arguments |= {
                "bytes": e.bytes, "operations": e.flops, "floor us": round(e.floor_us, 3), "share of floor": round(e.share, 4),
                "recorded as": list(e.sources), "tasks": e.tasks, "phase": e.phase, "key": e.key_text,
            }  # fmt: skip
            if e.owner is not None:
                arguments["recorded in"] = e.owner.trace_name
        if e.input_shapes:
            arguments |= {"Input Dims": e.input_shapes, "Input type": e.input_dtypes}
        if e.stack:
            arguments["Call stack"] = ";".join(e.stack)
        found.append({
            "ph": "X", "cat": _CATEGORY[e.kind], "name": e.trace_name, "pid": pid, "tid": e.thread, "ts": round(e.time_range.start, 3),
            "dur": round(max(e.time_range.elapsed_us(), 0.0), 3), "args": arguments,
        })  # fmt: skip
        if e.memory and e.kind == "plan":
            found.append({
                "ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": pid, "tid": e.thread,
                "ts": round(e.time_range.start, 3), "args": {"Bytes": e.memory, "Device Type": 0, "Device Id": -1},
            })  # fmt: skip
    for number, thread in enumerate(threads):
        found.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": thread, "ts": 0, "args": {"name": f"thread {number}"}})
    return found


def write_trace(path: str, events: Iterable[FunctionEvent], metadata: dict[str, Any]) -> None:
    """One JSON file; compressed if its name ends with .gz."""
    content = {"schemaVersion": 1, "displayTimeUnit": "ms", **metadata, "traceName": os.fspath(path), "traceEvents": trace_events(events)}
    text = json.dumps(content, allow_nan=False)
    packed = gzip.compress(text.encode()) if os.fspath(path).endswith(".gz") else text.encode()
    with whole_files.replacing(path) as file:
        file.write(packed)
