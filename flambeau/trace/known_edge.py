"""A known edge in native code: what the generated wrappers (ops/wrapper.py) do for a call whose edge leads to one plain result, at a fifth of the time.

A State remembers in `next` the edge that was last taken from it. The builtin of an operation compares the call with that edge: the same
operation, tensors whose slots are those of the key, everything else the very objects of the key. If they agree it moves the trace on and
gives a new tensor; else None, and the wrapper goes its usual way, so nothing is ever decided here that the look-up would decide otherwise.
Likewise, at a root that has learned calls, the one that the operation made last (immediate.py). The code is in edge_code.py.

The IR knows these objects by the offsets of their `__slots__` (Tensor, Trace, State), read from the member descriptors; the interpreter's
structures are those of runtime/native_calls.py. The trace is the one of the main thread, found by the thread pointer and in that thread's
dictionary of `local`; other threads, and whatever else stands in for the trace there (Fragment, Level), go the usual way.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from typing import Any, Final

from flambeau import dtypes
from flambeau.ops.registry import Operation
from flambeau.runtime import jit, memory, native_calls, threads
from flambeau.runtime.buffers import Buffer
from flambeau.statistics import Counters, counters
from flambeau.trace import recorder
from flambeau.trace.edge_code import ALIVE, EDGE, FUNCTIONS, TABLE, THREAD, expand
from flambeau.trace.immediate import Immediate
from flambeau.trace.recorder import Trace, local
from flambeau.trace.state import State
from flambeau.trace.storage import Storage

MOST_ARGUMENTS: Final = 8
# How an argument of each kind may agree with its part of the key: only the same object (0), a tensor by its slot (1), a tensor or a number
# that is data or stands in the key (2), a tensor or a number that stands in the key (4), a number that stands in the key (5), or is data (6).
_CODES: Final = {"static": 0, "tensor": 1, "tensor?": 1, "operand": 2, "operand?": 2, "exponent": 4, "number": 5}
_TP_NEW: Final = 65  # Py_tp_new of the stable ABI's typeslots.h

_held: Final[list[Any]] = []  # what native code has the addresses of


def offset_of(cls: type, name: str) -> int:
    """Where an object of the class has the reference of one of its `__slots__`."""
    descriptor = vars(cls)[name]
    # PyMemberDescrObject: object (16 bytes), type, name, qualified name, PyMemberDef: name, type, offset.
    member = ctypes.c_void_p.from_address(id(descriptor) + 40).value
    assert member is not None
    return ctypes.c_ssize_t.from_address(member + 16).value


def _fields() -> dict[str, int]:
    """Where the objects have what the IR reads. AssertionError if an object shows something else there."""
    tensor = recorder._TENSOR[0]
    trace = local.main
    wanted: tuple[tuple[type, str, str], ...] = (
        (tensor, "gen slot meta storage immediate", "_"), (Trace, "gen state params tensors held", ""), (State, "next immediate edge slot meta", ""),
        (Storage, "buffer gen external cut", ""), (Buffer, "address nbytes", ""), (Operation, "recent", ""), (Counters, "immediate_calls", ""),
        (Immediate, "known key block kept allocate meta", ""),
    )  # fmt: skip
    found = {}
    for cls, names, prefix in wanted:
        sample: Any = trace if cls is Trace else object.__new__(cls)
        for name in names.split():
            at = found[f"{cls.__name__.upper()}_{name.upper()}"] = offset_of(cls, prefix + name)
            if cls is not Trace:
                setattr(sample, prefix + name, found)
            if ctypes.c_void_p.from_address(id(sample) + at).value != id(getattr(sample, prefix + name)):
                raise AssertionError(f"{cls.__name__} has no {name} at {at}")
        if cls is Buffer:
            sample._class = None  # it came from no pool
    return found


def start() -> None:
    """From now on the wrappers of operations ask the builtins first. Nothing happens where they cannot be had, or outside of the main thread."""
    from flambeau.ops import wrapper
    from flambeau.trace import evaluate

    if not native_calls.available():
        evaluate.start_native = None
        return
    if threading.current_thread() is not threading.main_thread():
        return
    evaluate.start_native = None
    try:
        fields = _fields()
    except AssertionError:  # an interpreter that keeps objects in another way
        return
    values = {"BYTES": native_calls.BYTES_AT, "MOST": MOST_ARGUMENTS} | {name: i for i, name in enumerate(TABLE)} | fields
    modules = [native_calls.module(name, expand(text), values) for name, text in (("edge", EDGE), ("alive", ALIVE), ("thread", THREAD))]
    readers = native_calls.readers()
    edge, alive, thread, *reads = jit.functions([*modules, *[code for code, _ in readers.values()]])
    for (kind, (_, make)), address in zip(readers.items(), reads, strict=True):
        memory.READERS[getattr(dtypes, kind)] = make(address)
    address_of = native_calls.address_of
    here = native_calls.builtin(thread, native_calls.words([address_of("PyLong_FromVoidPtr")]), "thread")
    new = ctypes.pythonapi.PyType_GetSlot
    new.restype, new.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    objects: list[Any] = [vars(local), "trace", (), recorder._TENSOR[0], recorder._PARAMETER[0] or recorder._TENSOR[0], Trace, None, float, int, tuple,
                          False, -1, 0, Storage, counters, "_detached", "_offset"]  # fmt: skip
    names, name, empty, *others = [id(o) for o in objects]
    functions = [threads.native_address(), *[address_of(f) for f in FUNCTIONS]]
    table = (ctypes.c_uint64 * len(TABLE))(here(), names, name, new(object, _TP_NEW), empty, *others, *functions)
    _held.extend((objects, table))

    def take_parameters(cls: type) -> None:
        _held.append(cls)
        table[TABLE.index("PARAMETER")] = id(cls)

    recorder._PARAMETER.append(take_parameters)

    def equip(op: Operation) -> Any:
        """The builtin of an operation; None if it takes what has no code."""
        codes = [
            6 if kind == "number" and default is inspect.Parameter.empty else _CODES.get(kind)
            for kind, default in zip(op.kinds, op.defaults, strict=True)
        ]
        if None in codes or not any(codes) or len(codes) > MOST_ARGUMENTS:
            return None
        _held.append(op)
        block = native_calls.words([ctypes.addressof(table), id(op)]) + bytes([c for c in codes if c is not None])
        return native_calls.builtin(edge, block, op.name)

    evaluate.alive_among = native_calls.builtin(alive, native_calls.words([address_of("PyBytes_FromStringAndSize")]), "alive")
    wrapper.equip_with(equip)
