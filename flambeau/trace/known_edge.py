"""A known edge in native code: what the generated wrappers (ops/wrapper.py) do for a call whose edge leads to one plain result, at a fifth of the time.

A State remembers in `next` the edge that was last taken from it. The builtin of an operation compares the call with that edge: the same
operation, tensors whose slots are those of the key, everything else the very objects of the key. If they agree it moves the trace on and
gives a new tensor; else None, and the wrapper goes its usual way, so nothing is ever decided here that the look-up would decide otherwise.

The IR knows these objects by the offsets of their `__slots__` (Tensor, Trace, State), read from the member descriptors; the interpreter's
structures are those of runtime/native_calls.py. The trace is the one of the main thread, found by the thread pointer and in that thread's
dictionary of `local`; other threads, and whatever else stands in for the trace there (Fragment, Level), go the usual way.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any, Final

from flambeau.runtime import jit, native_calls
from flambeau.trace import recorder
from flambeau.trace.recorder import Trace, local
from flambeau.trace.state import State

if TYPE_CHECKING:
    from flambeau.ops.registry import Operation

MOST_ARGUMENTS: Final = 8
# How an argument of each kind may agree with its part of the key: only the same object (0), a tensor by its slot (1), a tensor or a number
# that is data or stands in the key (2), a number that stands in the key (3), a tensor or a number that stands in the key (4).
_CODES: Final = {"static": 0, "tensor": 1, "tensor?": 1, "operand": 2, "operand?": 2, "number": 3, "exponent": 4}
_FUNCTIONS: Final = ("PyDict_GetItemWithError", "PyList_Append", "Py_IncRef", "Py_DecRef", "PyErr_Occurred", "PyErr_Clear", "PyLong_AsLongLong")
# The table that all builtins share: words, in this order.
_TABLE: Final = ("THREAD", "LOCALS", "TRACE_NAME", "NEW", "EMPTY", "TENSOR", "PARAMETER", "TRACE", "NONE", "FLOAT", "INT", "TUPLE",
                 "GET", "APPEND", "RETAIN", "RELEASE", "OCCURRED", "CLEAR", "AS_INTEGER")  # fmt: skip
_TP_NEW: Final = 65  # Py_tp_new of the stable ABI's typeslots.h

_TEXT: Final = """
define ptr @$NAME(ptr %self, ptr %args, i64 %count) #0 {
entry:
  %pushed = alloca [$MOST x ptr], align 8
  %block = getelementptr i8, ptr %self, i64 $BYTES
  %table = load ptr, ptr %block
  %opp = getelementptr i64, ptr %block, i64 1
  %op = load ptr, ptr %opp
  %kinds = getelementptr i64, ptr %block, i64 2
  %nonep = getelementptr i64, ptr %table, i64 $NONE
  %none = load ptr, ptr %nonep
  %retainp = getelementptr i64, ptr %table, i64 $RETAIN
  %retain = load ptr, ptr %retainp
  %herep = getelementptr i64, ptr %table, i64 $THREAD
  %home = load ptr, ptr %herep
  %here = call ptr @llvm.thread.pointer.p0()
  %ours = icmp eq ptr %here, %home
  br i1 %ours, label %find, label %miss
find:
  %localsp = getelementptr i64, ptr %table, i64 $LOCALS
  %locals = load ptr, ptr %localsp
  %tracep = getelementptr i64, ptr %table, i64 $TRACE_NAME
  %trace_name = load ptr, ptr %tracep
  %getp = getelementptr i64, ptr %table, i64 $GET
  %get = load ptr, ptr %getp
  %tr = call ptr %get(ptr %locals, ptr %trace_name)
  %lost = icmp eq ptr %tr, null
  br i1 %lost, label %miss, label %found
found:
  %trtp = getelementptr i8, ptr %tr, i64 8
  %trt = load ptr, ptr %trtp
  %tracetp = getelementptr i64, ptr %table, i64 $TRACE
  %tracet = load ptr, ptr %tracetp
  %is_trace = icmp eq ptr %trt, %tracet
  br i1 %is_trace, label %where, label %miss
where:
  %genp = getelementptr i8, ptr %tr, i64 $TRACE_GEN
  %gen = load ptr, ptr %genp
  %statep = getelementptr i8, ptr %tr, i64 $TRACE_STATE
  %state = load ptr, ptr %statep
  %nextp = getelementptr i8, ptr %state, i64 $STATE_NEXT
  %next = load ptr, ptr %nextp
  %unknown = icmp eq ptr %next, %none
  br i1 %unknown, label %miss, label %plainly
plainly:
  %immediatep = getelementptr i8, ptr %state, i64 $STATE_IMMEDIATE
  %immediate = load ptr, ptr %immediatep
  %recorded = icmp eq ptr %immediate, %none
  %edgep = getelementptr i8, ptr %next, i64 $STATE_EDGE
  %edge = load ptr, ptr %edgep
  %sizep = getelementptr i8, ptr %edge, i64 16
  %size = load i64, ptr %sizep
  %parts = sub i64 %size, 1
  %fits = icmp eq i64 %parts, %count
  %both = and i1 %recorded, %fits
  br i1 %both, label %operation, label %miss
operation:
  %itemsp = getelementptr i8, ptr %edge, i64 24
  %edge_op = load ptr, ptr %itemsp
  %same_op = icmp eq ptr %edge_op, %op
  %items = getelementptr ptr, ptr %itemsp, i64 1
  %tensorp = getelementptr i64, ptr %table, i64 $TENSOR
  %tensor_type = load ptr, ptr %tensorp
  %parameterp = getelementptr i64, ptr %table, i64 $PARAMETER
  %parameter_type = load ptr, ptr %parameterp
  br i1 %same_op, label %argument, label %miss
argument:
  %i = phi i64 [0, %operation], [%i1, %agreed]
  %n = phi i64 [0, %operation], [%n1, %agreed]
  %ap = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %ap
  %ep = getelementptr ptr, ptr %items, i64 %i
  %e = load ptr, ptr %ep
  %kp = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %kp
  %same = icmp eq ptr %a, %e
  %fixed = icmp eq i8 %kind, 0
  br i1 %fixed, label %static, label %varying
static:
  br i1 %same, label %agreed, label %miss
varying:
  %typep = getelementptr i8, ptr %a, i64 8
  %type = load ptr, ptr %typep
  %is_t = icmp eq ptr %type, %tensor_type
  %is_p = icmp eq ptr %type, %parameter_type
  %is_tensor = or i1 %is_t, %is_p
  br i1 %is_tensor, label %tensor, label %other
tensor:
  %tgp = getelementptr i8, ptr %a, i64 $TENSOR_GEN
  %tg = load ptr, ptr %tgp
  %pending = icmp eq ptr %tg, %gen
  %tsp = getelementptr i8, ptr %a, i64 $TENSOR_SLOT
  %ts = load ptr, ptr %tsp
  %slot_same = icmp eq ptr %ts, %e
  %may = icmp ne i8 %kind, 3
  %t1 = and i1 %pending, %slot_same
  %t2 = and i1 %t1, %may
  br i1 %t2, label %agreed, label %miss
other:
  %is_none = icmp eq ptr %a, %none
  %absent = and i1 %is_none, %same
  br i1 %absent, label %agreed, label %maybe
maybe:
  %is_kind_1 = icmp eq i8 %kind, 1
  br i1 %is_kind_1, label %miss, label %number
number:
  %data = icmp eq ptr %type, %e
  %is_operand = icmp eq i8 %kind, 2
  %run_time = and i1 %data, %is_operand
  br i1 %run_time, label %which, label %pair
which:
  %floatp = getelementptr i64, ptr %table, i64 $FLOAT
  %float_type = load ptr, ptr %floatp
  %is_float = icmp eq ptr %type, %float_type
  br i1 %is_float, label %push, label %maybe_integer
maybe_integer:
  %intp = getelementptr i64, ptr %table, i64 $INT
  %int_type = load ptr, ptr %intp
  %is_int = icmp eq ptr %type, %int_type
  br i1 %is_int, label %integer, label %miss
integer:
  %asp = getelementptr i64, ptr %table, i64 $AS_INTEGER
  %as = load ptr, ptr %asp
  %value = call i64 %as(ptr %a)
  %odd = icmp eq i64 %value, -1
  br i1 %odd, label %doubt, label %push
doubt:
  %occurredp = getelementptr i64, ptr %table, i64 $OCCURRED
  %occurred = load ptr, ptr %occurredp
  %error = call ptr %occurred()
  %too_big = icmp ne ptr %error, null
  br i1 %too_big, label %clear, label %push
clear:
  %clearp = getelementptr i64, ptr %table, i64 $CLEAR
  %clear_error = load ptr, ptr %clearp
  call void %clear_error()
  br label %miss
push:
  %to = getelementptr ptr, ptr %pushed, i64 %n
  store ptr %a, ptr %to
  %n2 = add i64 %n, 1
  br label %agreed
pair:
  %etp = getelementptr i8, ptr %e, i64 8
  %et = load ptr, ptr %etp
  %tuplep = getelementptr i64, ptr %table, i64 $TUPLE
  %tuple_type = load ptr, ptr %tuplep
  %is_tuple = icmp eq ptr %et, %tuple_type
  br i1 %is_tuple, label %inside, label %miss
inside:
  %e_size_p = getelementptr i8, ptr %e, i64 16
  %e_size = load i64, ptr %e_size_p
  %two = icmp eq i64 %e_size, 2
  br i1 %two, label %parts_of_pair, label %miss
parts_of_pair:
  %e0p = getelementptr i8, ptr %e, i64 24
  %e0 = load ptr, ptr %e0p
  %e1p = getelementptr i8, ptr %e, i64 32
  %e1 = load ptr, ptr %e1p
  %class_same = icmp eq ptr %e0, %type
  %number_same = icmp eq ptr %e1, %a
  %pair_same = and i1 %class_same, %number_same
  br i1 %pair_same, label %agreed, label %miss
agreed:
  %n1 = phi i64 [%n, %static], [%n, %tensor], [%n, %other], [%n2, %push], [%n, %parts_of_pair]
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %argument, label %make
make:
  %newp = getelementptr i64, ptr %table, i64 $NEW
  %new = load ptr, ptr %newp
  %emptyp = getelementptr i64, ptr %table, i64 $EMPTY
  %empty = load ptr, ptr %emptyp
  %t = call ptr %new(ptr %tensor_type, ptr %empty, ptr null)
  %no_memory = icmp eq ptr %t, null
  br i1 %no_memory, label %give_up, label %still
still:
  ; an allocation may collect garbage, and finalizers may record
  %state_now = load ptr, ptr %statep
  %gen_now = load ptr, ptr %genp
  %s1 = icmp eq ptr %state_now, %state
  %s2 = icmp eq ptr %gen_now, %gen
  %s3 = and i1 %s1, %s2
  %releasep = getelementptr i64, ptr %table, i64 $RELEASE
  %release = load ptr, ptr %releasep
  br i1 %s3, label %fill, label %drop
drop:
  call void %release(ptr %t)
  br label %miss
fill:
  call void %retain(ptr %gen)
  %ngp = getelementptr i8, ptr %t, i64 $TENSOR_GEN
  store ptr %gen, ptr %ngp
  %slotp = getelementptr i8, ptr %next, i64 $STATE_SLOT
  %slot = load ptr, ptr %slotp
  call void %retain(ptr %slot)
  %nsp = getelementptr i8, ptr %t, i64 $TENSOR_SLOT
  store ptr %slot, ptr %nsp
  %metap = getelementptr i8, ptr %next, i64 $STATE_META
  %meta = load ptr, ptr %metap
  call void %retain(ptr %meta)
  %nmp = getelementptr i8, ptr %t, i64 $TENSOR_META
  store ptr %meta, ptr %nmp
  %appendp = getelementptr i64, ptr %table, i64 $APPEND
  %append = load ptr, ptr %appendp
  %paramsp = getelementptr i8, ptr %tr, i64 $TRACE_PARAMS
  %params = load ptr, ptr %paramsp
  %any = icmp ne i64 %n1, 0
  br i1 %any, label %parameter, label %move
parameter:
  %j = phi i64 [0, %fill], [%j1, %parameter_next]
  %pp = getelementptr ptr, ptr %pushed, i64 %j
  %p = load ptr, ptr %pp
  %failed_p = call i32 %append(ptr %params, ptr %p)
  %bad_p = icmp ne i32 %failed_p, 0
  br i1 %bad_p, label %undo, label %parameter_next
parameter_next:
  %j1 = add i64 %j, 1
  %more_p = icmp ult i64 %j1, %n1
  br i1 %more_p, label %parameter, label %move
move:
  %tensorsp = getelementptr i8, ptr %tr, i64 $TRACE_TENSORS
  %tensors = load ptr, ptr %tensorsp
  %failed_t = call i32 %append(ptr %tensors, ptr %t)
  %bad_t = icmp ne i32 %failed_t, 0
  br i1 %bad_t, label %undo, label %arrive
arrive:
  call void %retain(ptr %next)
  store ptr %next, ptr %statep
  call void %release(ptr %state)
  ret ptr %t
undo:
  call void %release(ptr %t)
  br label %give_up
give_up:
  ret ptr null
miss:
  call void %retain(ptr %none)
  ret ptr %none
}
declare ptr @llvm.thread.pointer.p0()
attributes #0 = { nounwind }
"""

# Which of the results that a trace has recorded somebody still holds: bytes, 1 for each tensor of the list that has another reference.
_ALIVE: Final = """
define ptr @$NAME(ptr %self, ptr %args, i64 %count) #0 {
entry:
  %block = getelementptr i8, ptr %self, i64 $BYTES
  %make = load ptr, ptr %block
  %list = load ptr, ptr %args
  %sizep = getelementptr i8, ptr %list, i64 16
  %size = load i64, ptr %sizep
  %itemsp = getelementptr i8, ptr %list, i64 24
  %items = load ptr, ptr %itemsp
  %result = call ptr %make(ptr null, i64 %size)
  %bad = icmp eq ptr %result, null
  br i1 %bad, label %out, label %begin
begin:
  %to = getelementptr i8, ptr %result, i64 $BYTES
  %any = icmp ne i64 %size, 0
  br i1 %any, label %loop, label %out
loop:
  %i = phi i64 [0, %begin], [%i1, %loop]
  %tp = getelementptr ptr, ptr %items, i64 %i
  %t = load ptr, ptr %tp
  %references = load i32, ptr %t
  %held = icmp ne i32 %references, 1
  %bit = zext i1 %held to i8
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 %bit, ptr %at
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %size
  br i1 %more, label %loop, label %out
out:
  ret ptr %result
}
attributes #0 = { nounwind }
"""

# The thread pointer, for the table.
_THREAD: Final = """
define ptr @$NAME(ptr %self, ptr %args, i64 %count) #0 {
  %block = getelementptr i8, ptr %self, i64 $BYTES
  %make = load ptr, ptr %block
  %here = call ptr @llvm.thread.pointer.p0()
  %result = call ptr %make(ptr %here)
  ret ptr %result
}
declare ptr @llvm.thread.pointer.p0()
attributes #0 = { nounwind }
"""

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
    wanted = (
        (tensor, object.__new__(tensor), ("gen", "slot", "meta"), "_"), (Trace, trace, ("gen", "state", "params", "tensors"), ""),
        (State, State(None, None), ("next", "immediate", "edge", "slot", "meta"), ""),
    )  # fmt: skip
    found = {}
    for cls, sample, names, prefix in wanted:
        for name in names:
            at = found[f"{cls.__name__.upper()}_{name.upper()}"] = offset_of(cls, prefix + name)
            if cls is not Trace:
                setattr(sample, prefix + name, found)
            if ctypes.c_void_p.from_address(id(sample) + at).value != id(getattr(sample, prefix + name)):
                raise AssertionError(f"{cls.__name__} has no {name} at {at}")
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
    values = {"BYTES": native_calls.BYTES_AT, "MOST": MOST_ARGUMENTS} | {name: i for i, name in enumerate(_TABLE)} | _fields()
    modules = [native_calls.module(name, text, values) for name, text in (("edge", _TEXT), ("alive", _ALIVE), ("thread", _THREAD))]
    edge, alive, thread = jit.functions(modules)
    address_of = native_calls.address_of
    here = native_calls.builtin(thread, native_calls.words([address_of("PyLong_FromVoidPtr")]), "thread")
    new = ctypes.pythonapi.PyType_GetSlot
    new.restype, new.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    objects: list[Any] = [vars(local), "trace", (), recorder._TENSOR[0], recorder._PARAMETER[0] or recorder._TENSOR[0], Trace, None, float, int, tuple]
    names, name, empty, *others = [id(o) for o in objects]
    table = (ctypes.c_uint64 * len(_TABLE))(here(), names, name, new(object, _TP_NEW), empty, *others, *[address_of(f) for f in _FUNCTIONS])
    _held.extend((objects, table))

    def equip(op: Operation) -> Any:
        """The builtin of an operation; None if it takes what has no code."""
        codes = [_CODES.get(kind) for kind in op.kinds]
        if None in codes or not any(codes) or len(codes) > MOST_ARGUMENTS:
            return None
        _held.append(op)
        block = native_calls.words([ctypes.addressof(table), id(op)]) + bytes([c for c in codes if c is not None])
        return native_calls.builtin(edge, block, op.name)

    evaluate.alive_among = native_calls.builtin(alive, native_calls.words([address_of("PyBytes_FromStringAndSize")]), "alive")
    wrapper.equip_with(equip)
