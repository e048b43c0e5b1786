"""Which line of the user's program is being executed."""

from __future__ import annotations

import os
import sys
import threading

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_line() -> str:
    """`file:line` of the innermost call that is not flambeau's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def where() -> str:
    """`file:line in function` of the user's program in the main thread: the innermost call that is not flambeau's own."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_back is not None and (frame.f_code.co_filename.startswith(_OWN) or _is_library(frame.f_code.co_filename)):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _is_library(path: str) -> bool:
    """Whether a file is Python's own (a lock, a queue): what the user has called it from says more."""
    return path.startswith((_LIBRARY, "<frozen")) and "site-packages" not in path


_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
