"""What a debugger or another trace function may do in the middle of a call.

A trace function (`sys.settrace`, or a callback of `sys.monitoring`) is called at any line, ours included, and prints variables, or evaluates what its
user types. In the middle of a call of the engine that must neither end the trace that is being recorded nor record into it. So the parts of the engine
that make something new run untraced (a debugger steps over them), and values that are looked at from anywhere else in our code are computed beside the
trace, as for a finalizer (finalizers.py).
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar, cast

from flambeau.python_code import GENERATED
from flambeau.trace.while_set import while_switched

Function = TypeVar("Function", bound=Callable[..., Any])

_ROOT: Final = Path(__file__).parent.parent
# Where a call may be half done: the generated functions, and these.
_ENGINE: Final = (
    GENERATED,
    *[
        str(_ROOT / name)
        for name in (
            "trace",
            "compiler",
            "runtime",
            "python_code.py",
            "upward.py",
            "ops/known_edge.py",
            "autograd/engine.py",
            "autograd/kept_stages.py",
            "autograd/kept_stage_code.py",
            "autograd/kept_class_stages.py",
        )
    ],
)


def untraced(function: Function) -> Function:
    """Decorator: no trace function sees the inside of the call."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        tracer = sys.gettrace()
        if tracer is not None:
            return while_switched(sys.settrace, tracer, None, function, *args, **kwargs)
        if _monitored():
            return while_switched(functools.partial(_pause, object()), False, True, function, *args, **kwargs)
        return function(*args, **kwargs)

    return cast(Function, call)


def in_a_trace_function() -> bool:
    """Whether this is called by a trace function that has interrupted the engine in the middle of something."""
    if sys.gettrace() is None and not _monitored():
        return False
    frame: FrameType | None = sys._getframe(1)
    inside = True  # in what has called us: our own code that looks at a value
    while frame is not None:
        ours = frame.f_code.co_filename.startswith(_ENGINE)
        if ours and not inside:
            return True
        inside = inside and (ours or frame.f_code.co_filename.startswith(str(_ROOT)))
        frame = frame.f_back
    return False


_MONITORING: Final[Any] = getattr(sys, "monitoring", None)  # 3.12 and later
_TOOLS: Final = range(0 if _MONITORING is None else 6)  # its identifiers: debuggers take number 0, but need not
_EVENTS: Final = [e for e in vars(_MONITORING.events).values() if isinstance(e, int) and e.bit_count() == 1] if _MONITORING is not None else []
_paused: Final[list[tuple[int, int, Any]]] = []  # (tool, event, callback)
_pausing: Final[set[object]] = set()  # the calls, of any thread, that want none of them
_lock: Final = threading.Lock()


def _monitored() -> bool:
    """Whether a debugger, or another tool, uses `sys.monitoring`."""
    return any(_MONITORING.get_tool(tool) is not None for tool in _TOOLS)


def _pause(call: object, on: bool) -> None:
    """Take the callbacks of all tools away while there are calls that want none: events without a callback cost little, where to set which events there
    are would rewrite all code."""
    with _lock:
        if on:
            if not _pausing:
                for tool in _TOOLS:
                    if _MONITORING.get_tool(tool) is not None:
                        for event in _EVENTS:
                            callback = _MONITORING.register_callback(tool, event, None)
                            if callback is not None:
                                _paused.append((tool, event, callback))
            _pausing.add(call)
        elif call in _pausing:
            _pausing.remove(call)
            if not _pausing:
                while _paused:
                    _MONITORING.register_callback(*_paused[-1])
                    _paused.pop()
