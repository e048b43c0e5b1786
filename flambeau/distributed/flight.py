"""A flight recorder: which collectives a rank has done, and where in the program it is, for the message of a timeout and for files.

TORCH_FR_BUFFER_SIZE (or TORCH_NCCL_TRACE_BUFFER_SIZE) is how many collectives are kept; at a timeout they are written to a file for each rank,
TORCH_FR_DUMP_TEMP_FILE (or TORCH_NCCL_DEBUG_INFO_TEMP_FILE, /tmp/nccl_trace_rank_) and the rank's number, unless TORCH_FR_DUMP_ON_TIMEOUT is 0. With it, or
with TORCH_DISTRIBUTED_DEBUG=INFO, a thread of each rank answers who asks where it is.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from flambeau.distributed.blame import user_line, where

_ASK_EVERY: Final = 0.05  # seconds
_VERSION: Final = "2.10"  # of the format, as PyTorch's analysers read it


def _setting(*names: str, default: str = "") -> str:
    return next((os.environ[name] for name in names if name in os.environ), default)


def buffer_size() -> int:
    """How many collectives are kept; 0: none."""
    text = _setting("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", default="0")
    try:
        return max(0, int(text))
    except ValueError:
        raise ValueError(f"TORCH_FR_BUFFER_SIZE must be a number of collectives, got {text!r}") from None


def answers() -> bool:
    """Whether a rank tells others where it is."""
    from flambeau.distributed.debug import DebugLevel, get_debug_level

    return get_debug_level() is not DebugLevel.OFF or buffer_size() > 0


class Recorder:
    """The last collectives of this process, oldest first."""

    def __init__(self, size: int) -> None:
        self.entries: deque[dict[str, Any]] = deque(maxlen=size)
        self._open: dict[str, dict[str, Any]] = {}  # by group
        self._count = 0
        self._lock = threading.Lock()

    def begin(self, group: str, ranks: list[int], number: int, what: str) -> None:
        """A collective of a group begins."""
        now = time.time_ns()
        with self._lock:
            entry = {
                "record_id": self._count, "pg_id": 0, "process_group": (group, "default_pg" if group == "0" else ""), "collective_seq_id": number,
                "p2p_seq_id": 0, "op_id": number, "profiling_name": f"gloo:{what.split('(')[0].split(' ')[0]}", "what": what, "ranks": ranks,
                "time_created_ns": now, "time_discovered_started_ns": now, "time_discovered_completed_ns": None, "state": "started", "is_p2p": False,
                "frames": [_frame(user_line())],
            }  # fmt: skip
            self._count += 1
            self.entries.append(entry)
            self._open[group] = entry

    def ends(self, group: str, run: Callable[[], None]) -> None:
        """Do what a group's collective is, and note when it has ended."""
        run()
        entry = self._open.pop(group, None)
        if entry is not None:
            entry["state"], entry["time_discovered_completed_ns"] = "completed", time.time_ns()

    def dump(self) -> dict[str, Any]:
        """What is kept, in PyTorch's format."""
        with self._lock:
            entries = [dict(entry) for entry in self.entries]
        groups = {entry["process_group"][0]: entry["ranks"] for entry in entries}
        last: dict[str, dict[str, int]] = {}
        for entry in entries:
            nothing = dict.fromkeys(("last_enqueued_collective", "last_started_collective", "last_completed_collective"), -1)
            status = last.setdefault(entry["process_group"][0], nothing)
            status["last_enqueued_collective"] = status["last_started_collective"] = entry["collective_seq_id"]
            if entry["state"] == "completed":
                status["last_completed_collective"] = entry["collective_seq_id"]
        config = {name: {"name": name, "desc": "default_pg" if name == "0" else "", "ranks": str(ranks)} for name, ranks in groups.items()}
        return {"version": _VERSION, "pg_config": config, "pg_status": last, "entries": entries, "stack": where()}


RECORDER: Recorder | None = Recorder(buffer_size()) if buffer_size() else None


def _frame(line: str) -> dict[str, Any]:
    name, _, number = line.rpartition(":")
    return {"name": "", "filename": name, "line": int(number)}


def dump_to_file(rank: int) -> str | None:
    """Write what is kept where TORCH_FR_DUMP_TEMP_FILE says; the file's path, None if nothing is to be written."""
    if RECORDER is None or _setting("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT", default="1") in ("0", "false"):
        return None
    path = _setting("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", default="/tmp/nccl_trace_rank_") + str(rank)
    with suppress(OSError):
        with open(path, "wb") as file:
            pickle.dump(RECORDER.dump(), file)
        return path
    return None


class Answers:
    """A thread that writes where this rank is when another asks: `asked`, `told` are addresses of numbers, `text` of `room` bytes."""

    def __init__(self, rank: int, asked: int, told: int, text: int, room: int, keeps: Any) -> None:
        self._rank, self._asked, self._told = rank, ctypes.c_int64.from_address(asked), ctypes.c_int64.from_address(told)
        self._text, self._room, self._keeps = text, room, keeps
        self.stopped = threading.Event()
        threading.Thread(target=_answer, args=(weakref.ref(self), self.stopped), name="flambeau flight recorder", daemon=True).start()

    def look(self) -> None:
        """Answer if somebody has asked."""
        asked = self._asked.value
        if asked != self._told.value:
            write_text(self._text, self._room, where())
            self._told.value = asked
            dump_to_file(self._rank)


def _answer(reference: weakref.ref[Answers], stopped: threading.Event) -> None:
    while not stopped.wait(_ASK_EVERY):
        own = reference()
        if own is None or stopped.is_set():
            return
        own.look()
        del own


def write_text(address: int, room: int, text: str) -> None:
    """A text with its length in front."""
    content = text.encode(errors="replace")[: room - 8]
    ctypes.memmove(address + 8, content, len(content))
    ctypes.c_int64.from_address(address).value = len(content)


def read_text(address: int) -> str:
    """What write_text has written."""
    return ctypes.string_at(address + 8, ctypes.c_int64.from_address(address).value).decode(errors="replace")


def state_of(process: int) -> str:
    """What the kernel says of a process, where that explains why it does not come."""
    try:
        with open(f"/proc/{process}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return {"T": "stopped (SIGSTOP)", "t": "stopped by a debugger", "D": "waiting for a disk or file system"}.get(state, "")
