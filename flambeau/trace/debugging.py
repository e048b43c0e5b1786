"""What a debugger or another trace function may do in the middle of a call.

A trace function (`sys.settrace`) is called at any line, ours included, and prints variables, or evaluates what its user types. In the middle of a call
of the engine that must neither end the trace that is being recorded nor record into it. So the parts of the engine that make something new
run untraced (a debugger steps over them), and values that are looked at from anywhere else in our code are computed beside the trace, as for a
finalizer (finalizers.py).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar, cast

from flambeau.trace.while_set import while_switched

Function = TypeVar("Function", bound=Callable[..., Any])

_ROOT: Final = Path(__file__).parent.parent
# Where a call may be half done: the generated functions, and these.
_ENGINE: Final = ("<flambeau operation", "<immediate call>", "<plan>", *[str(_ROOT / name) for name in ("trace", "compiler", "runtime", "autograd/engine.py")])


def untraced(function: Function) -> Function:
    """Decorator: no trace function sees the inside of the call."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        tracer = sys.gettrace()
        if tracer is None:
            return function(*args, **kwargs)
        return while_switched(sys.settrace, tracer, None, function, *args, **kwargs)

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


def _monitored() -> bool:
    """Whether a debugger uses `sys.monitoring` (3.12 and later) instead."""
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
