"""What the engine keeps for long is not walked by the garbage collector.

A program that meets something new at every step makes records by the million: states of the trie, nodes and values of graphs, kernels' words. A full
collection walks every object that it tracks (1.9 s for 2.9 million of them, measured in a learner with episodes of new lengths), although these never become
garbage by themselves. So records are taken out of the collector's lists. Reference counts still free them. What they refer to stays alive for
the collector as if it were referred to from C, so nothing is freed too early; a cycle among records alone would never be freed, so who
forgets states cuts their cycles (trace/forgetting.py).
"""

from __future__ import annotations

import ctypes
import gc
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

_untrack: Final = ctypes.pythonapi.PyObject_GC_UnTrack  # C API, "Supporting Cyclic Garbage Collection": of what is tracked only
_untrack.argtypes, _untrack.restype = [ctypes.py_object], None

_RECORDS: Final[set[type]] = {tuple, list, frozenset, partial}


def record(cls: Any) -> Any:
    """Decorate a class whose instances belong to the engine, live long, and are in no cycle that nobody cuts."""
    _RECORDS.add(cls)
    return cls


# A builtin of a list, see runtime/native_calls.py: its block is the addresses of the two functions, and of what makes the result.
FUNCTIONS: Final = ("PyObject_GC_IsTracked", "PyObject_GC_UnTrack", "PyLong_FromLongLong")
TEXT: Final = """
define ptr @$NAME(ptr %self, ptr %args, i64 %given) #0 {
entry:
  %block = getelementptr i8, ptr %self, i64 $BYTES
  %is_tracked = load ptr, ptr %block
  %p1 = getelementptr i64, ptr %block, i64 1
  %untrack = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %block, i64 2
  %number = load ptr, ptr %p2
  %list = load ptr, ptr %args
  %sp = getelementptr i8, ptr %list, i64 16
  %count = load i64, ptr %sp
  %ip = getelementptr i8, ptr %list, i64 24
  %items = load ptr, ptr %ip
  %none = icmp eq i64 %count, 0
  br i1 %none, label %end, label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %next]
  %at = getelementptr ptr, ptr %items, i64 %i
  %x = load ptr, ptr %at
  %t = call i32 %is_tracked(ptr %x)
  %yes = icmp ne i32 %t, 0
  br i1 %yes, label %take, label %next
take:
  call void %untrack(ptr %x)
  br label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  %result = call ptr %number(i64 0)
  ret ptr %result
}
attributes #0 = { nounwind }
"""
native: list[Any] = [None]  # that builtin, once it is there (ops/known_edge.py)


def untrack_all(objects: Iterable[Any]) -> bool:
    """Take just these out of the garbage collector's lists. Anything may be among them. A dictionary is tracked again when something is put into it.
    False: for want of stack some stay where they are."""
    if native[0] is not None:
        native[0](list(objects))
        return True
    try:
        deque(map(_untrack, filter(gc.is_tracked, objects)), maxlen=0)
    except ctypes.ArgumentError:
        return False
    return True


def keep(*roots: Any) -> None:
    """Take records, and the records that they refer to, out of the garbage collector's lists. Others are left as they are."""
    pending: Sequence[Any] = roots
    tracked, records = gc.is_tracked, _RECORDS
    while pending:
        fresh = [x for x in pending if type(x) in records and tracked(x)]
        if not untrack_all(fresh):
            return  # what stays tracked would be met again and again
        pending = gc.get_referents(*fresh)
