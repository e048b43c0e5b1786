"""Tracebacks without our own frames: they end in the program's call, as those of a function that is written in C do.

Public functions end in `except BaseException as error: shorten(error); raise`, which costs nothing where nothing is raised. A bare `raise` goes on with
the traceback that the exception has by then, so the frame that it stands in is not in it either (CPython 3.11 and later). Functions that are
written in Python and do not end so show their frames where the program catches the error; what nobody catches is shortened at the end (`install`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from flambeau.trace.place import is_ours
from flambeau.trace.wrong_calls import blame, internal, unexpected

AT_END: Final[list[Callable[[BaseException], None]]] = []  # what adds to the words of an error that nobody has caught, before it is shown
FULL: Final = [os.environ.get("FLAMBEAU_TRACEBACK", "") == "full"]  # flambeau.set_traceback


def shorten(error: BaseException) -> None:
    """Take our frames out of an exception's traceback, and out of those of the exceptions that led to it."""
    unexpected(error)  # while the frames are there to tell whose fault it is
    if FULL[0] or internal(error):  # frames of our own fault are wanted
        return
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        link.__traceback__ = _without_ours(link.__traceback__)
        link._shortened = True  # type: ignore[attr-defined]  # its traceback does not tell any more who raised it (trace/wrong_calls.py)
        link = link.__cause__ or link.__context__


def shorten_bare(error: BaseException) -> None:
    """The same of a call with nothing but its tensor: what Python raises in it is our own fault."""
    if unexpected(error):
        blame(error)
    shorten(error)


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    kept = []
    ours = False
    while traceback is not None:
        if is_ours(traceback.tb_frame.f_code.co_filename):
            ours = True
        else:
            kept.append(traceback)
        traceback = traceback.tb_next
    if not ours:
        return kept[0] if kept else None
    made: TracebackType | None = None
    for entry in reversed(kept):
        made = TracebackType(made, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return made


def install() -> None:
    """Shorten what nobody catches, which may come from public functions of any kind, before who is asked for it now shows it."""
    at_end, of_thread = sys.excepthook, threading.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        for add in AT_END:
            add(error)
        shorten(error)
        at_end(kind, error, traceback if FULL[0] else error.__traceback__)

    def thread_excepthook(given: Any) -> None:
        if given.exc_value is not None and not FULL[0]:
            shorten(given.exc_value)
            given = threading.ExceptHookArgs((given.exc_type, given.exc_value, given.exc_value.__traceback__, given.thread))
        of_thread(given)

    sys.excepthook, threading.excepthook = excepthook, thread_excepthook
