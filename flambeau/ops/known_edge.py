"""A known edge in native code: what the generated wrappers (ops/wrapper.py) do for a call whose edge is known, at a fifth of the time.

A State remembers in `next` the edge that was last taken from it. The builtin of an operation compares the call with that edge: the same
operation, tensors whose slots are those of the key, everything else the key's objects or equal to them. If they agree it moves the trace on and
gives the results; else None, and the wrapper goes its usual way, so the result is always that of the look-up.
Likewise, at a root that has learned calls, the one that the operation made last (immediate.py). The code is in edge_code.py, and that for
many tensors at once (an optimizer's writes, the end of a trace) in write_code.py.

The IR knows these objects by the offsets of their `__slots__` (Tensor, Trace, State), read from the member descriptors; the interpreter's
structures are those of runtime/native_calls.py. The trace is the one of the main thread, found by the thread pointer and in that thread's
dictionary of `local`; other threads, and whatever else stands in for the trace there (Fragment, Level), go the usual way.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
import threading
from typing import Any, Final

from flambeau import dtypes
from flambeau.ops.registry import Operation
from flambeau.ops.remembered import Given, KnownCall, finish
from flambeau.runtime import buffers, jit, memory, native_calls, threads, twice, untracked
from flambeau.runtime.buffers import Buffer
from flambeau.statistics import Counters, counters
from flambeau.trace import buffer_code, call_code, edge_code, from_model, liveness, mutation, recorder, state_code, write_code
from flambeau.trace.bounds import look
from flambeau.trace.immediate import Immediate
from flambeau.trace.meta import Meta, Size
from flambeau.trace.object_code import FUNCTIONS, TABLE
from flambeau.trace.recorder import Boundary, Trace, local
from flambeau.trace.state import Bound, Out, State
from flambeau.trace.storage import Storage

MOST_ARGUMENTS: Final = 16
# How an argument of each kind may agree with its part of the key: as an equal object, a tensor by its slot, tensors by theirs, a tensor or a
# number that is data or stands in the key, a tensor or a number that stands in the key, a number that stands in the key, or is data.
_CODES: Final = {
    "static": edge_code.STATIC, "tensor": edge_code.TENSOR, "tensor?": edge_code.TENSOR, "operand": edge_code.OPERAND, "operand?": edge_code.OPERAND,
    "tensors": edge_code.TENSORS, "exponent": edge_code.EXPONENT, "number": edge_code.NUMBER,
    "changing": edge_code.CHANGING,
}  # fmt: skip
_TP_NEW: Final = 65  # Py_tp_new of the stable ABI's typeslots.h

_held: Final[list[Any]] = []  # what native code has the addresses of
# For good: when the interpreter ends it clears this module, and frees buffers, which is native code, after that.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_held))


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
        (tensor, "gen slot meta storage immediate view", "_"), (Trace, "boundaries claims gen held inputs params resolved state tensors", ""),
        (State, "bounds call children next immediate edge slot meta room root_slot leaf outs pack plain writes", ""), (Out, "alias dynamic meta root slot", ""),
        (Storage, "buffer cut extent external family gen history origin others result slot version", ""), (Boundary, "tensor history version", ""),
        (Bound, "known position", ""), (Meta, "dynamic leaf offset requires_grad", ""), (Buffer, "_block _class address nbytes owner", ""),
        (buffers._Class, "limit", ""),
        (Operation, "defaults recent", ""), (Given, "meta slot", ""), (KnownCall, "arguments function numbers result steps tail", ""),
        (Counters, "bytes_from_pool immediate_calls", ""), (Immediate, "known key block kept allocate meta room", ""),
    )  # fmt: skip
    found = {}
    for cls, names, prefix in wanted:
        sample: Any = trace if cls is Trace else list.__new__(cls) if issubclass(cls, list) else object.__new__(cls)
        for name in names.split():
            at = found[f"{cls.__name__.upper()}_{name.upper()}"] = offset_of(cls, prefix + name)
            if cls is not Trace:
                setattr(sample, prefix + name, found)
            if ctypes.c_void_p.from_address(id(sample) + at).value != id(getattr(sample, prefix + name)):
                raise AssertionError(f"{cls.__name__} has no {name} at {at}")
        if cls is Buffer:
            sample._class = None  # it came from no pool
    states = sorted(offset_of(State, name) for name in State.__slots__)
    if states != list(range(states[0], states[0] + 8 * len(states), 8)):
        raise AssertionError("a State's fields are not one after the other")
    return found | {"STATE_BEGIN": states[0], "STATE_FIELDS": len(states)}


def start() -> None:
    """From now on the wrappers of operations ask the builtins first. Nothing happens where they cannot be had, or outside of the main thread."""
    from flambeau.ops import wrapper
    from flambeau.trace import evaluate

    if not native_calls.available() or not liveness.HELD:  # native code reads reference counts, too
        evaluate.start_native = None
        return
    if threading.current_thread() is not threading.main_thread():
        return
    evaluate.start_native = None  # at once: a debugger or a finalizer that comes in between may record, and must not start it, too
    try:
        fields = _fields()
    except AssertionError:  # an interpreter that keeps objects in another way
        return
    places = {"BYTES": native_calls.BYTES_AT, "MOST": MOST_ARGUMENTS} | {name: i for i, name in enumerate(TABLE)} | fields
    texts = (
        write_code.modules(places)
        | buffer_code.modules(places)
        | state_code.modules(places)
        | call_code.modules(places)
        | {"edge": edge_code.edge_module(places)}
    )
    readers = native_calls.readers()
    texts["untrack"] = untracked.TEXT.replace("$BYTES", str(native_calls.BYTES_AT))
    modules = [native_calls.module(name, text, {}) for name, text in texts.items()]
    wanted = [*modules, *[code for code, _ in readers.values()]]
    if not twice.ahead(wanted):
        evaluate.start_native = start  # calls go in Python until it is there
        return
    addresses = jit.functions(wanted, small=True)
    for (kind, (_, make)), address in zip(readers.items(), addresses[len(texts) :], strict=True):
        memory.READERS[getattr(dtypes, kind)] = make(address)
    at = dict(zip(texts, addresses, strict=False))
    address_of = native_calls.address_of
    untracked.native[0] = native_calls.builtin(at["untrack"], native_calls.words([address_of(f) for f in untracked.FUNCTIONS]), "untrack")
    here = native_calls.builtin(at["thread"], native_calls.words([address_of("PyLong_FromVoidPtr")]), "thread")
    new = ctypes.pythonapi.PyType_GetSlot
    new.restype, new.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    objects: dict[str, Any] = {
        "LOCALS": vars(local),
        "EMPTY": (),
        "TENSOR": recorder._TENSOR[0],
        "PARAMETER": recorder._PARAMETER[0] or recorder._TENSOR[0],
        "TRACE": Trace,
        "NONE": None,
        "TRUE": True,
        "FALSE": False,
        "FLOAT": float,
        "INT": int,
        "BOOL": bool,
        "TUPLE": tuple,
        "LIST": list,
        "SIZE": Size,
        "STR": str,
        "SLICE": slice,
        "GIVEN": Given,
        "ALIAS": recorder.ALIAS,
        "FINISH": finish,
        "LOOK": look,
        "MINUS": -1,
        "ZERO": 0,
        "ONE": 1,
        "STORAGE": Storage,
        "BOUNDARY": Boundary,
        "BUFFER": Buffer,
        "COUNTERS": counters,
        "MARK": object(),
        "LISTED": object(),
        "STATE": State,
    } | {f"{name.upper()}_NAME": sys.intern(f"_{name}") for name in ("input_key", "detached", "offset", "history", "hooks")}
    objects["TRACE_NAME"] = sys.intern("trace")
    words = {name: id(o) for name, o in objects.items()} | {name: address_of(name) for name in FUNCTIONS}
    words |= {"THREAD": here(), "NEW": new(object, _TP_NEW), "NEW_TUPLE": new(tuple, _TP_NEW), "RUN": threads.native_address()}
    table = (ctypes.c_uint64 * len(TABLE))(*[words[name] for name in TABLE])
    _held.extend((objects, table))

    def take_parameters(cls: type) -> None:
        _held.append(cls)
        table[TABLE.index("PARAMETER")] = id(cls)

    recorder._PARAMETER.append(take_parameters)

    def equip(op: Any) -> Any:
        """The builtin of an operation, None if it takes what has no code; that of a remembered function, which is named by its body."""
        if op.__class__ is not Operation:
            return native_calls.builtin(at["call"], native_calls.words([ctypes.addressof(table), id(op)]), op.__name__)
        codes = [
            edge_code.DATA if kind == "number" and default is inspect.Parameter.empty else _CODES.get(kind)
            for kind, default in zip(op.kinds, op.defaults, strict=True)
        ]
        if None in codes or len(codes) > MOST_ARGUMENTS:
            return None
        _held.append(op)
        block = native_calls.words([ctypes.addressof(table), id(op)]) + bytes([c for c in codes if c is not None])
        return native_calls.builtin(at["edge"], block, op.name)

    block = native_calls.words([ctypes.addressof(table)])
    made = {name: native_calls.builtin(at[name], block, name) for name in ("alive", "collect", "deliver", "take", "writes")}
    if not liveness.passes(made["alive"]):
        return
    evaluate.alive_among = made["alive"]
    evaluate.collect, evaluate.deliver = made["collect"], made["deliver"]
    recorder.take, mutation.native_writes = made["take"], made["writes"]
    from_model.copied[0] = native_calls.builtin(at["copied"], block, "copied")
    buffers.addresses = native_calls.builtin(at["addresses"], block, "addresses")
    python_method = vars(Buffer)["__del__"]
    native_calls.builtin(at["give_back"], block, "give_back")(python_method)
    _held.append(python_method)
    Buffer.__del__ = native_calls.method(Buffer, at["give_back"], "__del__")  # type: ignore[method-assign]

    def allocator(home: Any, nbytes: int, otherwise: Any) -> Any:
        held = home, nbytes, otherwise
        _held.append(held)
        return native_calls.builtin(at["pop"], native_calls.words([ctypes.addressof(table), *map(id, held)]), "allocate")

    buffers.native_allocator = allocator
    wrapper.equip_with(equip)
