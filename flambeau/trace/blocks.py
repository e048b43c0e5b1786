"""Blocks (`with` statements) that end even if an interrupt arrives at the very call that ends them."""

from __future__ import annotations

import opcode
import sys
from threading import get_ident
from typing import Any

from flambeau.trace.while_set import surely


class Block:
    """A context manager: `_now()` says how something is, `_begin()` changes it, `_end(before)` changes it back.

    An interrupt (Ctrl-C, a signal's handler that raises) may come before the first line of `__exit__` has run. The statement then lets go of the
    manager, whose finalizer does what is left to do. A program that calls `__enter__` itself, and drops the manager, wants it to stay: only
    `with` statements are ended so.
    """

    gives_itself = True  # to `as`

    def __init__(self) -> None:
        self._before: list[Any] = []  # a stack: one manager may be entered again
        self._entered: Any = None  # where: code, place, thread

    def _now(self) -> Any:
        raise NotImplementedError

    def _begin(self) -> None:
        raise NotImplementedError

    def _end(self, before: Any) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        frame = sys._getframe(1)
        self._entered = frame.f_code, frame.f_lasti, get_ident()
        self._before.append(self._now())  # first: from here on the finalizer knows what to go back to
        try:
            self._begin()
            return self if self.gives_itself else None
        except BaseException:  # no `__exit__` will come
            Block.__exit__(self)
            raise

    def __exit__(self, *_: Any) -> None:
        try:
            surely(self._end, self._before[-1])
        except BaseException:  # an interrupt comes once; who keeps the exception keeps this manager, and its finalizer would wait
            surely(self._end, self._before[-1])
            self._before.pop()
            raise
        self._before.pop()

    def __del__(self) -> None:
        if getattr(self, "_before", None):
            code, place, thread = self._entered
            if thread == get_ident() and opcode.opname[code.co_code[place]] == "BEFORE_WITH":
                surely(self._end, self._before[0])
